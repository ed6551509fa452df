"""A replica of a merged version takes the steps of each shard, from its version in the merged one on."""

from __future__ import annotations

import pytest

from daemon.replica.decide import Apply, Lost
from daemon.replica.shard_lines import ShardLines
from daemon.versions.shards import MergedPart, MergeRecord
from streams.steps.segment import GENESIS, Break
from tests.daemon.replica.test_line import Log, base, steps

A, B = "a" * 32, "b" * 32


def merged(*parts: tuple[int, int, str, int]) -> MergeRecord:
    """What a version holds: (shard, its version, its writer, its records there) of each."""
    return MergeRecord(
        2, tuple(MergedPart(k, version, "1" * 16, w, {"records": r}, "", 0, 0) for k, version, w, r in parts)
    )


@pytest.fixture
def lines() -> ShardLines:
    return ShardLines()


def begun(lines: ShardLines) -> tuple[Log, Log]:
    """Version 3 of 100 records, which holds 40 of shard 0 and 60 of shard 1; both logs stand there."""
    first, second = Log(lines, 0, 7, A), Log(lines, 0, 9, B)
    lines.begin(3, 100, merged((0, 7, A, 40), (1, 9, B, 60)))
    for log, number, records in ((first, 7, 40), (second, 9, 60)):
        log(base(number, records, GENESIS, "x", log.writer))
    return first, second


def test_steps_of_all_shards_are_taken_and_counted(lines: ShardLines) -> None:
    first, second = begun(lines)
    assert lines.joined
    assert first(steps(40, 43)) == Apply(steps_of(first), 103, True)
    assert second(steps(60, 65)) == Apply(steps_of(second), 108, True)
    assert first(steps(43, 44, cut=True)).records == 109


def steps_of(log: Log) -> object:
    """The last body that a log was given: it compares by identity."""
    return log.last


def test_where_one_ends_within_a_record_nothing_is_whole(lines: ShardLines) -> None:
    first, second = begun(lines)
    assert not first(steps(40, 40, taken=2)).whole
    assert not second(steps(60, 61)).whole
    assert first(steps(40, 41, taken=1)).whole


def test_a_shard_that_leaves_steps_out_is_left_out_and_the_others_go_on(lines: ShardLines) -> None:
    first, second = begun(lines)
    assert lines.joined
    assert first(Break(40, "rate")) is None
    assert first(steps(44, 45)) is None
    assert second(steps(60, 62)).records == 102


def test_nothing_is_compared_at_a_cut(lines: ShardLines) -> None:
    first, _ = begun(lines)
    assert not first(steps(40, 43, cut=True)).compares
    assert first(base(8, 43, first.chain, "another digest", A)) is None


def test_a_shard_that_begins_again_from_an_earlier_state_is_followed_after_a_reload(
    lines: ShardLines,
) -> None:
    first, _ = begun(lines)
    first(steps(40, 43, cut=True))
    first(base(8, 43, first.chain, "x", A))
    first(steps(43, 50))  # learned, but in no version when it died
    again = Log(lines, 1, 8, "c" * 32)
    assert again(base(8, 43, GENESIS, "x", A)) == Lost("writer", 3)
    lines.begin(3, 100, merged((0, 7, A, 40), (1, 9, B, 60)))
    assert lines.joined
    replayed = Log(lines, 0, 7, A)  # the log is read again from the cut on
    replayed.seq, replayed.chain = 1, bytes([0, 0] + [ord(A[0])] * 30)
    assert replayed(steps(40, 43, cut=True)).records == 103
    assert replayed(base(8, 43, replayed.chain, "x", A)) is None
    assert replayed(steps(43, 50)) is None
    assert again(steps(43, 47)).records == 107


def test_a_new_merged_version_counts_from_what_it_holds(lines: ShardLines) -> None:
    first, second = begun(lines)
    first(steps(40, 43, cut=True))
    second(steps(60, 65))
    first(steps(43, 48))
    offset = lines.begin(4, 103, merged((0, 8, A, 43), (1, 9, B, 60)))
    assert offset is not None
    assert lines.joined


def test_what_was_in_answers_is_known_of_each_shard_by_itself(lines: ShardLines) -> None:
    """A merged version may hold more of one shard than was heard of it, which says nothing of the others."""
    first, second = begun(lines)
    assert first(steps(40, 43, cut=True)).again == 0
    assert second(steps(60, 65)).again == 0
    lines.mark_shown()
    lines.begin(4, 133, merged((0, 8, A, 73), (1, 9, B, 60)))
    lines.mark_shown()
    second.seq, second.chain = 1, bytes([0, 0] + [ord(B[0])] * 30)
    assert second(steps(60, 65)).again == 5
    assert second(steps(65, 70)).again == 0


def test_steps_that_were_taken_and_never_shown_are_new_when_they_come_again(lines: ShardLines) -> None:
    first, _ = begun(lines)
    first(steps(40, 43))
    lines.begin(3, 100, merged((0, 7, A, 40), (1, 9, B, 60)))
    first.seq, first.chain = 1, bytes([0, 0] + [ord(A[0])] * 30)
    assert first(steps(40, 43)).again == 0
