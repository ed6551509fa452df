"""What a learner waits for in the ledger, and the entries that resume it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from checkpoints import PAUSE, LedgerEntry, pause_in_force, stop_in_force

BY = "tripletd resume"


@dataclass(frozen=True, slots=True)
class Resumption:
    """One STOP in force (`stop`) and the RESUME that lifts it (`entry`, for `Ledger.append`)."""

    stop: LedgerEntry
    entry: dict[str, Any]

    @property
    def is_pause(self) -> bool:
        """Whether it is the learner's own pause and not an early stop."""
        return PAUSE in self.stop.measures


def resumptions(entries: Sequence[LedgerEntry], reason: str) -> list[Resumption]:
    """What is in force, each with its RESUME: an early stop and a pause are lifted one by one."""
    found = []
    stop, pause = stop_in_force(entries), pause_in_force(entries)
    if stop is not None:
        found.append(
            Resumption(stop, {"kind": "RESUME", "by": BY, "reason": reason, "version": stop.version})
        )
    if pause is not None:
        entry = {"kind": "RESUME", "by": BY, "reason": reason, "measures": {PAUSE: pause.n}}
        found.append(Resumption(pause, entry))
    return found
