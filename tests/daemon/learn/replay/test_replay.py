"""Replay gives every version's own bits, and where it cannot it names what differs first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import fold_history, history
from daemon import cli
from daemon.exits import EX_DATAERR, EX_OK, EX_USAGE, UserError
from daemon.learn import compatible as describe
from daemon.learn.replay.difference import TOLERANCE, EventPlace
from daemon.learn.replay.replay import ReplayResult, replay
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.state import dedupe
from streams.codec import decode_event, encode_event
from streams.event import Event, ObjectRef, SparseVector
from streams.open import open_source, retain
from tests.daemon.learn.altered import alter_event, alter_manifest, alter_state
from tests.daemon.learn.conftest import DIM, Site, make_events

RUN = 10


def event(number: int, query: int, value: float = 1.0) -> bytes:
    """An event that touches the one row `query` of W."""

    def vector(index: int) -> ObjectRef:
        return ObjectRef(x=SparseVector(np.array([index], np.int32), np.array([value], np.float32)))

    return encode_event(Event(f"e{number}", 1000 + number, vector(query), vector(10), vector(11)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Four versions after the first, ten events each; event n touches row n mod 5 of W."""
    folder = tmp_path_factory.mktemp("written")
    site = Site(folder, f"log:{folder}/clicks.log")
    site.settings |= {"space.views.x.kind": "sparse"}
    for start in range(0, 4 * RUN, RUN):
        site.feed([event(n, n % 5) for n in range(start, start + RUN)])
        site.learn()
    return site


@pytest.fixture
def kept(written: Site, tmp_path: Path) -> Site:
    """A copy of `written` to be altered."""
    shutil.copytree(written.folder, tmp_path / "kept")
    site = Site(tmp_path / "kept", f"log:{tmp_path}/kept/clicks.log")
    site.settings |= {"space.views.x.kind": "sparse"}
    return site


def verified(site: Site, from_: int = 0, to: int | None = None, **options: Any) -> ReplayResult:
    with closing(open_source(site.address)) as source:
        return replay(
            site.versions, source, None, from_, site.newest().number if to is None else to, **options
        )


def test_every_version_kept_on_the_way_is_compared(kept: Site) -> None:
    heard: list[tuple[int, int]] = []
    result = verified(kept, on_progress=lambda done, total: heard.append((done, total)))
    assert result.equal
    assert result.difference is None
    assert result.records == 4 * RUN
    assert heard[-1] == (4 * RUN, 4 * RUN)


def test_a_thinned_history_leads_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoints.thinning.MOST_WHOLE", 2)
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    site.settings |= {"space.views.x.kind": "sparse", "checkpoints.keep": 2}
    for start in range(0, 8 * RUN, RUN):
        site.feed([event(n, n % 5) for n in range(start, start + RUN)])
        site.learn()
    store, lines = site.versions.store, len(history(site.versions.store))
    parents = [site.versions.manifest(number).parent for number in site.versions.versions()]
    stay = [parent for parent in parents if parent is not None]
    assert fold_history(store, lambda: stay, lambda: None, least_bytes=1, leave=0) == 1
    assert len(history(store)) < lines
    result = verified(site)
    assert result.equal
    assert result.records == 8 * RUN


def test_one_altered_entry_of_W_is_named(kept: Site) -> None:
    numbers = kept.versions.versions()
    third = numbers[3]

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["W"][3, 7] += 0.25

    alter_state(kept, third, change)
    found = verified(kept).difference
    assert found is not None
    assert (found.version, found.since) == (third, numbers[2])
    assert (found.place.array, found.place.row, found.place.column, found.place.rows) == ("W", 3, 7, 1)
    assert found.place.recorded - found.place.recomputed == pytest.approx(0.25)
    assert (found.event.partition, found.event.offset, found.event.id) == (0, 2 * RUN + 3, "e23")
    assert verified(kept, from_=third).difference is not None  # what it starts from is altered, too


def test_an_altered_row_that_no_event_touched_has_no_event(kept: Site) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["W"][9, 0] = np.float32(-0.0)  # an equal number, other bits

    newest = kept.newest().number
    alter_state(kept, newest, change)
    found = verified(kept).difference
    assert (found.version, found.place.row, found.event) == (newest, 9, None)


