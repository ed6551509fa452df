"""What keeps the learner from going on, read from the ledger."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from checkpoints.entries import LedgerEntry, stop_in_force
from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from daemon.learn.loop import Halts, PoisonGate


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
