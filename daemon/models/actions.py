"""Moving aliases: look at the ledger, decide purely, verify the version, write one entry; or refuse.

Every function takes the version store and the ledger of one checkpoint folder, writes at most one ledger entry
(create-only; the loser of a race looks again and decides anew), and raises UserError with a remedy where it
refuses. Nothing else is touched: servers and replicas follow by reading the ledger, and whoever has a version
loaded holds a copy of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints import STABLE, Ledger, LedgerEntry, VersionStore


@dataclass(frozen=True, slots=True)
class Moved:
    """One alias moved, or what would be moved.

    before: the version it meant until then, after: the one from now on, None: none (the name is taken away;
    `stable` then falls back to `best`). entry: what was written, None on a dry run. notes: what the caller
    should tell beside, one line each (for example that another name may be in doubt).
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
    reason: str = "asked for",
    dry_run: bool = False,
) -> Moved:
    """Point `alias` (`stable`, or any name that is not reserved or pinned) at a version, by number or name.

    Refused with a UserError: no such version, one that does not load (damaged, altered, another format), NaN
    or infinite numbers in it, another map, space or shape than what the alias serves now, the version it
    already points at, the reserved names `latest` and `best`, a pinned name.
    """
    raise NotImplementedError


def rollback(
    versions: VersionStore,
    ledger: Ledger,
    alias: str = STABLE,
    to: int | str | None = None,
    *,
    by: str,
    reason: str = "asked for",
    dry_run: bool = False,
) -> Moved:
    """Point `alias` at the version it pointed at before, or at `to`; the same refusals as `promote`.

    Two rollbacks in a row go back by two promotions. Below the first promotion of `stable` lies what it meant
    then: the best version of that time, or version 0.
    """
    raise NotImplementedError


def pin(
    versions: VersionStore,
    ledger: Ledger,
    alias: str,
    version: int | str,
    *,
    by: str,
    reason: str = "asked for",
    dry_run: bool = False,
) -> Moved:
    """Give a version a name that keeps it from retention and that no promotion moves; refusals as `promote`."""
    raise NotImplementedError


def unpin(
    versions: VersionStore,
    ledger: Ledger,
    alias: str,
    *,
    by: str,
    reason: str = "asked for",
    dry_run: bool = False,
) -> Moved:
    """Take a pinned name away. Its version stays until retention takes it."""
    raise NotImplementedError
