"""An event sent again changes W once, inside the window and whatever happens in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_CONFIG, EX_OK, UserError
from daemon.learn import start as role
from daemon.learn.replay.replay import replay
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.state import dedupe, times
from daemon.telemetry import LearnMetrics
from streams.codec import decode_event, encode_event
from streams.event import ObjectRef
from streams.open import open_sink, open_source
from streams.source import OutRecord
from tests.daemon.learn.conftest import DIM, Site, make_events, with_nan

GOLDEN = Path(__file__).parent / "golden"
OUTCOMES = ("updated", "passive", "degenerate", "rejected", "duplicate", "poison")


def learned(site: Site, records: list[bytes | None], **changes: object) -> np.ndarray:
    """W after the records."""
    site.feed(records)
    assert site.learn(**changes) == EX_OK
    return site.versions.load(site.newest().number).arrays["W"]


def counted(site: Site) -> dict[str, int]:
    return {name: int(site.newest().counters[name]) for name in OUTCOMES}


@pytest.mark.parametrize("poll_records", [1, 7, 500])
@pytest.mark.parametrize("order", [[0, 1, 1, 2, 0, 3], [0, 0, 0, 0], [0, 1, 2, 3, 3, 2, 1, 0]])
def test_an_event_sent_again_leaves_no_trace(
    new_site: Callable[..., Site], order: list[int], poll_records: int
) -> None:
    once, again = new_site(), new_site()
    weighted = zip(make_events(4), (0.25, 0.5, 1.0, 0.125), strict=True)
    events = [encode_event(replace(decode_event(event), weight=weight)) for event, weight in weighted]
    first = [events[n] for n in dict.fromkeys(order)]
    changes = {"stream__poll_records": poll_records, "learner__psd_every": 3}
    assert np.array_equal(
        learned(again, [events[n] for n in order], **changes), learned(once, first, **changes)
    )
    assert counted(again)["duplicate"] == len(order) - len(first)
    assert sum(counted(again).values()) == again.newest().counters["records"] == len(order)
    assert again.newest().positions[0].next_offset == len(order)
    for name in ("loss_sum", "watermark"):
        found, expected = (
            {**site.newest().counters, "watermark": site.newest().watermark}[name] for site in (again, once)
        )
        assert found == expected
    with closing(open_source(again.address)) as source:
        assert replay(again.versions, source, None, 0, again.newest().number).equal


def test_ids_are_known_after_a_restart(site: Site) -> None:
    events = make_events(10)
    learned(site, events)
    before = site.newest()
    learned(site, events)
    assert counted(site)["duplicate"] == 10
    assert site.newest().state_hash == before.state_hash  # the window too is what it was
    assert site.newest().number > before.number  # but the position moved


def test_ids_are_known_across_partitions(new_site: Callable[..., Site]) -> None:
    site = new_site()
    events = make_events(6)
    site.feed([event for event in events for _ in range(2)], partitions=2)  # each to both
    site.learn(stream__partitions=2)
    assert counted(site)["duplicate"] == 6
    with closing(open_source(site.address)) as source:
        assert replay(site.versions, source, None, 0, site.newest().number).equal


@pytest.mark.parametrize(("others", "known"), [(4, True), (5, False)])
@pytest.mark.parametrize("poll_records", [1, 3, 500])
def test_the_window_ends_where_it_says(site: Site, others: int, known: bool, poll_records: int) -> None:
    """Also where it is smaller than a batch, and where the window's end falls between two runs."""
    events = make_events(6)
    changes = {"learner__dedupe_window": 5, "stream__poll_records": poll_records}
    learned(site, events[:1], **changes)
    learned(site, [*events[1 : others + 1], events[0]], **changes)
    assert counted(site)["duplicate"] == int(known)


def test_without_a_window_everything_is_learned_again(site: Site) -> None:
    events = make_events(3)
    learned(site, [*events, *events], learner__dedupe_window=0)
    assert counted(site)["duplicate"] == 0
    assert not [name for name in site.versions.load(site.newest().number).arrays if name.startswith("dedupe")]


@pytest.mark.parametrize("poll_records", [1, 3, 500])
def test_the_corrected_twin_of_a_refused_event_is_learned_once(
    new_site: Callable[..., Site], poll_records: int
) -> None:
    site, plain = new_site(), new_site()
    a, b, c = make_events(3)
    changes = {"stream__poll_records": poll_records}
    found = learned(site, [with_nan(a), a, b, with_nan(b), a, with_nan(c), with_nan(c), c, c[:-1]], **changes)
    assert np.array_equal(found, learned(plain, [a, b, c], **changes))
    counts = counted(site)
    assert counts["updated"] + counts["passive"] == 3
    assert (counts["rejected"], counts["duplicate"], counts["poison"]) == (3, 2, 1)
    assert sorted(letter.offset for letter in site.dead()) == [0, 5, 6, 8]
    assert int(site.versions.load(site.newest().number).arrays["dedupe.admitted"]) == 3
    with closing(open_source(site.address)) as source:
        assert replay(site.versions, source, None, 0, site.newest().number).equal
    before = site.newest().state_hash
    learned(site, [a, b, c], **changes)  # known after a restart, too
    assert site.newest().state_hash == before


