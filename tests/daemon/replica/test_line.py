"""Where a replica stands in the step log: each segment's meaning, without a log or a learner."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.replica.decide import REASONS, Apply, Lost, Relabel, WriterLine
from streams.event import DenseColumn
from streams.steps.segment import GENESIS, Base, Break, ChainPosition, RankOneSteps, Segment

D1, D2 = "1" * 32, "2" * 32
FIRST, FOREIGN = "a" * 32, "f" * 32


def taken(body):
    """Steps that are to be applied, and compared where a version was captured."""
    return Apply(body, body.last, True, body.cut)


def steps(first, last, cut=False, taken=0):
    column = DenseColumn(np.ones((taken, 2), np.float32))
    return RankOneSteps(
        first, last, None, np.zeros(0, np.int64), np.ones(taken, np.float32), column, column, cut
    )


def writer_of(epoch):
    return FIRST if epoch == 0 else f"{epoch}" * 32


def base(number, records, chain, digest, writer=FIRST):
    return Base(number, records, chain, digest, writer)


class Log:
    """Numbers and chains segments, and hands them to a line."""

    def __init__(self, line, epoch=0, run=0, writer=None):
        self.line, self.epoch, self.run, self.seq, self.chain, self.offset = line, epoch, run, 0, GENESIS, 0
        self.writer = writer or writer_of(epoch)

    def __call__(self, body, lose=False):
        self.last = body
        before, self.chain = self.chain, bytes([self.epoch, self.seq] + [ord(self.writer[0])] * 30)
        segment = Segment(
            ChainPosition(self.epoch, self.seq, self.run, self.writer), body, before, self.chain
        )
        self.seq, self.offset = self.seq + 1, self.offset + 1
        return None if lose else self.line.hear(segment, self.offset)


@pytest.fixture
def line():
    return WriterLine()


@pytest.fixture
def log(line):
    """Version 0 loaded and its writer's first segment heard."""
    made = Log(line)
    assert line.begin(0, 0, FIRST) is None
    assert made(base(0, 0, GENESIS, D1)) is None
    assert line.joined
    return made


def test_steps_are_applied_in_turn(line, log):
    first, second = steps(0, 10), steps(10, 15)
    assert log(first) == taken(first)
    assert log(second) == taken(second)


def test_a_base_of_the_same_digest_relabels_and_another_digest_is_lost(line, log):
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    at = log.chain
    log(steps(10, 20))
    assert log(base(1, 10, at, D1)) == Relabel(1, 10)
    log(steps(20, 30, cut=True))
    line.at_cut(D1)
    assert log(base(2, 30, log.chain, D2)) == Lost("digest", 2)
    assert line.lost


def test_a_base_whose_cut_has_another_chain_is_lost(line, log):
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    assert log(base(1, 10, b"x" * 32, D1)) == Lost("chain", 1)


def test_what_is_missing_is_a_gap(line, log):
    log(steps(0, 10), lose=True)
    assert log(steps(10, 20)) == Lost("gap")
    assert log(steps(20, 30)) is None
    assert not line.joined


def test_steps_that_do_not_begin_where_the_last_ended_are_a_gap(line, log):
    log(steps(0, 10))
    assert log(steps(11, 20)) == Lost("gap")


def test_a_break_is_lost_until_a_version_is_loaded_and_its_cut_is_remembered(line, log):
    assert log(Break(0, "queue")) == Lost("break")
    log(steps(40, 50, cut=True))
    behind = log.offset
    assert log(base(1, 50, log.chain, D1)) is None
    assert line.begin(1, 50, FIRST) == behind
    assert line.joined


def test_a_cut_of_another_writer_is_not_the_versions(line, log):
    log(steps(0, 10, cut=True))
    assert line.begin(1, 10, FOREIGN) is None
    assert not line.joined


def test_the_newest_writer_that_began_from_the_version_is_joined(line, log):
    log(steps(0, 10, cut=True))
    newer = Log(line, epoch=4, run=1)
    newer(base(1, 10, GENESIS, D1))
    assert line.begin(1, 10, FIRST) == newer.offset
    body = steps(10, 12)
    assert newer(body) == taken(body)
    assert log(steps(10, 11)) is None, "the writer that was succeeded"


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (base(0, 0, GENESIS, D1), Lost("writer", 0)),
        (base(2, 10, GENESIS, D2), Lost("writer", 2)),
        (base(2, 10, GENESIS, D1), Relabel(2, 10)),
    ],
)
def test_another_writer_goes_on_from_its_own_version(line, log, origin, wanted):
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    assert Log(line, epoch=1, run=origin.number)(origin) == wanted


