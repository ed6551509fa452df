"""The learn role in one process: what it writes, how it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from daemon import dead_letters as deadletters
from daemon.exits import EX_OK
from daemon.learn import start as role
from daemon.learn.replay.replay import replay
from daemon.telemetry import LearnMetrics
from learners.block import DenseBlock, TripletBatch
from learners.oasis import Oasis, OasisConfig
from streams.catalog import Catalog
from streams.codec import decode_event, encode_event
from streams.event import DenseColumn, Event, ObjectRef, SpaceSpec, ViewSpec
from streams.open import open_sink, open_source
from streams.poison import parse_dead_letter
from streams.source import Address, OutRecord
from tests.daemon.learn.conftest import DIM, Site, make_events, with_nan
from tests.harness.catalog_files import save_catalog


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


def test_a_log_that_is_learned_in_one_go_has_versions_on_the_way(site: Site) -> None:
    site.feed(make_events(9_500))
    site.learn(stream__poll_records=3_000)
    counts = [site.versions.manifest(n).counters.get("records", 0) for n in site.versions.versions()]
    assert counts == [0, 4_000, 8_000, 9_500]


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


def test_the_first_page_after_a_start_tells_where_learning_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = metrics_of(monkeypatch)
    site.feed(make_events(15))
    site.learn()
    site.learn()  # which learns nothing
    shown = made[1].registry.get_sample_value
    newest = site.newest()
    assert shown("tripletd_version") == newest.number > 0
    assert shown("tripletd_watermark_seconds") == newest.watermark / 1000 > 0
    norm = np.linalg.norm(site.versions.load(newest.number).arrays["W"])
    assert shown("tripletd_weight_norm") == pytest.approx(norm)


def metrics_of(monkeypatch: pytest.MonkeyPatch) -> list[LearnMetrics]:
    """What the learners to come will show, one after the other."""
    made: list[LearnMetrics] = []

    def metrics() -> LearnMetrics:
        made.append(LearnMetrics())
        return made[-1]

    monkeypatch.setattr(role, "LearnMetrics", metrics)
    return made


def test_waiting_for_the_stream_is_counted_as_idle(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = metrics_of(monkeypatch)
    site.feed(make_events(5))
    site.learn()  # ends once a wait found nothing more
    idle = made[0].registry.get_sample_value("tripletd_loop_seconds_total", {"phase": "idle"})
    assert idle is not None
    assert idle > 0
