"""Moving aliases: look at the ledger, decide purely, verify the version, write one entry; or refuse.

Every function takes the version store and the ledger of one checkpoint folder, writes one ledger entry
(create-only, right after the last one it has seen: the loser of a race looks again and decides again), and
raises `MoveRefused`, a UserError, with a remedy where it does not. Nothing else is touched: servers and
replicas follow by reading the ledger, and each holds a copy of its own of the version it has loaded.

A version is fit to be pointed at when it is whole, finite, and of the space of what is served now.

Deleting old versions gives an account of what goes, what stays and why. The learner does the same after each
version, with `checkpoints.keep`; both may run at once, since each deletion is decided from what aliases point
at then and from the newest versions, and deleting twice does nothing.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from checkpoints import (
    STABLE,
    Damaged,
    KeyExists,
    Ledger,
    LedgerEntry,
    Manifest,
    VersionStore,
    aliases,
    fold,
    plan,
    protected,
    prune,
)
from checkpoints.encoding import DTYPES
from checkpoints.retention import KEEP_AT_LEAST
from checkpoints.store import folder
from daemon.exits import EX_DATAERR, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.models.decide import MoveRefused, MoveRequest, StoreSnapshot, Verb, decide, no_such_version
from daemon.text import number_runs
from daemon.versions.contents import learner_specs


def look(versions: VersionStore, ledger: Ledger) -> StoreSnapshot:
    """What is listed and said now; the ledger first, so that what an entry names is listed, too.

    Raises CheckpointError when nothing can be listed.
    """
    last = ledger.last()
    entries = [entry for entry in ledger.entries() if entry.n <= last]
    unreadable = [number for number in ledger.unreadable() if number <= last]
    return StoreSnapshot(versions.versions(), entries, unreadable, last)


PIECE = 4 << 20


def verify(versions: VersionStore, number: int, served: int | None, field: str) -> None:
    """Read every byte of version `number` once, in pieces: hash, arrays, finite numbers; nothing is kept.

    served: the version whose servers will swap to it, None for the newest that can be read. Raises Refused.
    """
    try:
        manifest = versions.manifest(number)
        reference = _reference(versions, manifest, served)
        if reference is not None:
            _same_space(manifest, reference, field)
        versions.load(number, lambda spec: None)  # every byte hashed, nothing kept
        wrong = _first_not_finite(versions, manifest)
    except Damaged as error:
        message = f"version {number} does not load: {error.place}: {error.problem}"
        raise MoveRefused("damaged", field, message, error.remedy, EX_DATAERR) from error
    if wrong is not None:
        message = f"version {number}: array {wrong} holds values that are not finite"
        remedy = "choose an older version; `tripletd replay --verify` finds the event that brought them in"
        raise MoveRefused("not_finite", field, message, remedy, EX_DATAERR)


def _first_not_finite(versions: VersionStore, manifest: Manifest) -> str | None:
    """The first array with a NaN or infinite value, None when there is none; read in pieces, so that a server
    that is asked holds no second W. For a version whose hash was verified.
    """
    (entry,) = manifest.files
    with versions.store.open(folder(manifest.number) + entry.name) as stream:
        data = io.BufferedReader(stream, PIECE)  # type: ignore[type-var]
        data.seek(8 + int.from_bytes(data.read(8), "little"))
        for spec in manifest.arrays:  # in file order
            dtype = np.dtype(DTYPES[spec.dtype])
            left = math.prod(spec.shape) * dtype.itemsize
            while left:
                piece = data.read(min(left, PIECE))
                left -= len(piece)
                if not piece or (dtype.kind == "f" and not np.isfinite(np.frombuffer(piece, dtype)).all()):
                    return spec.name
    return None


def _reference(versions: VersionStore, manifest: Manifest, served: int | None) -> Manifest | None:
    if served is not None:
        try:
            return versions.manifest(served)
        except Damaged:
            pass  # what is served cannot tell; the newest does
    newest = versions.newest_manifest()
    return newest if newest is not None and newest.kind == "version" else manifest


def _same_space(manifest: Manifest, served: Manifest, field: str) -> None:
    """Raise MoveRefused naming what differs: a server has mapped its items for the other one."""
    pairs = (
        ("space", manifest.space, served.space),
        ("map", manifest.map.get("id"), served.map.get("id")),
        ("learner", manifest.learner.get("name"), served.learner.get("name")),
        ("shape", _shapes(manifest), _shapes(served)),
    )
    for what, own, other in pairs:
        if own != other:
            raise MoveRefused(
                "other_space",
                field,
                f"version {manifest.number} has another {what} than version {served.number}, "
                f"which is served: {own}, not {other}",
                "serve it from a checkpoint folder of its own: items and queries must be mapped again for it",
                EX_DATAERR,
            )


def _shapes(manifest: Manifest) -> str:
    """What the learner's arrays hold: "W 12 x 12"; counters and the like are left out."""
    return ", ".join(
        f"{spec.name} {' x '.join(map(str, spec.shape))}" for spec in learner_specs(manifest) if spec.shape
    )


