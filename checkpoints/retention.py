"""What keeps a folder from growing: old versions go, and older ledger entries are folded into a snapshot.

Pruning leaves a line of history behind each version that goes. Which go is decided purely (`plan`).

Folding puts a sealed snapshot of the ledger's older entries, after which their files can go. Any process may
do it at any time, also several at once: a snapshot says what all entries up to a number amount to, which
never change, and is put create-only. It is durable before anything is deleted, and what is deleted is what
an older snapshot, just found whole, stands for already: one damaged snapshot loses nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from checkpoints.entries import LedgerEntry
from checkpoints.ledger import (
    Ledger,
    folded_bytes,
    folded_key,
    folded_number,
    lost_number,
    read_folded,
    written_off_through,
)
from checkpoints.pruned import add_line
from checkpoints.store import (
    LEDGER,
    BlobStore,
    CheckpointError,
    Damaged,
    KeyExists,
    folder,
    ledger_number,
    manifest_key,
)
from checkpoints.thinning import thinned
from checkpoints.versions import VersionStore

# The newest may be damaged later: there is always one before it to go back to.
KEEP_AT_LEAST = 2
# A writer frozen in the middle of a put is fenced by the claim under its number: this many restarts long.
KEEP_CLAIMS = 16


def plan(versions: Sequence[int], protected: Iterable[int], keep: int) -> list[int]:
    """Versions to prune, ascending: all but version 0, the newest `keep` (at least 2) and `protected`."""
    ordered = sorted(versions)
    kept = {0, *protected, *ordered[-max(keep, KEEP_AT_LEAST) :]}
    return [number for number in ordered if number not in kept]


def plan_claims(claims: Sequence[int]) -> list[int]:
    """Claims to prune, ascending: all but the newest `KEEP_CLAIMS`."""
    return sorted(claims)[:-KEEP_CLAIMS]


def prune(
    version_store: VersionStore, protected: Callable[[], Iterable[int]], keep: int, fence: Callable[[], None]
) -> list[int]:
    """Delete what `plan` and `plan_claims` name; returns the versions that went. WriteFailed.

    Each version's manifest is added to the history durably before anything of it is deleted; then
    the manifest goes first, so that no listed version ever lacks a file. The writer calls it, nobody else.

    `protected` is read again, and `fence` called, before each deletion, and `protected` once more after its
    manifest went: a verdict that came meanwhile counts, and a writer that was frozen here and succeeded
    stops, by the error that `fence` raises, after at most the one deletion it was about to make.
    """
    store = version_store.store
    gone = []
    versions, claims = version_store.listing.versions_and_claims()
    for number in plan(versions, protected(), keep):
        fence()
        add_line(store, _history_line(version_store, number))
        fence()
        if number not in protected() and _delete_unnamed(store, number, protected):
            gone.append(number)
    for number in plan_claims(claims):
        fence()
        _delete(store, number)
    return gone


def _history_line(version_store: VersionStore, number: int) -> bytes:
    try:
        record = json.loads(version_store.manifest(number).to_json())
    except Damaged as error:
        record = {"number": number, "damaged": str(error)}
    return json.dumps(record, separators=(",", ":")).encode()


def _delete_unnamed(store: BlobStore, number: int, protected: Callable[[], Iterable[int]]) -> bool:
    """Delete a version unless it has got a name meanwhile; whether it went.

    A process that names a version writes the name and then looks for the manifest. Here the manifest is
    removed first, and then the names are read: so one of the two sees the other, and a version that was just
    named gets its manifest back.
    """
    key, is_named = manifest_key(number), True
    try:
        manifest = [store.get(key)]
    except CheckpointError:
        manifest = []  # nothing that could be read again: nobody can have found it fit for a name
    store.delete(key)
    try:
        is_named = bool(manifest) and number in protected()
    finally:
        if is_named and manifest:
            with suppress(KeyExists):
                store.put_new(key, manifest)
    if not is_named:
        _delete(store, number)
    return not is_named


def _delete(store: BlobStore, number: int) -> None:
    store.delete(manifest_key(number))
    for key in store.list(folder(number)):
        store.delete(key)


FOLD_EVERY = 512
"""Entries after the newest snapshot from which another one is made."""
LEAVE = 64
"""Newest entries that stay files: who is writing one is not overtaken by a snapshot of it."""


def fold(
    store: BlobStore,
    ledger: Ledger,
    versions: Callable[[], Iterable[int]],
    *,
    every: int = FOLD_EVERY,
    leave: int = LEAVE,
    clock: Callable[[], float] = time.time,
) -> int | None:
    """Fold once `every` entries have come since the last time; the number folded through, or None.

    versions: those kept, asked after the entries were read, see `thinned`. An entry that cannot be read, and
    is not written off, is never folded over. Raises WriteFailed, and Damaged when nothing can be listed.
    """
    entries, end, base = ledger.complete()
    through = end - leave
    if through - base < max(every, 2):
        return None
    kept = [entry for entry in entries if entry.n <= through]
    if not base:  # two at once, so that what they stand for can go
        base = through - 1
        _put(store, base, thinned(kept[:-1] if kept[-1].n == through else kept, versions(), clock()))
    _put(store, through, thinned(kept, versions(), clock()))
    try:
        read_folded(store, base)
    except CheckpointError:
        return through
    _clear(store, base)
    return through


def _put(store: BlobStore, through: int, kept: Iterable[LedgerEntry]) -> None:
    with suppress(KeyExists):  # another process has just made the same
        store.put_new(folded_key(through), [folded_bytes(through, (entry.record() for entry in kept))])


def _clear(store: BlobStore, base: int) -> None:
    """Delete what the snapshot up to `base` stands for, older snapshots included. What a lost power brings
    back counts for nothing, and goes the next time.
    """
    for key in store.list(LEDGER):
        entry, lost, folded = ledger_number(key), lost_number(key), folded_number(key)
        if lost is not None:
            lost = written_off_through(store, lost) or lost
        gone = (entry if entry is not None else lost, base), (folded, base - 1)
        if any(number is not None and number <= last for number, last in gone):
            store.delete(key, durable=False)
