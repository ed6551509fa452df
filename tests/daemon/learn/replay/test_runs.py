"""Runs of several partitions are read in any interleaving, with few seeks and bounded memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from daemon.exits import EX_TEMPFAIL, UserError
from daemon.learn.compatible import digests_at
from daemon.learn.replay.rerun import Runs
from streams.open import MemorySource, ensure_topic, open_sink, retain
from streams.source import UNKNOWN, OutRecord, RecordBatch, parse_address

PARTITIONS = 3
RECORDS = 3000


class CountedSource(MemorySource):
    """Counts its assignments and the polls that found nothing, and leaves out what a log may not have."""

    def __init__(self, name: str, missing: frozenset[tuple[int, int]] = frozenset()) -> None:
        super().__init__(name, "triplets")
        self.assigns = self.in_vain = 0
        self.missing = missing
        self.damaged: tuple[int, int] | None = None

    def assign(self, positions: Mapping[int, int], known: Mapping[int, str] = UNKNOWN) -> None:
        self.assigns += 1
        super().assign(positions, known)

    def poll(self, max_records: int, timeout_s: float) -> RecordBatch | None:
        while (batch := super().poll(max_records, 0.0)) is not None:
            if (batch.partition, batch.offsets[0]) == self.damaged:
                return RecordBatch(batch.partition, [batch.offsets[-1]], [0], [None], [None], [()], "damaged")
            kept = [i for i, o in enumerate(batch.offsets) if (batch.partition, o) not in self.missing]
            if kept:
                columns = (batch.offsets, batch.timestamps, batch.values, batch.keys, batch.headers)
                return RecordBatch(batch.partition, *([column[i] for i in kept] for column in columns))
        self.in_vain += 1
        return None


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A log in memory whose record values are `partition.offset`."""
    address = parse_address(f"memory:{tmp_path}")
    ensure_topic(address, PARTITIONS)
    with closing(open_sink(address)) as sink:
        for partition in range(PARTITIONS):
            values = (b"%d.%d" % (partition, offset) for offset in range(RECORDS))
            sink.send([OutRecord(value, partition=partition) for value in values])
    return str(tmp_path)


def values(runs: Runs, *run: int) -> list[bytes | None]:
    return [value for batch in runs.read(*run) for value in batch.values]


def tiny_runs(seed: int) -> list[tuple[int, int, int]]:
    rng, at, runs = random.Random(seed), [0] * PARTITIONS, []
    while any(offset < RECORDS for offset in at):
        partition = rng.choice([p for p in range(PARTITIONS) if at[p] < RECORDS])
        stop = min(RECORDS, at[partition] + rng.randint(1, 4))
        runs.append((partition, at[partition], stop))
        at[partition] = stop
    return runs


def test_thousands_of_tiny_runs_need_no_seek_each(name: str) -> None:
    source = CountedSource(name)
    runs = Runs(source)
    schedule = tiny_runs(1)
    assert len(schedule) > 2000
    for partition, start, stop in schedule:
        assert values(runs, partition, start, stop) == [b"%d.%d" % (partition, o) for o in range(start, stop)]
    assert source.assigns == PARTITIONS


@pytest.mark.parametrize("limit", [1, 2000])
def test_what_is_read_ahead_is_bounded(name: str, limit: int) -> None:
    """One partition is asked for to its end before the others: theirs must not pile up."""
    runs = Runs(CountedSource(name), limit)
    most = sum(len(values(runs, partition, 0, 10)) for partition in range(PARTITIONS)) - 30  # all are known
    for partition in range(PARTITIONS):
        for start in range(10, RECORDS, 10):
            expected = [b"%d.%d" % (partition, offset) for offset in range(start, start + 10)]
            assert values(runs, partition, start, start + 10) == expected
            most = max(most, runs._held)
    assert most <= limit + PARTITIONS * 64 * len(b"0.9999")  # and one poll of each


def test_runs_may_go_back_and_forth(name: str) -> None:
    runs = Runs(CountedSource(name))
    for start, stop in [(10, 20), (5, 15), (2000, 2001), (15, 16), (16, 30)]:
        assert values(runs, 1, start, stop) == [b"1.%d" % offset for offset in range(start, stop)]


def test_offsets_without_records_are_passed(name: str) -> None:
    """At the start, inside and at the end of a run, and at the end of the log."""
    missing = frozenset((0, offset) for offset in (0, 7, 8, 19, 20, *range(2990, RECORDS)))
    source = CountedSource(name, missing)
    runs = Runs(source)
    found = values(runs, 0, 0, 20) + values(runs, 0, 20, RECORDS)
    assert found == [b"0.%d" % offset for offset in range(RECORDS) if (0, offset) not in missing]
    assert source.in_vain == 0  # each would wait for records that may never come


def test_what_is_lost_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"offsets 3,000 up to 3,001 of partition 2: it ends before that"):
        values(Runs(CountedSource(name)), 2, 2999, RECORDS + 1)
    source = CountedSource(name)
    source.damaged = (1, 0)
    runs = Runs(source)
    assert len(values(runs, 0, 0, 500)) == 500
    with pytest.raises(UserError, match="partition 1: damaged"):
        values(runs, 1, 0, 5)
    retain(parse_address(f"memory:{name}"), None, 8 * 3 * 20)
    with pytest.raises(UserError, match=r"offsets 0 up to 5 of partition 0: .*has expired"):
        values(Runs(CountedSource(name)), 0, 0, 5)


def test_a_partition_that_expired_and_is_not_needed_stops_no_other(name: str) -> None:
    source = CountedSource(name)
    runs = Runs(source, 500)
    assert len(values(runs, 0, 0, 5)) == len(values(runs, 1, 0, 5)) == 5
    retain(parse_address(f"memory:{name}"), None, 10**6, before={1: RECORDS})
    retain(parse_address(f"memory:{name}"), None, 1, before={1: RECORDS})
    assert len(values(runs, 0, 5, RECORDS)) == RECORDS - 5


def test_one_record_of_each_partition_is_found_in_few_turns(name: str) -> None:
    source = CountedSource(name)
    wanted = {0: 0, 1: 1500, 2: RECORDS - 1}
    expected = {p: sha256(b"%d.%d" % (p, offset)).hexdigest() for p, offset in wanted.items()}
    assert digests_at(source, wanted) == expected
    assert source.assigns == 1
    assert digests_at(source, {}) == {}


def test_an_offset_without_a_record_is_told_from_a_silent_partition(name: str) -> None:
    """Whether another record follows, or nothing does; and whatever the other partitions hold."""
    source = CountedSource(name, frozenset({(0, 7), (1, RECORDS - 2), (1, RECORDS - 1)}))
    found = digests_at(source, {0: 7, 1: RECORDS - 2, 2: 5})
    assert found == {0: None, 1: None, 2: sha256(b"2.5").hexdigest()}

    class Silent(CountedSource):
        def reached(self) -> dict[int, int]:
            return {**super().reached(), 1: RECORDS - 2}

    with pytest.raises(UserError, match="offset 2,998 of partition 1 could not be read") as told:
        digests_at(Silent(name, source.missing), {0: 7, 1: RECORDS - 2, 2: 5})
    assert told.value.code == EX_TEMPFAIL
