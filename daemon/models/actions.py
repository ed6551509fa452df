"""Moving aliases: look at the ledger, decide purely, verify the version, write one entry; or refuse.

Every function takes the version store and the ledger of one checkpoint folder, writes one ledger entry
(create-only, right after the last one it has seen: the loser of a race looks again and decides anew), and
raises `Refused`, a UserError, with a remedy where it does not. Nothing else is touched: servers and
replicas follow by reading the ledger, and whoever has a version loaded holds a copy of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoints import STABLE, Damaged, KeyExists, Ledger, LedgerEntry, VersionStore, aliases
from daemon.exits import EX_TEMPFAIL
from daemon.models.decide import Move, Wish, decide
from daemon.models.look import look
from daemon.models.refusal import Refused, no_such_version
from daemon.models.verify import verify

ATTEMPTS = 32
"""Races lost in a row before giving up: each is an entry that somebody else has written meanwhile."""
ASKED = "asked for"


@dataclass(frozen=True, slots=True)
class Moved:
    """One alias moved, or what would be moved.

    kind: PROMOTE or ROLLBACK. before: the version it meant until then, after: the one from now on, None:
    none of its own (the name is taken away; `stable` then means `best`). entry: what was written, None on a
    dry run. notes: what the caller should tell beside, one line each.
    """

    kind: str
    alias: str
    before: int | None
    after: int | None
    by: str
    reason: str
    entry: LedgerEntry | None
    notes: tuple[str, ...] = ()


def promote(
    versions: VersionStore,
    ledger: Ledger,
    version: int | str,
    alias: str = STABLE,
    *,
    by: str,
    reason: str = ASKED,
    dry_run: bool = False,
) -> Moved:
    """Point `alias` (`stable`, or any name that is not reserved or pinned) at a version, by number or name.

    Refused: no such version, one that does not load (damaged, altered, another format), NaN or infinite
    numbers in it, another map, space or shape than what the alias serves now, the version it already points
    at, the reserved names `latest` and `best`, a pinned name. CheckpointError when the folder cannot be
    read or written.
    """
    return _move(versions, ledger, Wish("promote", alias, version), by=by, reason=reason, dry_run=dry_run)


def rollback(
    versions: VersionStore,
    ledger: Ledger,
    alias: str = STABLE,
    to: int | str | None = None,
    *,
    by: str,
    reason: str = ASKED,
    dry_run: bool = False,
) -> Moved:
    """Point `alias` at the version it pointed at before, or at `to`; the same refusals as `promote`.

    Two rollbacks in a row go back by two promotions. Below the first promotion of `stable` lies what it meant
    then: the best version of that time, or version 0.
    """
    return _move(versions, ledger, Wish("rollback", alias, to), by=by, reason=reason, dry_run=dry_run)


def pin(
    versions: VersionStore,
    ledger: Ledger,
    alias: str,
    version: int | str,
    *,
    by: str,
    reason: str = ASKED,
    dry_run: bool = False,
) -> Moved:
    """Give a version a name that keeps it and that no promotion moves; the same refusals as `promote`."""
    return _move(versions, ledger, Wish("pin", alias, version), by=by, reason=reason, dry_run=dry_run)


def unpin(
    versions: VersionStore,
    ledger: Ledger,
    alias: str,
    *,
    by: str,
    reason: str = ASKED,
    dry_run: bool = False,
) -> Moved:
    """Take a name away, pinned or promoted; its version stays until retention takes it.

    `stable` then means the best version again, and follows it.
    """
    return _move(versions, ledger, Wish("unpin", alias), by=by, reason=reason, dry_run=dry_run)


def _move(
    versions: VersionStore, ledger: Ledger, wish: Wish, *, by: str, reason: str, dry_run: bool
) -> Moved:
    verified: set[tuple[int, int | None]] = set()
    for _ in range(ATTEMPTS):
        seen = look(versions, ledger)
        move = decide(wish, seen)
        if move.after is not None and (move.after, move.before) not in verified:
            verify(versions, move.after, move.before, "to" if wish.verb == "rollback" else "version")
            verified.add((move.after, move.before))
        if dry_run:
            return _moved(move, by, reason, None)
        try:
            entry = ledger.append(_entry(move, by, reason), after=seen.last)
        except KeyExists:
            continue
        _check_still_there(versions, ledger, entry)
        return _moved(move, by, reason, entry)
    raise Refused(
        "busy",
        "alias",
        f"{ATTEMPTS} others wrote to the ledger first",
        "ask again; nothing was written",
        EX_TEMPFAIL,
    )


def _check_still_there(versions: VersionStore, ledger: Ledger, entry: LedgerEntry) -> None:
    """Retention may have taken the version between looking and writing: then the move is taken back."""
    if entry.version is None or entry.alias is None:
        return
    try:
        versions.manifest(entry.version)
    except Damaged:
        before = aliases(one for one in ledger.entries() if one.n < entry.n).get(entry.alias)
        back = {"kind": "ROLLBACK", "alias": entry.alias, "version": before, "by": entry.by}
        ledger.append({**back, "reason": f"version {entry.version} of entry {entry.n} was pruned just then"})
        raise no_such_version(entry.version, versions.versions()) from None


def _entry(move: Move, by: str, reason: str) -> dict[str, Any]:
    said = {"kind": move.kind, "version": move.after, "alias": move.alias}
    return {**said, "by": by, "reason": reason, "measures": dict(move.measures)}


def _moved(move: Move, by: str, reason: str, entry: LedgerEntry | None) -> Moved:
    return Moved(move.kind, move.alias, move.before, move.after, by, reason, entry, move.notes)
