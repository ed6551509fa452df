"""`tripletd resume`, and the two latches it lifts: early stopping and the learner's own pause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpoints import Ledger, LedgerEntry, LocalStore, pause_in_force, stop_in_force
from daemon.cli import main
from daemon.exits import EX_OK
from daemon.look.overview import summary
from daemon.models.decide import resumptions
from daemon.validate.decide import FULL_CATALOG
from daemon.validate.ledger import fold

MARK = {"pause": "poison", "positions": {"0": 12}}
KINDS: dict[str, dict[str, Any]] = {
    "stop": {"kind": "STOP", "version": 4, "by": "validate", "reason": "patience"},
    "pause": {"kind": "STOP", "by": "learn", "reason": "poison", "measures": MARK},
    "resume": {"kind": "RESUME"},
    "unpause": {"kind": "RESUME", "measures": {"pause": 1}},
}


def entries(names: str) -> list[LedgerEntry]:
    return [LedgerEntry(n=n, **KINDS[name]) for n, name in enumerate(names.split(), 1)]


@pytest.mark.parametrize(
    ("names", "stopped", "paused"),
    [
        ("", None, None),
        ("pause", None, 1),
        ("stop pause", 1, 2),
        ("stop pause resume", None, 2),
        ("stop pause unpause", 1, None),
        ("pause unpause pause", None, 3),
        ("pause resume", None, 1),
    ],
)
def test_neither_latch_is_lifted_by_what_lifts_the_other(
    names: str, stopped: int | None, paused: int | None
) -> None:
    read = entries(names)
    stop, pause = stop_in_force(read), pause_in_force(read)
    assert (stop and stop.n, pause and pause.n) == (stopped, paused)
    for cut in range(len(read)):
        assert pause_in_force(read[cut:], pause_in_force(read[:cut])) == pause
    lifted = [*read, *(LedgerEntry(n=99 + n, **one.entry) for n, one in enumerate(resumptions(read, "why")))]
    assert stop_in_force(lifted) is pause_in_force(lifted) is None


def test_a_pause_and_its_end_leave_no_trace_in_the_history_of_judgements() -> None:
    reference = {"map_full": 0.2, "p10_full": 0.2}
    measures = {
        "decision_measure": "map_full",
        "map_full": 0.3,
        "p10_full": 0.3,
        "impressions": 9,
        "version_0": reference,
    }
    judged = [LedgerEntry(n=n, kind="KEEP", version=n, measures=measures) for n in (10, 20)]
    paused = [
        judged[0],
        LedgerEntry(n=11, **KINDS["pause"]),
        LedgerEntry(n=12, **KINDS["unpause"]),
        judged[1],
    ]
    assert fold(paused, FULL_CATALOG) == fold(judged, FULL_CATALOG)
    assert len(fold(paused, FULL_CATALOG).judged) == 2
    assert summary(paused[:2]).paused_by == "poison"


def test_resume_lifts_what_is_in_force_and_dry_run_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(LocalStore(tmp_path))
    for name in ("stop", "pause"):
        ledger.append(KINDS[name])
    where = ["--set", f"checkpoints.path={tmp_path}"]
    assert main(["resume", "--dry-run", *where]) == EX_OK
    assert "would lift the stop by validate: patience\nwould lift the pause by learn: poison" in (
        capsys.readouterr().out
    )
    assert len(ledger.entries()) == 2
    assert main(["resume", "--json", "--reason", "fixed", *where]) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert [entry["n"] for entry in told["written"]] == [3, 4]
    assert stop_in_force(ledger.entries()) is pause_in_force(ledger.entries()) is None
    assert {entry.reason for entry in ledger.entries(after=2)} == {"fixed"}
    assert main(["resume", *where]) == EX_OK
    assert capsys.readouterr().out == "nothing is stopped or paused\n"
    assert len(ledger.entries()) == 4
