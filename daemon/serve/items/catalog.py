"""The serving catalog of one process: files first, then the topic of items for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from daemon.serve.items.snapshot import IndexSnapshot


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """How the catalog stands.

    ready: everything that was in the topic when it was opened has been taken in (True at once without a
    topic). reason: why it is not, in words. map_id: of the map its vectors were made with. items: the living.
    nbytes: memory of all parts. applied: records taken in since the start, `puts` and `removes` among them.
    dead: records refused, by reason. positions: next offset per partition. trouble: what the stream said
    last, None when it answers. merges: parts merged since the start.
    """

    ready: bool
    reason: str
    map_id: str
    items: int
    parts: int
    nbytes: int
    applied: int
    puts: int
    removes: int
    dead: Mapping[str, int]
    positions: Mapping[int, int]
    trouble: str | None
    merges: int


class ServingCatalog:
    """Objects to answer with, kept current; what is read is always one published snapshot."""

    def snapshot(self) -> IndexSnapshot:
        """The newest snapshot: one reference, whole, and immutable for as long as it is held."""
        raise NotImplementedError

    def listen(self, callback: Callable[[IndexSnapshot], None]) -> None:
        """Call `callback` with every new snapshot, in the indexing thread, after `snapshot()` gives it.

        A slow listener delays the catalog, not its readers; one that raises is logged and called again the
        next time.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Begin to follow the topic of items; the files are loaded when this is made."""
        raise NotImplementedError

    def status(self) -> CatalogStatus:
        """How it stands; cheap."""
        raise NotImplementedError

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop following; the last snapshot stays readable. Waits for the thread no longer than this."""
        raise NotImplementedError
