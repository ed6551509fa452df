"""Segments, cuts, bases and breaks: what is told is what happened, or it is told that something is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemon.learn.steplog import journal
from daemon.learn.steplog import segments as assembling
from daemon.learn.steplog.journal import ByteAllowance, Journal, Written
from daemon.learn.steplog.segments import AppliedBatch, Captured, Durable
from learners import Oasis, OasisConfig
from streams.steps.segment import GENESIS, QUEUE, SINK, Base, Body, ChainPosition, RankOneSteps, Segment
from tests.learners.examples import triplets

from .following import segments, step_batch

DIM = 6
ROOMY = 1 << 20
PLENTY = 1 << 30
MINE = "e" * 32
PLACE, BASE = ChainPosition(2, 0, 4, MINE), Durable(4, 0, "0" * 32, "f" * 32)


class Bench:
    """A learner whose batches go to a journal, and everything that the journal wrote."""

    def __init__(
        self,
        kind: str = "dense",
        rate: int = PLENTY,
        room: int = ROOMY,
        between: int | None = None,
        **config: object,
    ) -> None:
        self.learner = Oasis(DIM, OasisConfig(**config))  # type: ignore[arg-type]
        self.kind, self.records, self.seed = kind, 0, 0
        self.journal = Journal(
            PLACE, BASE, DIM, room, ByteAllowance(rate, 0.0, between), taken=Oasis(DIM).taken
        )
        self.written: list[Written] = [self.journal.begin()]

    def batch(self, events: int) -> AppliedBatch:
        """Learn a batch; one record more than events, as if one of them were poison."""
        self.seed += 1
        batch = triplets(self.seed, events, DIM, self.kind)
        info = self.learner.learn_many(batch)
        first, self.records = self.records, self.records + events + 1
        times = np.arange(events, dtype=np.int64) + 100 * self.seed
        return AppliedBatch(first, self.records, 100 * self.seed, batch, info, times)

    def apply(self, *events: int, now: float = 0.0) -> None:
        for count in events:
            self.written += self.journal.take(self.batch(count), now)

    def capture(self) -> None:
        self.written += self.journal.take(Captured(self.records, 1), 0.0)

    def durable(self, number: int, records: int | None = None) -> None:
        at = self.records if records is None else records
        self.written += self.journal.take(Durable(number, at, "1" * 32, MINE), 0.0)

    def told(self) -> list[Segment]:
        """What a reader hears, the chain checked."""
        return list(segments(value for one in self.written for value in one.records))

    def bodies(self) -> list[Body]:
        return [segment.body for segment in self.told()]


def summary(bodies: Sequence[Body]) -> list[object]:
    def one(body: Body) -> object:
        if isinstance(body, RankOneSteps):
            return body.first, body.last, body.cut
        return f"base {body.number}" if isinstance(body, Base) else f"break {body.reason}"

    return [one(body) for body in bodies]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@given(
    plan=st.lists(st.integers(0, 9) | st.sampled_from(["capture", "flush"]), max_size=12),
    piece=st.sampled_from([1, 200, 1 << 20]),
    config=st.sampled_from([{}, {"symmetric": "online"}, {"psd_every": 5}]),
)
@example(plan=[3, 9, 3], piece=1 << 20, config={"psd_every": 5})
@example(plan=[1, 9], piece=400, config={})
@settings(max_examples=60, deadline=None)
def test_replaying_what_is_told_gives_the_learners_matrix(
    kind: str, plan: list, piece: int, config: dict
) -> None:
    before, assembling.SEGMENT_BYTES, journal.SEGMENT_BYTES = assembling.SEGMENT_BYTES, piece, piece
    try:
        bench = Bench(kind, **config)
        cuts, W_at, times = [], {}, []
        for what in plan:
            if what == "capture":
                bench.capture()
                cuts.append((bench.records, bench.learner.W.tobytes()))
            elif what == "flush":
                bench.written += bench.journal.flush()
            else:
                times += range(100 * (bench.seed + 1), 100 * (bench.seed + 1) + what)
                bench.apply(what)
                W_at[bench.records] = bench.learner.W.tobytes()
        bench.written += bench.journal.flush()
    finally:
        assembling.SEGMENT_BYTES = journal.SEGMENT_BYTES = before
    copy, at, found = Oasis(DIM, bench.learner.config), 0, []
    for body in bench.bodies()[1:]:
        assert isinstance(body, RankOneSteps)
        assert body.first == at
        at = body.last
        copy.replay(step_batch(body))
        if body.last > body.first:
            assert copy.W.tobytes() == W_at[body.last], "half of the next record is in it"
        if body.cut:
            found.append((body.last, copy.W.tobytes()))
    assert copy.W.tobytes() == bench.learner.W.tobytes()
    assert found == cuts
    assert [time for body in bench.bodies()[1:] for time in body.timestamps] == times, "each once"
    assert at == bench.records


def test_segment_0_is_the_version_the_writer_begins_from() -> None:
    (segment,) = Bench().told()
    assert (segment.place.epoch, segment.place.seq, segment.place.run) == (2, 0, 4)
    assert segment.place.writer == MINE
    assert segment.body == Base(4, 0, GENESIS, "0" * 32, BASE.writer)


def test_event_times_are_told_once_and_only_of_events_that_were_not_rejected() -> None:
    bench = Bench()
    batch = bench.batch(5)
    batch.info.outcome[1] = 3
    batch.info.tau[1] = 0
    bench.written += bench.journal.take(batch, 0.0)
    bench.apply(3)
    bench.written += bench.journal.flush()
    (steps,) = [body for body in bench.bodies() if isinstance(body, RankOneSteps)]
    assert steps.timestamps.tolist() == [100, 102, 103, 104, 200, 201, 202]
    assert (steps.first, steps.last, steps.watermark) == (0, 10, 200)


def test_a_capture_ends_its_segment_and_a_durable_version_is_told_with_the_chain_there() -> None:
    bench = Bench()
    bench.apply(3)
    bench.capture()
    bench.apply(2)
    bench.durable(5, records=4)
    bench.capture()
    bench.capture()
    bench.durable(6)
    assert summary(bench.bodies()) == [
        "base 4", (0, 4, True), (4, 7, False), "base 5", (7, 7, True), (7, 7, True), "base 6",
    ]  # fmt: skip
    told = bench.told()
    assert told[3].body.chain == told[1].after  # type: ignore[union-attr]
    assert told[6].body.chain == told[5].after  # type: ignore[union-attr]


def test_a_version_that_was_never_cut_is_not_told() -> None:
    bench = Bench()
    bench.apply(3)
    bench.durable(5)
    assert summary(bench.bodies()) == ["base 4"]


@pytest.mark.parametrize("reason", [QUEUE, SINK])
def test_a_missing_batch_is_a_break_until_the_next_capture(reason: str) -> None:
    bench = Bench()
    bench.apply(3)
    bench.batch(2)  # lost on the way
    bench.journal.lost = reason
    bench.apply(2, 2)
    assert not bench.journal.whole
    bench.capture()
    assert bench.journal.whole
    bench.apply(1)
    bench.written += bench.journal.flush()
    assert summary(bench.bodies()) == [
        "base 4",
        (0, 4, False),
        f"break {reason}",
        (13, 13, True),
        (13, 15, False),
    ]
    assert bench.bodies()[2].records == 4  # type: ignore[union-attr]
    assert bench.journal.lost == QUEUE


def test_a_missing_batch_right_before_a_capture_is_a_break_too() -> None:
    bench = Bench()
    bench.apply(3)
    bench.batch(2)
    bench.capture()
    assert summary(bench.bodies()) == ["base 4", (0, 4, False), "break queue", (7, 7, True)]


def test_above_the_rate_steps_are_left_out() -> None:
    bench = Bench(rate=1)
    bench.apply(9, now=0.0)  # a full bucket lets any batch go
    bench.apply(9, now=1.0)
    bench.apply(9, now=2.0)
    bench.capture()
    assert summary(bench.bodies()) == ["base 4", (0, 10, False), "break rate", (30, 30, True)]


def test_between_two_versions_no_more_than_so_much_is_told() -> None:
    bench = Bench(between=300)
    for _ in range(4):
        bench.apply(3)
    bench.capture()
    bench.apply(3)
    bench.capture()
    bench.durable(5)
    bench.apply(3)
    bench.written += bench.journal.flush()
    assert summary(bench.bodies()) == [
        "base 4", (0, 4, False), "break rate", (16, 16, True), "break rate", (20, 20, True), "base 5",
        (20, 24, False),
    ]  # fmt: skip


def test_what_the_log_refuses_is_taken_back_and_the_chain_goes_on_before_it() -> None:
    bench = Bench()
    bench.apply(3)
    bench.capture()
    refused = bench.written.pop()
    bench.written += bench.journal.unwritten(refused)
    bench.durable(5)
    bench.apply(2)
    bench.capture()
    assert summary(bench.bodies()) == ["base 4", "break error", (7, 7, True)]


def test_a_segment_with_too_many_parts_is_a_break_and_its_cut_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.apply(9)
    monkeypatch.setattr("streams.steps.codec.MAX_SEGMENT_BYTES", 100)
    bench.capture()
    bench.durable(5)
    assert summary(bench.bodies()) == ["base 4", "break error", (10, 10, True), "base 5"]