ATTEMPTS = 32
"""Races lost in a row before giving up: each is an entry that another process has written meanwhile."""
ASKED = "asked for"


@dataclass(frozen=True, slots=True)
class AliasMove:
    """One alias moved, or what would be moved.

    kind: PROMOTE or ROLLBACK. before: the version it meant until then, after: the one from now on, None:
    none of its own (the name is taken away; `stable` then means `best`). entry: what was written, None on a
    dry run. notes: what else the caller should say, one line each.
    """

    kind: str
    alias: str
    before: int | None
    after: int | None
    by: str
    reason: str
    entry: LedgerEntry | None
    notes: tuple[str, ...] = ()


def move(
    versions: VersionStore,
    ledger: Ledger,
    verb: Verb,
    alias: str = STABLE,
    version: int | str | None = None,
    *,
    by: str,
    reason: str = ASKED,
    dry_run: bool = False,
) -> AliasMove:
    """Move one alias.

    promote: point `alias` (`stable`, or any name that is not reserved or pinned) at a version, by number or
    name. rollback: at the version it pointed at before, or at `version`; two in a row go back by two
    promotions. Below the first promotion of `stable` lies what it meant then: the best version of that time,
    or version 0. pin: give a version a name that keeps it and that no promotion moves. unpin: take a name
    away, pinned or promoted; its version stays until retention takes it, and `stable` then means the best
    version again, and follows it.

    Refused: no such version, one that does not load (damaged, altered, another format), NaN or infinite
    numbers in it, another map, space or shape than what the alias serves now, the version it already points
    at, the reserved names `latest` and `best`, a pinned name. CheckpointError when the folder cannot be
    read or written.
    """
    wish = MoveRequest(verb, alias, version)
    verified: set[tuple[int, int | None]] = set()
    for _ in range(ATTEMPTS):
        seen = look(versions, ledger)
        step = decide(wish, seen)
        if step.after is not None and (step.after, step.before) not in verified:
            verify(versions, step.after, step.before, "to" if verb == "rollback" else "version")
            verified.add((step.after, step.before))
        moved = AliasMove(step.kind, step.alias, step.before, step.after, by, reason, None, step.notes)
        if dry_run:
            return moved
        try:
            said = {"kind": step.kind, "version": step.after, "alias": step.alias, "by": by}
            entry = ledger.append(said | {"reason": reason, "measures": dict(step.measures)}, after=seen.last)
        except KeyExists:
            continue
        _check_still_there(versions, ledger, entry)
        return replace(moved, entry=entry)
    message = f"{ATTEMPTS} others wrote to the ledger first"
    raise MoveRefused("busy", "alias", message, "ask again; nothing was written", EX_TEMPFAIL)


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


RESUMED = 2
"""Newest versions that load and are kept: what a learner continues from, and what it falls back to."""


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

    Kept: version 0, the newest `keep` (at least two), the newest two that load (a learner continues from
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
    sizes: dict[int, int] = {}
    for number in going:
        with suppress(Damaged):  # how much it holds is not known then
            sizes[number] = sum(file.size for file in versions.manifest(number).files)
    if not dry_run:
        fold(versions.store, ledger, versions.versions)
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
        why += ["a learner continues from it"] if number in going_on and number not in newest else []
        if why:
            found[number] = tuple(why)
    return found


def _newest_that_load(versions: VersionStore) -> list[int]:
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


@dataclass(frozen=True, slots=True)
class LostEntries:
    """An entry of the ledger that cannot be read, or a run of them that is not there."""

    first: int
    last: int
    why: str


def lost_entries(ledger: Ledger) -> list[LostEntries]:
    """What cannot be read, ascending. CheckpointError when the folder cannot be read."""
    return [LostEntries(first, last, str(why)) for first, (last, why) in sorted(ledger.lost().items())]


def write_off(ledger: Ledger, numbers: Iterable[int], by: str, reason: str) -> list[LostEntries]:
    """Count these entries, and the gaps that begin with them, as never said, for good. UserError, and nothing
    is written, where one of them can be read or is no beginning of a gap.
    """
    lost = {one.first: one for one in lost_entries(ledger)}
    asked = sorted(set(numbers))
    for number in asked:
        if number not in lost:
            known = number_runs(list(lost)) or "none"
            remedy = f"those that cannot: {known}; see `tripletd models write-off`"
            raise UserError(f"entry {number} is not one that cannot be read", remedy, EX_USAGE)
    for number in asked:
        ledger.write_off(number, by, reason)
    return [lost[number] for number in asked]


def _whole(ledger: Ledger) -> list[LedgerEntry]:
    try:
        return ledger.whole()
    except Damaged as error:
        raise UserError(
            "nothing is deleted while a ledger entry cannot be read, since it may name any version: "
            f"{error.place}: {error.problem}",
            "restore the entry from a copy, or write it off: `tripletd models write-off`",
            EX_DATAERR,
        ) from error
