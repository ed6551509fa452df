"""Notice new versions and new verdicts by listing; every process may have its own watcher."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.errors import Report
from checkpoints.ledger import Ledger, LedgerEntry
from checkpoints.versions import VersionStore


@dataclass(frozen=True, slots=True)
class Changes:
    """What appeared since the last poll, ascending."""

    new_versions: tuple[int, ...]
    new_entries: tuple[LedgerEntry, ...]


class Watcher:
    """Polls a version store and a ledger; the first poll reports all that is there."""

    def __init__(self, version_store: VersionStore, ledger: Ledger) -> None:
        self._version_store = version_store
        self._ledger = ledger
        self._versions: set[int] = set()
        self._entry = 0

    def poll(self, report: Report | None = None) -> Changes:
        """New versions and entries since the last poll. Reads only manifests and entries not seen before.

        A ledger entry that cannot be read is passed over and told to `report`, once.
        """
        entries = self._ledger.entries(after=self._entry, report=report)
        versions = self._version_store.versions()
        new = tuple(number for number in versions if number not in self._versions)
        self._versions = set(versions)
        self._entry = entries[-1].n if entries else self._entry
        return Changes(new, tuple(entries))
