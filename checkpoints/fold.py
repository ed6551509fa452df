"""Folding the ledger: a sealed snapshot of its older entries, after which their files can go.

Any process may do it at any time, also several at once: a snapshot says what all entries up to a number
amount to, which never change, and is put create-only. It is durable before anything is deleted, and what is
deleted is what an older snapshot, just found whole, stands for already: one damaged snapshot loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from checkpoints.folded import (
    folded_bytes,
    folded_key,
    folded_number,
    lost_number,
    read_folded,
    written_off_through,
)
from checkpoints.ledger import Ledger, LedgerEntry
from checkpoints.store import LEDGER, BlobStore, CheckpointError, KeyExists, ledger_number
from checkpoints.thinning import thinned

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
