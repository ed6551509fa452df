"""Reads the curves' history from a store, again and again, without reading a version twice."""

from __future__ import annotations

from checkpoints import Ledger, VersionStore, history
from checkpoints.errors import CheckpointError, Damaged
from daemon.look.curves import Curves, curves_of
from daemon.look.places import Place, place_of, places_of_pruned
from daemon.look.readable import read_entries


class CurveReader:
    """The history of one checkpoint folder. Not safe between threads.

    It holds some hundred bytes per version ever written, and reads the lines that pruning left only when a
    version is missing that it has not seen.
    """

    def __init__(self, versions: VersionStore, ledger: Ledger) -> None:
        self._versions = versions
        self._ledger = ledger
        self._places: dict[int, Place] = {}
        self._unread: set[int] = set()
        self._newest = -1
        self.notes: list[str] = []

    def read(self) -> Curves:
        """The history as it is now; `notes` says what the last call passed over. Damaged when nothing can be
        listed.
        """
        entries, self.notes = read_entries(self._ledger)
        self._read_places()
        return curves_of(self._places.values(), entries)

    def _read_places(self) -> None:
        listed = set(self._versions.versions())
        for number in sorted(listed - self._places.keys()):
            try:
                self._places[number] = place_of(self._versions.manifest(number))
            except CheckpointError as error:
                self._unread.add(number)
                self.notes.append(str(error))
        newest = max(listed, default=-1)
        missing = {*range(self._newest + 1, newest), *self._unread} - listed - self._places.keys()
        if missing - set(self._versions.listing.claims()):
            try:
                pruned = places_of_pruned(history(self._versions.store))
            except Damaged as error:
                self.notes.append(str(error))
                return
            self._places |= {place.number: place for place in pruned if place.number not in self._places}
        self._newest = max(self._newest, newest)
        self._unread &= listed
