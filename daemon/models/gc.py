"""Deleting old versions now, with the account of what goes, what stays and why.

The learner does the same after each version, with `checkpoints.keep`; both may run at once, since each
deletion is decided anew from what aliases point at and from the newest versions, and deleting twice does
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from checkpoints import Damaged, Ledger, LedgerEntry, VersionStore, aliases, plan, protected, prune
from checkpoints.retention import KEEP_AT_LEAST
from daemon.exits import EX_DATAERR, UserError

RESUMED = 2
"""Newest versions that load and are kept: what a learner goes on from, and what it falls back to."""


@dataclass(frozen=True, slots=True)
class GcResult:
    """What went, or would go (dry run): `gone`, ascending, and `size`, its bytes by the manifests; `kept`:
    version -> why it stays.
    """

    gone: tuple[int, ...]
    size: int
    kept: Mapping[int, tuple[str, ...]]
    dry_run: bool


def gc(versions: VersionStore, ledger: Ledger, keep: int, *, dry_run: bool = False) -> GcResult:
    """Delete the versions that no rule keeps, oldest first; each leaves its manifest as a line of history.

    Kept: version 0, the newest `keep` (at least two), the newest two that load (a learner goes on from
    them), what aliases point at, and one step back of those that people move. Aliases are read again before
    each deletion. A server or replica that has a deleted version loaded is not affected: it holds its own
    copy, and a new one loads what its alias means, which is never deleted.

    Refused (UserError) while one ledger entry cannot be read: it may point at any version. CheckpointError
    when the folder cannot be read or written.
    """
    entries = _whole(ledger)
    resumed = _newest_that_load(versions)
    listed = versions.versions()
    going = plan(listed, {*protected(entries), *resumed}, keep)
    kept = reasons(listed, entries, resumed, keep)
    sizes = {number: _size(versions, number) for number in going}
    if not dry_run:
        going = prune(versions, lambda: {*protected(ledger.whole()), *resumed}, keep, lambda: None)
    return GcResult(tuple(going), sum(sizes.get(number, 0) for number in going), kept, dry_run)


def reasons(
    versions: Sequence[int], entries: Iterable[LedgerEntry], resumed: Iterable[int], keep: int
) -> dict[int, tuple[str, ...]]:
    """Why each version stays, by number; those that go are left out. Pure."""
    ordered, written = sorted(versions), list(entries)
    newest = set(ordered[-max(keep, KEEP_AT_LEAST) :])
    named = aliases(written)
    one_step_back, going_on = protected(written) - set(named.values()), set(resumed)
    found: dict[int, tuple[str, ...]] = {}
    for number in ordered:
        why = [name for name, target in sorted(named.items()) if target == number]
        why += ["version 0"] if number == 0 else []
        why += ["one step back"] if number in one_step_back else []
        why += ["newest"] if number in newest else []
        why += ["a learner goes on from it"] if number in going_on and number not in newest else []
        if why:
            found[number] = tuple(why)
    return found


def _newest_that_load(versions: VersionStore) -> list[int]:
    """The newest RESUMED versions whose every byte is right."""
    found: list[int] = []
    for number in reversed(versions.versions()):
        if len(found) == RESUMED:
            break
        try:
            versions.load(number, lambda spec: None)
        except Damaged:
            continue
        found.append(number)
    return found


def _whole(ledger: Ledger) -> list[LedgerEntry]:
    try:
        return ledger.whole()
    except Damaged as error:
        raise UserError(
            "nothing is deleted while a ledger entry cannot be read, since it may name any version: "
            f"{error.place}: {error.problem}",
            "restore the entry from a copy",
            EX_DATAERR,
        ) from error


def _size(versions: VersionStore, number: int) -> int:
    """Bytes of a version's state; 0 where its manifest cannot be read."""
    try:
        return sum(file.size for file in versions.manifest(number).files)
    except Damaged:
        return 0