def test_one_altered_event_in_the_log_is_named(kept: Site) -> None:
    alter_event(kept, 0, RUN + 2, event(RUN + 2, 2, value=0.5))
    found = verified(kept).difference
    assert (found.version, found.place.array, found.place.row) == (kept.versions.versions()[2], "W", 2)
    assert (found.event.offset, found.event.id) == (RUN + 2, "e12")


def test_the_last_altered_event_before_a_position_is_known_for_what_it_is(kept: Site) -> None:
    last = 2 * RUN - 1
    alter_event(kept, 0, last, event(last, last % 5, value=0.5))
    found = verified(kept).difference
    assert (found.version, found.place.row) == (kept.versions.versions()[2], last % 5)
    assert found.record == EventPlace(0, last)


def test_an_altered_event_that_leaves_the_state_alone_is_named(kept: Site) -> None:
    last = 2 * RUN - 1
    later = encode_event(replace(decode_event(event(last, last % 5)), ts=7))
    alter_event(kept, 0, last, later)
    found = verified(kept).difference
    assert (found.version, found.place, found.record) == (
        kept.versions.versions()[2],
        None,
        EventPlace(0, last),
    )


def test_an_altered_id_differs_in_the_window_of_ids(kept: Site) -> None:
    alter_event(kept, 0, RUN + 2, event(99, 2))
    found = verified(kept).difference
    assert (found.version, found.place.array, found.place.row) == (
        kept.versions.versions()[2],
        "dedupe.ids",
        RUN + 2,
    )
    assert (found.event.offset, found.event.id) == (RUN + 2, "e99")


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (((0, 10, 19),), "partition 0 is recorded at 20; its schedule leads to 19"),
        (((0, 11, 20),), "begins elsewhere than at 10"),
        (((0, 10, 20), (0, 20, 30)), "partition 0 is recorded at 20; its schedule leads to 30"),
        ((), "partition 0 is recorded at 20; its schedule leads to 10"),
    ],
)
def test_one_altered_run_is_named(kept: Site, schedule: tuple[Any, ...], why: str) -> None:
    number = kept.versions.versions()[2]
    alter_manifest(kept, number, schedule=schedule)
    found = verified(kept).difference
    assert found.version == number
    assert why in str(found)


def test_runs_in_another_order_are_named(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(20), partitions=2)
    site.learn(stream__partitions=2, stream__poll_records=5)
    newest = site.newest()
    assert len(newest.schedule) > 2
    alter_manifest(
        site, newest.number, schedule=(newest.schedule[1], newest.schedule[0], *newest.schedule[2:])
    )
    found = verified(site).difference
    assert (found.version, found.place.array, found.place.row) == (newest.number, "W", 0)
    assert (found.event.partition, found.event.offset) == (newest.schedule[1][0], 0)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"counters": {"updated": 3}}, "counter duplicate|counter loss_sum|counter updated"),
        ({"watermark": 5}, "watermark: recorded 5"),
    ],
)
def test_altered_counters_are_named(kept: Site, fields: dict[str, Any], why: str) -> None:
    number = kept.newest().number
    counters = {**kept.newest().counters, **fields.get("counters", {})}
    alter_manifest(kept, number, **{**fields, "counters": counters})
    found = verified(kept).difference
    assert found.version == number
    assert any(one in found.why for one in why.split("|"))


def test_a_damaged_version_in_between_is_told(kept: Site) -> None:
    number = kept.versions.versions()[2]
    entry = kept.versions.manifest(number).files[0]
    path = kept.folder / "checkpoints" / "versions" / f"{number:010}" / entry.name
    path.unlink()
    path.write_bytes(b"torn")
    assert verified(kept).equal  # its manifest says what its state was


def test_without_verify_only_the_end_counts(kept: Site) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["W"][0, 0] = 9

    alter_state(kept, kept.versions.versions()[1], change)
    assert verified(kept, verify=False).equal
    assert not verified(kept).equal


