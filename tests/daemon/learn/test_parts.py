"""Small parts: verdicts, dead letters, assembling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from checkpoints.aliases import stop_in_force
from checkpoints.ledger import Ledger, LedgerEntry
from checkpoints.local import LocalStore
from daemon.deadletters import ROOM_FOR_HEADERS, fitted, send_durably
from daemon.learn.halts import Halts
from daemon.learn.poisongate import PoisonGate
from daemon.learn.starting.warmup import Sample, usable
from daemon.objects.mapped import overlay
from learners.block import Block, DenseBlock, SparseBlock
from streams.deadletter import DeadLetter
from streams.decode import BatchDecoder
from streams.errors import StreamUnavailable
from streams.source import MAX_RECORD_BYTES, OutRecord, RecordBatch
from streams.space import SpaceSpec, ViewSpec
from tests.daemon.learn.conftest import DIM, make_events


@pytest.mark.parametrize(
    ("kinds", "stopped_at"),
    [
        ([], None),
        (["KEEP", "PROMOTE"], None),
        (["STOP"], 1),
        (["STOP", "RESUME"], None),
        (["STOP", "RESUME", "STOP", "ROLLBACK"], 3),
        (["RESUME", "STOP", "STOP"], 3),
    ],
)
def test_the_last_stop_or_resume_decides(kinds: list[str], stopped_at: int | None) -> None:
    entries = [LedgerEntry(n=n, kind=kind) for n, kind in enumerate(kinds, 1)]
    whole = stop_in_force(entries)
    assert (whole.n if whole else None) == stopped_at
    for cut in range(len(entries)):  # however the entries arrive
        assert stop_in_force(entries[cut:], stop_in_force(entries[:cut])) == whole


class FlakySink:
    """Refuses the first sends."""

    max_record_bytes = MAX_RECORD_BYTES

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.sent: list[OutRecord] = []

    def send(self, records: Sequence[OutRecord]) -> list[tuple[int, int]]:
        if self.refusals:
            self.refusals -= 1
            raise StreamUnavailable("busy")
        self.sent += records
        return []


def letter(value: bytes | None) -> DeadLetter:
    return DeadLetter("t", 0, 7, "not_msgpack", "why", value)


def test_dead_letters_are_sent_until_they_are_durable() -> None:
    sink: Any = FlakySink(2)
    waited: list[Exception] = []
    assert send_durably(sink, [letter(b"x")], lambda seconds, error: bool(waited.append(error)))
    assert (len(waited), len(sink.sent)) == (2, 1)


def test_giving_up_on_dead_letters_is_told() -> None:
    sink: Any = FlakySink(99)
    assert not send_durably(sink, [letter(b"x")], lambda seconds, error: True)
    assert sink.sent == []


def test_a_value_too_long_for_a_dead_letter_is_cut_and_says_so() -> None:
    whole, long = letter(b"x" * 1000), letter(bytes(MAX_RECORD_BYTES))
    assert fitted(whole, MAX_RECORD_BYTES) is whole
    cut = fitted(long, MAX_RECORD_BYTES)
    assert cut.value is not None
    assert len(cut.value) == MAX_RECORD_BYTES - ROOM_FOR_HEADERS
    assert "cut" in cut.detail
    assert fitted(whole, ROOM_FOR_HEADERS + 10).value == b"x" * 10


def sparse(rows: np.ndarray) -> SparseBlock:
    indptr = np.concatenate(([0], np.cumsum((rows != 0).sum(axis=1))))
    return SparseBlock(indptr, np.nonzero(rows)[1].astype(np.int32), rows[rows != 0], rows.shape[1])


def as_dense(block: Block) -> np.ndarray:
    return block.values if isinstance(block, DenseBlock) else block.checked_csr().toarray()


@pytest.mark.parametrize("make", [DenseBlock, sparse])
def test_overlay_takes_named_rows_from_the_catalog(make: Any) -> None:
    rng = np.random.default_rng(0)
    inline = (rng.random((5, 4)) * (rng.random((5, 4)) < 0.6)).astype(np.float32)
    catalog = rng.random((3, 4)).astype(np.float32)
    rows = np.array([-1, 2, -1, 0, 1], np.int32)
    expected = np.array([catalog[row] if row >= 0 else inline[i] for i, row in enumerate(rows)])
    assert np.array_equal(as_dense(overlay(make(inline), make(catalog), rows, rows >= 0)), expected)


@pytest.mark.parametrize(
    ("indices", "values", "good"),
    [
        ([0, 3], [1, 1], True),
        ([], [], True),
        ([3, 0], [1, 1], False),
        ([1, 1], [1, 1], False),
        ([0, 4], [1, 1], False),
        ([-1, 2], [1, 1], False),
        ([0, 3], [1, np.inf], False),
    ],
)
def test_rows_the_learner_would_refuse_are_left_out_of_the_sample(
    indices: list[int], values: list[float], good: bool
) -> None:
    pointers = np.array([0, len(indices)], np.int64)
    row = SparseBlock(pointers, np.array(indices, np.int32), np.array(values, np.float32), 4)
    assert usable(row) is good


@pytest.mark.parametrize("wanted", [1, 4, 7, 100])
def test_where_polls_end_leaves_no_trace_in_the_sample(wanted: int) -> None:
    space = SpaceSpec("default", (ViewSpec("x", "dense", DIM),))
    decoder, events = BatchDecoder(space, None, "t"), make_events(6)
    samples = []
    for size in (1, 4, 6):
        samples.append(Sample(wanted))
        for at in range(0, len(events), size):
            values = events[at : at + size]
            n = len(values)
            batch = RecordBatch(0, list(range(at, at + n)), [0] * n, values, [None] * n, [()] * n)
            samples[-1].add(decoder.decode(batch))
    assert {len(sample) for sample in samples} == {min(wanted, 18)}
    assert len({sample.blocks()["x"].values.tobytes() for sample in samples}) == 1


def test_a_damaged_verdict_is_one_warning_and_the_next_one_counts(tmp_path: Path) -> None:
    ledger = Ledger(LocalStore(tmp_path))
    for _ in range(2):
        ledger.append({"kind": "KEEP", "version": 0})
    ledger.append({"kind": "STOP", "version": 0, "reason": "patience"})
    damaged = sorted((tmp_path / "ledger").iterdir())[0]
    damaged.unlink()
    damaged.write_bytes(b"{}")
    gate, ticks = PoisonGate(0.5, 10), itertools.count()
    halts = Halts(Ledger(LocalStore(tmp_path)), gate, dict, lambda: float(next(ticks)), "one")
    with capture_logs() as lines:
        stops = [halts.in_force() for _ in range(3)]
    assert [stop is not None and stop.reason for stop in stops] == ["patience"] * 3
    assert [line["event"] for line in lines] == ["verdict passed over"]
