"""What the verdicts amount to, as pure folds over the ledger: names for versions, and the stop in force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checkpoints.ledger import LedgerEntry

LATEST = "latest"
MOVES = ("PROMOTE", "ROLLBACK")
STOP = "STOP"
RESUME = "RESUME"
PAUSE = "pause"
"""Key of the measures that makes a STOP the learner's own pause, and a RESUME the end of a pause only."""


def aliases(entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """Every alias with the version it points at: the last PROMOTE or ROLLBACK that carries it.

    An entry whose version is None takes the alias away.
    """
    found: dict[str, int] = {}
    for entry in sorted(entries, key=lambda e: e.n):
        if entry.kind in MOVES and entry.alias is not None:
            found.pop(entry.alias, None)
            if entry.version is not None:
                found[entry.alias] = entry.version
    return found


def stop_in_force(entries: Iterable[LedgerEntry], before: LedgerEntry | None = None) -> LedgerEntry | None:
    """The STOP that no later RESUME has lifted; None when there is none. Pauses do not count.

    `before` is the one in force before `entries`, so that a reader of the ledger can fold what is new.
    """
    return _standing((entry for entry in entries if PAUSE not in entry.measures), before)


def pause_in_force(entries: Iterable[LedgerEntry], before: LedgerEntry | None = None) -> LedgerEntry | None:
    """The learner's own pause that was not lifted since; `before` as in `stop_in_force`.

    Pauses and early stops are two latches: neither is lifted by what lifts the other.
    """
    return _standing((entry for entry in entries if PAUSE in entry.measures), before)


def _standing(entries: Iterable[LedgerEntry], before: LedgerEntry | None) -> LedgerEntry | None:
    found = before
    for entry in sorted(entries, key=lambda e: e.n):
        if entry.kind in (STOP, RESUME):
            found = entry if entry.kind == STOP else None
    return found


def resolve(name: str, versions: Sequence[int], ledger: Iterable[LedgerEntry]) -> int | None:
    """The version that `name` means now: `latest`, an alias, or a version number written out.

    None when the name means nothing, or a version that is not in `versions`.
    """
    if name == LATEST:
        return max(versions, default=None)
    wanted = int(name) if name.isdecimal() else aliases(ledger).get(name)
    return wanted if wanted in versions else None
