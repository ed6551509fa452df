"""Names for versions: a pure fold over the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checkpoints.ledger import LedgerEntry

LATEST = "latest"
MOVES = ("PROMOTE", "ROLLBACK")


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


def resolve(name: str, versions: Sequence[int], ledger: Iterable[LedgerEntry]) -> int | None:
    """The version that `name` means now: `latest`, an alias, or a version number written out.

    None when the name means nothing, or a version that is not in `versions`.
    """
    if name == LATEST:
        return max(versions, default=None)
    wanted = int(name) if name.isdecimal() else aliases(ledger).get(name)
    return wanted if wanted in versions else None