def test_another_writer_that_goes_back_behind_the_served_version_is_waited_for(line, log):
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    log(base(3, 10, log.chain, D1))
    assert Log(line, epoch=5, run=0)(base(0, 0, GENESIS, D1)) == Lost("writer", None)


def test_a_succeeded_writer_that_only_now_begins_to_tell_is_passed_by(line, log):
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    newer = Log(line, epoch=5, run=1)
    newer(base(1, 10, GENESIS, D1))
    late = Log(line, epoch=3, run=0)
    assert late(base(0, 0, GENESIS, D1)) is None
    body = steps(10, 12)
    assert newer(body) == taken(body)


def test_segments_sent_twice_are_passed_by(line, log):
    body = steps(0, 10)
    log(body)
    again = Segment(ChainPosition(0, 1, 0, FIRST), body, GENESIS, log.chain)
    assert line.hear(again, 9) is None
    more = steps(10, 11)
    assert log(more) == taken(more)


def test_a_successor_at_the_same_records_does_not_go_on_from_half_a_record(line, log):
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    log(base(1, 10, log.chain, D1))
    log(steps(10, 10, taken=1))  # and the writer dies
    assert Log(line, epoch=2, run=1)(base(1, 10, GENESIS, D1)) == Lost("writer", 1)


def test_a_successor_behind_a_whole_record_of_several_segments_is_joined(line, log):
    log(steps(0, 0, taken=1))
    log(steps(0, 10, taken=1))
    log(steps(10, 10, cut=True))
    line.at_cut(D1)
    assert Log(line, epoch=2, run=1)(base(1, 10, GENESIS, D1)) == Relabel(1, 10)


def test_a_cut_that_was_sent_twice_is_still_compared(line, log):
    cut, before = steps(0, 10, cut=True), log.chain
    log(cut)
    line.at_cut(D1)
    again = Segment(ChainPosition(0, 1, 0, FIRST), cut, before, log.chain)
    assert line.hear(again, 9) is None
    assert log(base(1, 10, log.chain, D1)) == Relabel(1, 10)


@pytest.mark.parametrize("body", [base(1, 10, D1.encode(), D1), steps(10, 12)])
def test_what_comes_behind_a_cut_that_was_not_heard_is_a_gap(line, log, body):
    line.begin(1, 10, FIRST)
    assert log(body) == Lost("gap"), "the cut is before, and what came after it"


@pytest.mark.parametrize("epoch", [0, 7])
def test_a_writer_of_another_folder_is_passed_by(line, log, epoch):
    other = Log(line, epoch, writer=FOREIGN)
    assert other(base(0, 0, GENESIS, D1, FOREIGN)) is None
    log(steps(0, 10, cut=True))
    line.at_cut(D1)
    at = log.chain
    for body in (steps(0, 10, cut=True), base(1, 10, at, D1, FOREIGN), steps(10, 11), Break(11, "rate")):
        assert other(body) is None
    log(steps(10, 12))
    assert log(base(1, 10, at, D1)) == Relabel(1, 10)
    line.begin(1, 10, FIRST)
    assert line.joined
    assert other(steps(11, 12)) is None


def test_the_cut_of_a_version_is_its_own_writers(line):
    other, mine = Log(line, writer=FOREIGN), Log(line)
    line.begin(0, 0, FIRST)
    other(base(0, 0, GENESIS, D1, FOREIGN))
    assert not line.joined
    mine(base(0, 0, GENESIS, D1))
    assert line.joined
    assert other(steps(0, 10)) is None
    successor = Log(line, epoch=3, run=0, writer="e" * 32)
    assert successor(base(0, 0, GENESIS, D1, FOREIGN)) is None, "of the other folder's version 0"


def test_every_reason_is_explained():
    for reason in ("gap", "chain", "digest", "writer", "break", "steps", "log"):
        assert REASONS[reason]