def test_an_event_that_changed_nothing_for_lack_of_a_step_is_not_known(site: Site) -> None:
    event = decode_event(make_events(1)[0])
    empty = encode_event(replace(event, query=ObjectRef(x=np.zeros(DIM, np.float32))))
    learned(site, [empty, encode_event(event)])
    assert (counted(site)["degenerate"], counted(site)["duplicate"]) == (1, 0)


def test_a_repetition_that_would_be_rejected_is_no_dead_letter(site: Site) -> None:
    event = make_events(1)[0]
    learned(site, [event, with_nan(event)])
    assert (counted(site)["duplicate"], counted(site)["rejected"]) == (1, 0)
    assert site.dead() == []


def test_letters_and_counters_are_of_the_right_events(site: Site) -> None:
    """Repetitions before a rejected event must not shift its place."""
    a, b, c = make_events(3)
    learned(site, [a, a, with_nan(b), a, c])
    assert [(letter.offset, letter.value) for letter in site.dead()] == [(2, with_nan(b))]
    assert site.newest().watermark == decode_event(c).ts


def test_the_size_of_the_window_is_a_setting_like_any_other(site: Site) -> None:
    learned(site, make_events(3))
    with pytest.raises(UserError, match=r"learner\.dedupe_window: version 100000, now 7") as refused:
        site.learn(learner__dedupe_window=7)
    assert refused.value.code == EX_CONFIG


def test_repetitions_are_an_outcome_in_the_metrics(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LearnMetrics] = []

    class Kept(LearnMetrics):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(role, "LearnMetrics", Kept)
    events = make_events(3)
    learned(site, [*events, events[1], events[1]])
    values = {
        outcome: made[0].registry.get_sample_value("tripletd_events_total", {"outcome": outcome})
        for outcome in ("updated", "passive", "duplicate")
    }
    assert values["duplicate"] == 2
    assert values["updated"] + values["passive"] == 3


def test_people_are_told_of_repetitions_and_of_the_window(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    events = make_events(3)
    learned(site, [*events, events[1], events[1]])
    words = [word for key, value in site.settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["models", "show", "latest", *words]) == EX_OK
    shown = capsys.readouterr().out
    assert "3, of at most 100,000" in shown
    assert "duplicate 2" in shown
    assert main(["status", *words]) == EX_OK
    assert "3 events, 2 sent again and dropped" in capsys.readouterr().out


RACE = {"control": "race", "pairs": "above", "arms": [], "dropped_arms": []}
"""Pairs below the click are left aside from here on."""


class TestFirstRelease:
    """Written by release 0.1.0: versions, history, and a log of 43 records, 31 of them learned.

    The last two waiting were sent before: one is among those learned, the other among those waiting.
    """

    def site(self, tmp_path: Path) -> Site:
        shutil.copytree(GOLDEN / "0.1", tmp_path / "site")
        site = Site(tmp_path / "site", f"log:{tmp_path}/site/clicks.sqlite")
        config = load_config(tmp_path / "site" / "tripletd.toml", {}, {})
        assert (config.learner.dedupe_window, config.checkpoints.every) == (100_000, 3600.0)
        site.settings |= {"space.views.x.map": "standardise", "space.warmup_objects": 30}
        return site

    def test_it_is_continued_with_a_window_that_knows_nothing_yet(self, tmp_path: Path) -> None:
        site = self.site(tmp_path)
        old = site.newest()
        assert site.learn() == EX_OK
        new = site.newest()
        assert new.parent == old.number
        entries = {"control": "known"}, times(86_400_000), RACE
        assert new.schedule == (dedupe(100_000), *entries, (0, 31, 43))
        assert new.counters["records"] == 43
        assert counted(site)["duplicate"] == 1  # of what was learned before, no id was kept
        with closing(open_source(site.address)) as source:
            source.assign({0: 31})
            site.feed(source.poll(6, 1.0).values)
        site.learn()
        assert site.newest().schedule == ((0, 43, 49),)
        assert counted(site)["duplicate"] == 7

    def test_its_versions_replay_from_any_to_any(self, tmp_path: Path) -> None:
        site = self.site(tmp_path)
        site.learn()
        for start in (0, 4, 6):
            with closing(open_source(site.address)) as source:
                result = replay(site.versions, source, None, start, site.newest().number)
            assert result.difference is None
            assert result.equal or result.other_runtime

    def test_no_window_stays_possible(self, tmp_path: Path) -> None:
        site = self.site(tmp_path)
        site.learn(learner__dedupe_window=0)
        assert site.newest().schedule == ({"control": "known"}, times(86_400_000), RACE, (0, 31, 43))
        assert counted(site)["duplicate"] == 0


def test_a_version_that_lost_its_window_is_refused(site: Site) -> None:
    from tests.daemon.learn.altered import alter_state

    learned(site, make_events(3))

    def change(arrays: dict[str, np.ndarray]) -> None:
        for name in [name for name in arrays if name.startswith("dedupe.")]:
            del arrays[name]

    alter_state(site, site.newest().number, change)
    sink = open_sink(site.address)
    sink.send([OutRecord(make_events(1, seed=1)[0])])
    sink.close()
    with pytest.raises(Exception, match="lacks the window"):
        site.learn(LearnOptions(exit_when_caught_up=True))
