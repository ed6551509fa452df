"""The serving catalog of one process: files first, then the topic of items for as long as it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from daemon.catalogs import serving_catalog
from daemon.config import Config
from daemon.dead_letters import ItemDeadLetters, open_dead
from daemon.runtime.watchdog import BackgroundThread
from daemon.serve.items.decoding import ItemDecoder, catalog_rows
from daemon.serve.items.display import DisplayFile, load_display
from daemon.serve.items.index import ItemIndex, Sizes
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.items.topic import LOOK_SECONDS, ItemTopic
from learners.maps import FittedSpaceMap
from streams.event import SpaceSpec
from streams.objects.rows import Tell
from streams.open import compact, open_source
from streams.source import Quiet, RecordBatch

POLL_RECORDS = 2000
POLL_SECONDS = 0.2
GATHER_SECONDS = 0.05
"""Least time between two snapshots of a topic that is not behind: single records become few parts."""
MERGE_SHARE = 0.25
"""Most of one core that merging takes, unless parts pile up."""
MANY_PARTS = 48
"""Beyond so many parts merging no longer holds back."""
AFTER_A_BUG_SECONDS = 1.0

log = structlog.get_logger("tripletd.serve")

OnSnapshot = Callable[[IndexSnapshot], None]


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """How the catalog stands.

    ready: everything that was in the topic when it was opened has been taken in. reason: why it is not, in
    words. map_id: of the map its vectors were made with. items: the living.
    nbytes: memory of all parts. puts, removes: good records since the start. dead: refused ones, by reason.
    unwritten: dead letters that their topic has not taken yet. positions: next offset per partition. behind:
    records not yet read, None while unknown. trouble: what the stream said last, None when it answers.
    merges: since the start.
    """

    ready: bool
    reason: str
    map_id: str
    items: int
    parts: int
    nbytes: int
    puts: int
    removes: int
    dead: Mapping[str, int]
    unwritten: int
    positions: Mapping[int, int]
    behind: int | None
    trouble: str | None
    merges: int


@dataclass(frozen=True, slots=True)
class ItemFeed:
    """What a catalog follows: the topic, how its records are read, and where refused ones go."""

    topic: ItemTopic
    decoder: ItemDecoder
    letters: ItemDeadLetters


class ServingCatalog(BackgroundThread):
    """Objects to answer with, kept current; what is read is always one published snapshot.

    making: a new index with the objects of the files, called at once and again when the topic was re-created.
    `space` and `fitted` are those that queries are resolved with. After `close` the last snapshot stays
    readable.
    """

    name = "items"

    def __init__(
        self, space: SpaceSpec, fitted: FittedSpaceMap, making: Callable[[], ItemIndex], following: ItemFeed
    ) -> None:
        super().__init__()
        self.space, self.fitted, self._making, self._following = space, fitted, making, following
        self._index = making()
        self.current = self._index.snapshot
        """The newest snapshot: one reference, whole, and immutable for as long as it is held."""
        self._listeners: list[OnSnapshot] = []
        self._puts = self._removes = 0
        self._rest_until = self._note_at = 0.0
        self._merging = self._rereading = False
        self._quiet = Quiet(GATHER_SECONDS, POLL_SECONDS)
        self._ready = False
        self._bug: str | None = None
        self._closing = threading.Event()

    def listen(self, callback: OnSnapshot) -> None:
        """Call `callback` with every new snapshot, in the indexing thread, after it has become `current`.

        A slow listener delays the catalog, not its readers; one that raises is logged and called again the
        next time.
        """
        self._listeners.append(callback)

    def status(self) -> CatalogStatus:
        """How it stands; cheap."""
        snapshot, topic, letters = self.current, self._following.topic, self._following.letters
        ready, trouble = self._ready, self._bug or topic.trouble
        return CatalogStatus(
            ready=ready,
            reason="" if ready else trouble or "the topic of items is being read",
            map_id=snapshot.map_id,
            items=len(snapshot),
            parts=len(snapshot.parts),
            nbytes=sum(part.nbytes for part in snapshot.parts),
            puts=self._puts,
            removes=self._removes,
            dead=dict(letters.counts),
            unwritten=letters.unwritten,
            positions=dict(topic.positions),
            behind=topic.behind,
            trouble=trouble,
            merges=self._index.merges,
        )

    def stop(self) -> None:
        """Follow the topic no longer."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._turn()
                self._bug = None
            except Exception as error:  # whatever it is, what is served stays served
                log.exception("the serving catalog failed; trying again")
                self._bug = f"{type(error).__name__}: {error}"
                self._closing.wait(AFTER_A_BUG_SECONDS)
        self._following.letters.close()
        self._following.topic.close()

    def _turn(self) -> None:
        following = self._following
        batch = self._poll(following)
        if batch is not None:
            self._take_in(following, batch)
        following.letters.flush()
        if time.monotonic() >= self._note_at and not following.letters.unwritten:
            self._note_at = time.monotonic() + LOOK_SECONDS
            following.topic.tidy()
        self._publish()
        if batch is None or len(batch) < POLL_RECORDS or self._crowded():
            self._merge(time.monotonic() + GATHER_SECONDS, self._rest_s(batch))
            self._publish()
        self._ready = (
            self._ready or following.topic.caught_up
        )  # after what was read last is in what is served

    def _poll(self, following: ItemFeed) -> RecordBatch | None:
        batch = following.topic.poll(POLL_RECORDS, 0.0 if self._merging else POLL_SECONDS)
        if following.topic.restarted:
            try:
                # The old objects are served until the new topic is read.
                self._index, self._rereading = self._making(), True
            except Exception:
                if batch is not None:
                    following.topic.again(batch)
                raise
            following.topic.restarted = False
        return batch

    def _merge(self, until: float, rest_s: float) -> None:
        """Merge within the share of time that it may take, and wait for the rest, up to `until`.

        Where nothing is left to merge, wait `rest_s`.
        """
        while not self._closing.is_set():
            now, crowded = time.monotonic(), self._crowded()
            if now >= until and not crowded:
                return
            if now < self._rest_until and not crowded:
                self._closing.wait(min(self._rest_until, until) - now)
                continue
            self._merging = self._index.work()
            if not self._merging:
                self._closing.wait(rest_s)
                return
            worked = time.monotonic() - now
            self._rest_until = now + worked / MERGE_SHARE

    def _take_in(self, following: ItemFeed, batch: RecordBatch) -> None:
        try:
            decoded = following.decoder.decode(batch)
            if decoded.changes is not None:
                self._index.apply(decoded.changes)
        except Exception:
            following.topic.again(batch)
            raise
        following.letters.add(decoded.refused, following.topic.noted)
        self._puts += decoded.puts
        self._removes += decoded.removes

    def _rest_s(self, batch: RecordBatch | None) -> float:
        """How long to wait before the next poll: not at all where that one waits for records itself."""
        if batch is not None:
            self._quiet.broken()
            return GATHER_SECONDS
        return 0.0 if self._following.topic.is_open else self._quiet.rest_s()

    def _crowded(self) -> bool:
        return len(self._index.snapshot.parts) > MANY_PARTS

    def _publish(self) -> None:
        snapshot = self._index.snapshot
        if snapshot is self.current or (self._rereading and not self._following.topic.caught_up):
            return
        self._rereading = False
        self.current = snapshot
        for callback in self._listeners:
            try:
                callback(snapshot)
            except Exception:
                log.exception("a listener of the serving catalog failed")


def build_catalog(
    config: Config, fitted: FittedSpaceMap, sizes: Sizes | None = None, *, tell: Tell | None = None
) -> ServingCatalog:
    """The catalog of `serve.catalog` (else `catalog.path`, else no file) and of the stream's topic of items.

    fitted: the frozen map of the versions that are served. tell: receives the progress of reading. The files
    are read before this returns; `start` begins to follow the topic, which need not exist yet. Raises
    CatalogError or UserError for a file.
    """
    space = config.space_spec()
    shown = load_display(config.serve.display) if config.serve.display else DisplayFile()
    address = config.stream.to_address()
    sizes = sizes or Sizes()

    def making() -> ItemIndex:
        index = ItemIndex(fitted.id, shown, sizes)
        catalog = serving_catalog(config, tell)
        if catalog is not None:
            index.load(catalog_rows(catalog, fitted, shown, sizes.part))
        return index

    topic = ItemTopic(lambda: open_source(address.items), lambda: compact(address.items))
    decoder = ItemDecoder(space, fitted, address.items.topic, shown, config.stream.max_record_bytes)
    letters = ItemDeadLetters(lambda: open_dead(address.dead))
    return ServingCatalog(space, fitted, making, ItemFeed(topic, decoder, letters))
