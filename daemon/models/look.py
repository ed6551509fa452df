"""One look at a checkpoint folder, for the decisions that follow from it."""

from __future__ import annotations

from checkpoints import Ledger, VersionStore
from daemon.models.decide import Seen


def look(versions: VersionStore, ledger: Ledger) -> Seen:
    """What is listed and said now; the ledger first, so that what an entry names is listed, too.

    Raises CheckpointError when nothing can be listed.
    """
    last = ledger.last()
    entries = [entry for entry in ledger.entries() if entry.n <= last]
    unreadable = [number for number in ledger.unreadable() if number <= last]
    return Seen(versions.versions(), entries, unreadable, last)