def test_records_that_are_gone_are_told(kept: Site) -> None:
    retain(kept.address, max_age_s=None, max_bytes=1)
    with pytest.raises(UserError, match="have expired from the log: partition 0: offsets 0 up to") as told:
        verified(kept)
    assert told.value.code == EX_DATAERR


def test_elsewhere_numbers_are_compared_within_a_tolerance(
    kept: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(arrays: dict[str, np.ndarray], by: float) -> None:
        arrays["W"][1, 10] += by * np.abs(arrays["W"]).max()

    newest = kept.newest().number
    alter_state(kept, newest, lambda arrays: change(arrays, TOLERANCE / 2))
    assert verified(kept).difference is not None
    monkeypatch.setattr(describe, "CPU_LEVEL", "another")
    result = verified(kept)
    assert result.difference is None
    assert result.within == TOLERANCE
    assert not result.equal
    assert result.other_runtime == {"cpu_level": (kept.newest().runtime["cpu_level"], "another")}
    alter_state(kept, newest, lambda arrays: change(arrays, TOLERANCE * 2))
    assert verified(kept).difference is not None


def test_an_unknown_control_entry_is_refused(kept: Site) -> None:
    number = kept.newest().number
    schedule = ({"control": "unheard-of"}, *kept.newest().schedule)
    alter_manifest(kept, number, schedule=schedule)
    with pytest.raises(UserError, match="'unheard-of'"):
        verified(kept)
    alter_manifest(kept, number, schedule=(dedupe(3), *schedule[1:]))
    assert verified(kept).difference.place.array == "dedupe.admitted"


def test_jumps_branches_and_gaps_replay(site: Site) -> None:
    """Back to what was learned (the ids are forgotten: it is learned again), forward, and over a gap."""
    site.feed(make_events(30))
    site.learn()
    back = LearnOptions(exit_when_caught_up=True, start='offset={"0": 20}', jump=True)
    site.learn(back)
    again = site.newest()
    assert again.counters["duplicate"] == 0
    assert again.counters["records"] == 40
    site.feed(make_events(10, seed=1))
    site.learn(
        LearnOptions(exit_when_caught_up=True, start='offset={"0": 35}', jump=True, restart_from=again.number)
    )
    with closing(open_source(site.address)) as source:
        result = replay(site.versions, source, None, 0, site.newest().number)
    assert result.equal
    assert result.records == 45
    retain(site.address, max_age_s=None, max_bytes=1)
    site.feed(make_events(20, seed=2))
    retain(site.address, max_age_s=None, max_bytes=1)
    site.feed(make_events(5, seed=3))
    before = site.newest().number
    site.learn(LearnOptions(exit_when_caught_up=True, accept_gap=True))
    assert site.newest().schedule[0]["control"] == "gap"
    assert verified(site, from_=before).equal


def test_the_command_tells_in_words_and_in_json(
    kept: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    words = ["replay", "--from", "0", "--to", "latest", "--verify"]
    for key, value in kept.settings.items():
        words += ["--set", f"{key}={value}"]
    assert cli.main(words) == EX_OK
    out = capsys.readouterr().out
    assert "40 records replayed" in out
    assert kept.newest().state_hash in out
    assert "bit for bit" in out

    alter_event(kept, 0, RUN + 2, event(RUN + 2, 2, value=0.5))
    assert cli.main([*words, "--json"]) == EX_DATAERR
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["equal"], found["difference"]["place"]["row"]) == (False, 2)
    assert found["difference"]["event"] == {"partition": 0, "offset": RUN + 2, "id": "e12"}
    assert "array W, row 2" in captured.err
    assert "partition 0, offset 12, id 'e12'" in captured.err

    words[words.index("latest")] = "no-such-name"
    assert cli.main(words) == EX_USAGE


def test_the_command_refuses_another_log(
    kept: Site, new_site: Callable[..., Site], capsys: pytest.CaptureFixture[str]
) -> None:
    other = new_site(log=True)
    other.feed(make_events(1))
    words = ["replay"]
    for key, value in {**kept.settings, "stream.address": other.settings["stream.address"]}.items():
        words += ["--set", f"{key}={value}"]
    assert cli.main(words) == EX_DATAERR
    assert "learned from another log" in capsys.readouterr().err


assert DIM > 11  # the indices above
