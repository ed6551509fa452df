"""The learn role in one process: what it writes, what it refuses, how it stops."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from daemon import deadletters
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_OK, EX_USAGE, UserError
from daemon.learn import role
from daemon.learn.replaying.replay import replay
from daemon.learn.starting.inputs import open_inputs
from daemon.learn.starting.options import LearnOptions
from daemon.learn.writing import describe
from daemon.telemetry import LearnMetrics
from learners.batch import TripletBatch
from learners.block import DenseBlock
from learners.oasis import Oasis, OasisConfig
from streams.address import Address
from streams.catalog import Catalog, save_catalog
from streams.codec import decode_event, encode_event
from streams.deadletter import parse_dead_letter
from streams.errors import LogMismatch
from streams.event import Event, ObjectRef
from streams.memory import MemorySource
from streams.open import delete_topic, open_sink, open_source, retain
from streams.source import UNKNOWN, OutRecord
from streams.space import SpaceSpec, ViewSpec
from streams.vectors import DenseColumn
from tests.daemon.learn.conftest import DIM, Site, make_events, with_nan


def test_versions_begin_untrained_and_end_at_the_end_of_the_stream(site: Site) -> None:
    events = make_events(50)
    site.feed(events)
    assert site.learn() == EX_OK
    first, last = (site.versions.load(number) for number in (0, site.newest().number))
    assert np.array_equal(first.arrays["W"], np.eye(DIM, dtype=np.float32))
    assert first.manifest.positions[0].next_offset == 0
    assert last.manifest.positions[0].next_offset == last.manifest.counters["records"] == 50
    assert last.manifest.schedule == ((0, 0, 50),)
    assert last.manifest.watermark == 1049
    learner = Oasis(DIM, OasisConfig(C=0.1))
    triplets = [decode_event(event) for event in events]
    blocks = [
        DenseBlock(np.stack([getattr(t, role).x for t in triplets]))
        for role in ("query", "clicked", "skipped")
    ]
    learner.learn_many(TripletBatch(*blocks))
    assert np.array_equal(last.arrays["W"], learner.W)


def test_a_second_run_with_nothing_new_writes_no_version(site: Site) -> None:
    site.feed(make_events(5))
    site.learn()
    before = site.versions.versions()
    assert site.learn() == EX_OK
    assert site.versions.versions() == before


@pytest.mark.parametrize("poll_records", [1, 7, 500])
def test_versions_fall_on_exact_counts(site: Site, poll_records: int) -> None:
    site.feed(make_events(95))
    site.learn(checkpoints__every_events=10, stream__poll_records=poll_records)
    counts = [site.versions.manifest(n).counters.get("records", 0) for n in site.versions.versions()]
    assert all(count % 10 == 0 for count in counts[:-1])
    assert counts[-1] == 95


def test_poison_leaves_no_trace_but_its_dead_letters(new_site: Callable[..., Site]) -> None:
    clean, mixed = new_site(), new_site()
    events = make_events(40)
    clean.feed(events)
    clean.learn()
    bad = {3: b"\xc1", 10: None, 11: with_nan(make_events(1, seed=9)[0]), 30: b""}
    records = list(events)
    for place, value in bad.items():
        records.insert(place, value)
    mixed.feed(records)
    mixed.learn(checkpoints__every_events=4)
    assert np.array_equal(
        mixed.versions.load(mixed.newest().number).arrays["W"],
        clean.versions.load(clean.newest().number).arrays["W"],
    )
    assert {(letter.offset, letter.value) for letter in mixed.dead()} == set(bad.items())
    counters = mixed.newest().counters
    assert (counters["poison"], counters["rejected"]) == (3, 1)
    assert counters["rejected.not_finite"] == counters["poison.null_value"] == 1


def test_dead_letters_are_durable_before_any_version_passes_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = []

    class LateSink:
        """Gives a version that was captured too early all the time it needs to become durable."""

        max_record_bytes = 1 << 20

        def __init__(self, address: Address) -> None:
            self._sink = open_sink(address)

        def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
            time.sleep(0.2)
            reached = site.newest().positions[0].next_offset
            letters = [parse_dead_letter(record.value, record.headers) for record in records]
            passed.extend(letter.offset for letter in letters if letter.offset < reached)
            return self._sink.send(records)

        def close(self) -> None:
            self._sink.close()

    records = make_events(30)
    records[4], records[13], records[22] = b"\xc1", with_nan(records[13]), b"\xc1"
    site.feed(records)
    monkeypatch.setattr(deadletters, "open_sink", LateSink)
    site.learn(checkpoints__every_events=5, stream__poll_records=5)
    assert [letter.offset for letter in site.dead()] == [4, 13, 22]
    assert passed == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learner__C": 0.2}, "learner.C"),
        ({"learner__psd_every": 7}, "learner.psd_every"),
        ({"space__id": "other"}, "space.id"),
        ({"space__views__x__map": "unit"}, "learner.views"),
        ({"stream__max_record_bytes": "2KiB"}, "learner.max_record_bytes"),
    ],
)
def test_other_settings_are_refused_by_name(site: Site, change: dict[str, object], named: str) -> None:
    site.feed(make_events(5))
    site.learn()
    before = site.versions.store.list()
    with pytest.raises(UserError, match=named) as refused:
        site.learn(**change)
    assert refused.value.code == EX_CONFIG
    assert site.versions.store.list() == before  # not even a claim


@pytest.mark.parametrize(
    "options",
    [LearnOptions(restart_from=99), LearnOptions(restart_from=0, start='offset={"0": 99}'), LearnOptions()],
    ids=["no such version", "no such offset", "expired records"],
)
def test_a_mistaken_start_stops_no_running_learner(site: Site, options: LearnOptions) -> None:
    site.feed(make_events(5))
    site.learn()
    if options.restart_from is None:
        site.feed(make_events(20, seed=1))
        retain(site.address, max_age_s=None, max_bytes=1)
    before = site.versions.store.list()
    with pytest.raises(UserError):
        site.learn(options)
    assert site.versions.store.list() == before  # not even a claim


def test_poll_sizes_leave_no_trace_whatever_the_events(new_site: Callable[..., Site]) -> None:
    """Weights, objects by id beside objects with features, poison, refused numbers, projections."""
    rng, spec = np.random.default_rng(5), SpaceSpec("default", (ViewSpec("x", "dense", DIM),))
    catalog = Catalog(list("abcd"), {"x": DenseColumn(rng.standard_normal((4, DIM)).astype("f4"))}, spec)
    records = []
    for n in range(120):
        objects = [
            ObjectRef(id="abcd"[rng.integers(4)])
            if rng.random() < 0.5
            else ObjectRef(x=rng.standard_normal(DIM).astype("f4"))
            for _ in range(3)
        ]
        weight = float(rng.choice([0.25, 0.5, 1.0, 7.0]))
        records.append(encode_event(Event(f"e{n}", int(rng.integers(10**6)), *objects, weight=weight)))
    records[20], records[51] = b"\xc1", with_nan(make_events(1)[0])
    ends = []
    for poll_records in (1, 7, 500):
        site = new_site()
        save_catalog(catalog, str(site.folder / "catalog.safetensors"))
        changes = {"catalog__path": str(site.folder / "catalog.safetensors"), "learner__psd_every": 13}
        site.feed(records)
        site.learn(**changes, stream__poll_records=poll_records, space__views__x__map="standardise")
        end = site.newest()
        ends.append((end.state_hash, end.counters, end.watermark, end.positions))
        with closing(open_source(site.address)) as source:
            assert replay(site.versions, source, catalog, 0, end.number).equal
    assert ends[0] == ends[1] == ends[2]
    by_hand, unweighted = new_site(), [record for n, record in enumerate(records) if n not in (20, 51)]
    by_hand.feed([encode_event(replace(decode_event(record), weight=1.0)) for record in unweighted])
    by_hand.learn(**changes, space__views__x__map="standardise")
    assert by_hand.newest().state_hash != ends[0][0]


def test_going_on_where_bits_may_differ_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.feed(make_events(5))
    site.learn()
    with capture_logs() as same:
        site.learn()
    monkeypatch.setattr(describe, "CPU_LEVEL", "another")
    with capture_logs() as other:
        site.learn()
    assert not [line for line in same if "same bits" in line["event"]]
    assert [line["now"]["cpu_level"] for line in other if "same bits" in line["event"]] == ["another"]


def test_another_catalog_is_refused(site: Site) -> None:
    spec = SpaceSpec("default", (ViewSpec("x", "dense", DIM),))
    paths = []
    for seed in (1, 2):
        values = np.random.default_rng(seed).standard_normal((4, DIM)).astype(np.float32)
        paths.append(str(site.folder / f"catalog{seed}.safetensors"))
        save_catalog(Catalog(list("abcd"), {"x": DenseColumn(values)}, spec), paths[-1])
    by_id = [encode_event(Event(f"e{n}", n, *(ObjectRef(id=name) for name in "abc"))) for n in range(3)]
    unknown = encode_event(Event("u", 1, ObjectRef(id="a"), ObjectRef(id="nobody"), ObjectRef(id="b")))
    site.feed([*by_id, unknown, *make_events(3)])
    assert site.learn(catalog__path=paths[0]) == EX_OK
    counters = site.newest().counters
    assert counters["updated"] + counters["passive"] == 6
    assert [letter.reason for letter in site.dead()] == ["unknown_object"]
    with pytest.raises(UserError, match="catalog") as refused:
        site.learn(catalog__path=paths[1])
    assert refused.value.code == EX_CONFIG


def test_a_recreated_topic_is_refused(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    site.learn()
    delete_topic(site.address)
    site.feed(make_events(5))
    with pytest.raises(UserError, match="topic_id") as refused:
        site.learn()
    assert refused.value.code == EX_DATAERR


def test_no_reader_opens_another_topic_than_the_start_did(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    with ExitStack() as stack:
        inputs = open_inputs(stack, site.config())
        inputs.open_reader().close()
        delete_topic(site.address)
        site.feed(make_events(5, seed=1))
        with pytest.raises(LogMismatch, match="re-created"):
            inputs.open_reader()


def test_what_was_learned_last_is_known_to_the_reader(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make_events(5)
    site.feed(events)
    site.learn()
    known = []
    real = MemorySource.assign

    def assign(self: MemorySource, positions: Any, known_now: Any = UNKNOWN) -> None:
        known.append((dict(positions), dict(known_now)))
        real(self, positions, known_now)

    monkeypatch.setattr(MemorySource, "assign", assign)
    site.learn()
    assert ({0: 5}, {0: sha256(events[-1]).hexdigest()}) in known


def test_a_log_restored_from_an_older_copy_is_refused(new_site: Callable[..., Site]) -> None:
    site = new_site(log=True)
    site.feed(make_events(5))
    log = site.folder / "clicks.log"
    shutil.copy(log, site.folder / "copy")
    site.feed(make_events(3, seed=1))
    site.learn()
    for part in site.folder.glob("clicks.log*"):
        part.unlink()
    shutil.copy(site.folder / "copy", log)
    with pytest.raises(UserError, match="3 learned records are missing"):
        site.learn()
    site.feed(make_events(3, seed=2))
    with pytest.raises(UserError, match="another record") as refused:
        site.learn()
    assert refused.value.code == EX_DATAERR


def test_expired_records_need_an_accepted_gap(site: Site) -> None:
    site.feed(make_events(5))
    site.learn()
    site.feed(make_events(10, seed=1))
    retain(site.address, max_age_s=None, max_bytes=1)
    earliest = _bounds(site)[0]
    assert earliest > 5
    site.feed(make_events(4, seed=2))
    with pytest.raises(UserError, match=f"{earliest - 5} records") as refused:
        site.learn()
    assert refused.value.code == EX_DATAERR
    assert site.learn(LearnOptions(exit_when_caught_up=True, accept_gap=True)) == EX_OK
    schedule = site.newest().schedule
    assert schedule[0] == {"control": "gap", "partition": 0, "from": 5, "to": earliest}
    assert schedule[1][1:] == (earliest, 19)


def test_branches_and_seeks_are_recorded_and_replay(site: Site) -> None:
    site.feed(make_events(30))
    site.learn(checkpoints__every_events=10)
    versions = site.versions.versions()
    middle = next(n for n in versions if 0 < site.versions.manifest(n).counters.get("records", 0) < 30)
    options = LearnOptions(exit_when_caught_up=True, restart_from=middle, start='offset={"0": 5}', jump=True)
    assert site.learn(options) == EX_OK
    branch = site.newest()
    assert branch.parent == middle
    assert branch.schedule[0] == {"control": "branch", "from_version": middle, "start": options.start}
    assert branch.schedule[1]["control"] == "seek"
    assert branch.schedule[2] == (0, 5, 30)
    source = open_source(site.address)
    assert replay(site.versions, source, None, 0, branch.number).equal
    with pytest.raises(UserError, match="does not descend"):
        replay(site.versions, source, None, versions[-1], branch.number)
    source.close()


@pytest.mark.parametrize(
    ("start", "told"),
    [("earliest", "partition 0: repeat 10 records"), ("latest", "partition 0: skip 3 records")],
)
def test_another_start_than_the_versions_position_is_refused_unless_asked_for(
    site: Site, start: str, told: str
) -> None:
    site.feed(make_events(10))
    site.learn()
    site.feed(make_events(3, seed=1))
    before = site.versions.store.list()
    with pytest.raises(UserError, match=told) as refused:
        site.learn(LearnOptions(exit_when_caught_up=True, start=start))
    assert refused.value.code == EX_USAGE
    assert "--jump" in refused.value.remedy
    assert site.versions.store.list() == before
    assert site.learn(LearnOptions(exit_when_caught_up=True, start=start, jump=True)) == EX_OK
    assert site.newest().schedule[0]["control"] == "seek"


def test_a_start_that_is_the_versions_position_is_no_jump(site: Site) -> None:
    site.feed(make_events(10))
    site.learn()
    assert site.learn(LearnOptions(exit_when_caught_up=True, start="latest")) == EX_OK


def test_replay_tells_when_the_records_are_others(new_site: Callable[..., Site]) -> None:
    site, other = new_site(), new_site()
    site.feed(make_events(30))
    site.learn()
    other.feed(make_events(30, seed=9))
    source = open_source(other.address)
    assert not replay(site.versions, source, None, 0, site.newest().number).equal
    source.close()


def test_replay_passes_over_pruned_versions(site: Site) -> None:
    for seed in range(5):
        site.feed(make_events(10, seed))
        site.learn(checkpoints__keep=2)
    assert len(site.versions.versions()) == 3
    source = open_source(site.address)
    assert replay(site.versions, source, None, 0, site.newest().number).equal
    source.close()


def test_start_positions_of_an_empty_store(site: Site) -> None:
    site.feed(make_events(10))
    site.learn(LearnOptions(exit_when_caught_up=True, start='offset={"0": 6}'))
    assert site.newest().counters["records"] == 4
    with pytest.raises(UserError) as refused:
        site.learn(LearnOptions(start="yesterday"))
    assert refused.value.code == EX_USAGE


def test_maps_are_fitted_on_the_first_objects_and_frozen(new_site: Callable[..., Site]) -> None:
    fitted = []
    for poll_records in (1, 500):
        site = new_site()
        site.feed(make_events(60))
        changes = {
            "space__views__x__map": "whiten",
            "space__views__x__components": 4,
            "space__warmup_objects": 30,
        }
        site.learn(**changes, stream__poll_records=poll_records)
        site.feed(make_events(60, seed=3))
        site.learn(**changes, stream__poll_records=poll_records)
        ids = {site.versions.manifest(n).map["id"] for n in site.versions.versions()}
        assert len(ids) == 1
        fitted.append((ids.pop(), site.newest().state_hash))
    assert fitted[0] == fitted[1]


def test_nothing_to_fit_the_maps_on_is_said(site: Site) -> None:
    site.feed([])
    with pytest.raises(UserError, match="no usable object"):
        site.learn(space__views__x__map="standardise")
    assert site.versions.versions() == []


def test_stop_ends_a_batch_run_and_resume_goes_on_from_its_position(site: Site) -> None:
    site.feed(make_events(10))
    site.learn()
    site.ledger.append({"kind": "STOP", "by": "test", "reason": "patience"})
    site.feed(make_events(5, seed=1))
    before = site.newest()
    assert site.learn() == EX_OK
    assert site.newest() == before
    site.ledger.append({"kind": "RESUME", "by": "test"})
    assert site.learn() == EX_OK
    assert site.newest().schedule == ((0, 10, 15),)


def _bounds(site: Site) -> tuple[int, int]:
    source = open_source(site.address)
    try:
        return source.bounds()[0]
    finally:
        source.close()


def test_waiting_for_the_stream_is_counted_as_idle(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LearnMetrics] = []

    def metrics() -> LearnMetrics:
        made.append(LearnMetrics())
        return made[-1]

    monkeypatch.setattr(role, "LearnMetrics", metrics)
    site.feed(make_events(5))
    site.learn()  # ends once a wait found nothing more
    idle = made[0].registry.get_sample_value("tripletd_loop_seconds_total", {"phase": "idle"})
    assert idle is not None
    assert idle > 0
