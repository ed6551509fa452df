"""Whether the checkpoint folder still has what a role works with: it may be gone, emptied or an older copy.

Every role looks: the learner at what it wrote (`daemon.learn.publishing`), all others, with `FolderWatch`, at
the version they work with. Each goes on with what it has, and says so until the folder has it again, or
something newer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from checkpoints.manifest import Manifest
from checkpoints.store import BlobStore, CheckpointError, Damaged
from checkpoints.versions import VersionStore

GONE, LACKS = "gone", "lacks"
TOLD: Mapping[str, str] = {
    GONE: "the checkpoint folder is gone: mount it again, or put a copy of it back",
    LACKS: "the checkpoint folder was emptied, or an older copy was put in its place: put a newer copy back, "
    "or let learn go on there, on a line of its own; promotions that are missing come back with a copy alone",
}
"""How a folder can be lost, and what people are told."""
LOOK_EVERY_S = 2.0
"""Between two looks whether a version is still the one under its number."""


@runtime_checkable
class PlacedStore(Protocol):
    """A store at a place that can be away, as a folder that is not mounted."""

    def is_there(self) -> bool:
        """Whether the place is there now."""
        ...


def is_away(store: BlobStore) -> bool:
    """Whether the store's place is not there; False for a store that has no place."""
    return isinstance(store, PlacedStore) and not store.is_there()


class FolderWatch:
    """Compares the version that a role works with with the folder. One thread.

    how: GONE or LACKS while the folder is lost, "" while it has the version or something newer. is_replaced:
    another version stands under its number. losses: times so far, by how; a version of another line that
    comes after counts too, as whoever looks every few seconds may find no more than that.
    """

    def __init__(self, versions: VersionStore) -> None:
        self._versions = versions
        self._listed: Sequence[int] = ()
        self._look_at = 0.0
        self.mine: Manifest | None = None
        self._lacked_mine = False
        self.how, self.is_replaced = "", False
        self.losses: Counter[str] = Counter()

    def works_with(self, version: Manifest) -> None:
        """The role works with this version from now on."""
        before, self.mine = self.mine, version
        lines = set() if before is None else {before.line, version.line}
        if len(lines) == 2 and "" not in lines and not self._lacked_mine:
            self.losses[LACKS] += 1
        self.how, self.is_replaced, self._lacked_mine = "", False, False

    def look(self, versions: Sequence[int], now: float) -> None:
        """Look, at most every LOOK_EVERY_S while `versions`, those listed, stay the same. now: monotonic, in
        seconds.
        """
        mine, listed, self._listed = self.mine, self._listed, versions
        if mine is None or (versions == listed and now < self._look_at):
            return
        self._look_at = now + LOOK_EVERY_S
        if is_away(self._versions.store):
            self.is_replaced = False
            self._stands(GONE)
            return
        newest = max(versions, default=-1)
        lacks, self.is_replaced = mine.number not in versions and newest < mine.number, False
        try:
            there = None if lacks else self._versions.manifest(mine.number)
            self.is_replaced = there is not None and there.to_json() != mine.to_json()
        except Damaged as error:
            lacks = error.kind == "missing" and newest <= mine.number  # lists may be older; pruning spares it
        except CheckpointError:
            pass  # it was read before, and is not needed now
        self._stands(LACKS if lacks or self.is_replaced else "")

    def _stands(self, how: str) -> None:
        if how and not self.how:
            self.losses[how] += 1
        self._lacked_mine |= how == LACKS
        self.how = how
