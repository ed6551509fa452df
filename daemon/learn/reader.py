"""What a learner reads and writes, opened, and the reader thread: poll, decode and assemble ahead of the
kernel, into a bounded queue.

The kernel releases the interpreter lock, so this work overlaps it. Nothing here changes the state or the
position: a batch that was read ahead and never applied is read again after a restart. Batch sizes change
speed and memory, never a bit of the result.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from checkpoints.ledger import Ledger
from checkpoints.versions import VersionStore
from daemon.catalogs import learner_catalog
from daemon.config.schema import Config
from daemon.dead_letters import open_dead
from daemon.exits import EX_CONFIG, UserError
from daemon.learn.publishing import Cadence
from daemon.learn.state import Progress
from daemon.learn.step import ReadyBatch
from daemon.retries import RETRY_SECONDS
from daemon.runtime.in_hand import DECODE, InHand
from daemon.runtime.watchdog import BackgroundThread, Pulse
from daemon.versions.shards import address_of
from daemon.versions.storage import open_store
from learners.block import TripletBatch
from streams.catalog import Catalog
from streams.decode import BatchDecoder, DecodedBatch
from streams.errors import PartitionsAdded, StreamUnavailable
from streams.objects.rows import Tell
from streams.open import open_source, prepare_topic
from streams.shards import Shard, ShardSource
from streams.source import (
    UNKNOWN,
    Address,
    GrowingSource,
    RecordBatch,
    Sink,
    Source,
    TopicIdentity,
    check_grown,
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Opened once per run. `identity`: of the topic then. `control` is used at the start, afterwards by the
    housekeeper alone. `place`: the checkpoint folder. `shard`: None where all partitions are learned here;
    then `merged` are the versions that this shard's are merged to, whose ledger halts and resumes it.
    """

    address: Address
    identity: TopicIdentity
    control: Source
    dead: Sink
    catalog: Catalog | None
    decoder: BatchDecoder
    place: str
    versions: VersionStore
    ledger: Ledger
    shard: Shard | None = None
    merged: VersionStore | None = None

    @property
    def catalog_digest(self) -> str | None:
        """The catalog's digest, None without one."""
        return None if self.catalog is None else self.catalog.digest

    def open_reader(self) -> Source:
        """A source for the reader thread; LogMismatch unless it is of the log and topic opened before, which
        may have more partitions by now.
        """
        source = open_source(self.address)
        try:
            check_grown(self.identity, source.identity())
        except BaseException:
            source.close()
            raise
        return source


def open_inputs(
    stack: ExitStack, config: Config, tell: Tell | None = None, shard: Shard | None = None
) -> Inputs:
    """Open everything; `stack` closes it. tell: receives the progress of reading objects; by default a log
    line. Raises the errors of streams and checkpoints, and UserError for a shard without a partition."""
    space = config.space_spec()
    catalog = learner_catalog(config, tell)
    address = config.stream.to_address()
    with ThreadPoolExecutor(1) as other:  # a broker may be slow to answer: both topics are opened at once
        opening = other.submit(open_dead, address.dead)

        @stack.callback
        def close_dead() -> None:
            if opening.exception() is None:
                opening.result().close()

        if address.scheme != "kafka":  # whose topics have to exist, which opening them finds out
            prepare_topic(address, config.stream.partitions)
        opened = partial(open_source, address)
        control = GrowingSource(opened) if shard is None else ShardSource(opened, shard)
        stack.callback(control.close)
        dead = opening.result()
    stored = open_store(config.checkpoints.path)
    if shard is not None and not shard.among(range(control.identity().partitions)):
        raise UserError(
            f"{address}: has {control.identity().partitions} partitions, so there is none for shard "
            f"{shard.number} of {shard.of}",
            "set shards.count to at most as many, or add partitions to the topic",
            EX_CONFIG,
        )
    place = config.checkpoints.path if shard is None else address_of(config.checkpoints.path, shard)
    own = stored if shard is None else open_store(place)
    largest, keyed = config.stream.max_record_bytes, config.keys.slots > 0
    bound = round(1000 * config.stream.max_future)
    decoder = BatchDecoder(space, catalog, address.topic, largest, keyed, max_future_ms=bound)
    return Inputs(
        address,
        control.identity(),
        control,
        dead,
        catalog,
        decoder,
        place,
        own.versions,
        stored.ledger,
        shard,
        stored.versions if shard else None,
    )


QUEUED_BATCHES = 3
ALONE_SECONDS = 0.0005  # between two looks whether the loop is done with a record that is alone in hand
POLL_SECONDS = 0.2
POLL_BYTES = 16 << 20  # read-ahead memory stays near the queued batches times this, however long the records
FIRST_POLL = 64  # records; neither their lengths nor the learner's speed are known, so begin small
BATCH_SECONDS = 0.25  # a stop waits for the batch in hand; larger batches are no faster


class PollSize:
    """How many records the next poll asks for. Bounded by the setting, by bytes, by the time a batch takes to
    learn, and by the next exact event count.

    The reader's thread uses it; the loop calls `learned` alone, which writes one number.
    """

    def __init__(self, most: int, cadence: Cadence, records: int) -> None:
        self._most, self._cadence, self._polled = most, cadence, records
        self._by_bytes = self._by_time = min(most, FIRST_POLL)

    def next(self) -> int:
        """Records the next poll may return."""
        return self._cadence.poll_limit(min(self._most, self._by_bytes, self._by_time), self._polled)

    def polled(self, batch: RecordBatch) -> None:
        """Learn from what a poll returned."""
        count = len(batch.values)
        self._polled += count
        mean_bytes = max(1, sum(len(value) for value in batch.values if value is not None) // max(1, count))
        self._by_bytes = max(1, min(self._by_bytes * 4, POLL_BYTES // mean_bytes, self._most))

    def learned(self, records: int, seconds: float) -> None:
        """Learn from how long the loop took for a batch."""
        within = int(records * BATCH_SECONDS / max(seconds, 1e-9))
        self._by_time = max(1, min(within, self._by_time * 4, self._most))


@dataclass(frozen=True, slots=True)
class Growth:
    """The topic has `partitions` from here on: no batch before this one is of a partition that was added."""

    partitions: int


class Reader(BackgroundThread):
    """Reads ahead in a thread of its own. `get` hands over batches in the order they must be applied.

    Partitions that are added to the topic meanwhile are read from their beginning, after a `Growth`.

    Args:
        open_source: opens the stream; called in the thread, again after the stream was unavailable.
        positions: next offset per partition.
        assemble: decodes and assembles one polled batch.
        size: how many records a poll asks for.
        pulse: of this thread.
        clock: monotonic, in seconds.
        known: sha256 (hex) of the record right before each position, where it is known.
        shard: whose partitions alone are read; None reads all.
        in_hand: which records are taken one at a time, and left out, since the process died with them.
    """

    name = "reader"

    def __init__(
        self,
        open_source: Callable[[], Source],
        positions: Mapping[int, int],
        assemble: Callable[[RecordBatch], tuple[DecodedBatch, TripletBatch | None]],
        size: PollSize,
        *,
        pulse: Pulse,
        clock: Callable[[], float],
        known: Mapping[int, str] = UNKNOWN,
        shard: Shard | None = None,
        in_hand: InHand | None = None,
    ) -> None:
        super().__init__()
        self._open_source, self._shard = open_source, shard
        self._assemble, self._size = assemble, size
        self._pulse, self._clock = pulse, clock
        self._in_hand = in_hand or InHand()
        self._positions, self._known = dict(positions), dict(known)
        self._queue: queue.SimpleQueue[ReadyBatch | Growth | None] = queue.SimpleQueue()  # None: `wake`
        self._room = threading.Semaphore(QUEUED_BATCHES)
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self.trouble: StreamUnavailable | None = None  # why nothing comes; the reader keeps trying
        self._queued, self._was_alone = 0, False  # the last one
        self._taken = self._done = 0  # by the loop; what it took before it asked again, it is done with
        self._reach: tuple[int, dict[int, int]] = (0, dict(positions))  # batches queued, what they reach

    def get(self, timeout_s: float) -> ReadyBatch | Growth | None:
        """The next batch or growth; None when nothing came in `timeout_s`, or at a `wake`. Raises what ended
        the thread.
        """
        ready, self._done = None, self._taken
        with suppress(queue.Empty):
            ready = self._queue.get(timeout=timeout_s)
        if ready is None:
            if self._error is not None and self._queue.empty():
                raise self._error
            return None
        self._room.release()
        self._taken += 1
        return ready

    def wake(self) -> None:
        """Have a `get` that waits return; takes no lock, so that a signal's handler may call it."""
        self._queue.put(None)

    def reached(self) -> dict[int, int] | None:
        """Per partition, the offset below which everything was taken from here; None while batches wait.

        Offsets without a record count: at the end of the log it equals the end.
        """
        queued, reached = self._reach
        return reached if queued == self._taken else None

    def learned(self, ready: ReadyBatch, seconds: float) -> None:
        """The loop took that long for a batch: the next ones are made to take less than a stop may wait."""
        self._size.learned(ready.records, seconds)

    def stop(self) -> None:
        """Read no more, drop what was read ahead; returns at once."""
        self._closing.set()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._pulse.beat("opening the stream")
                with self._retrying(), suppress(PartitionsAdded):  # opened again, it has them all
                    self._read(self._open_source())
        except BaseException as error:  # noqa: BLE001 - raised in the main loop
            self._error = error
        finally:
            self._pulse.rest()

    def _read(self, source: Source) -> None:
        """Read from a source just opened, until `stop`."""
        try:
            if not self._grow(source.identity().partitions):
                return
            source.assign(dict(self._positions), dict(self._known))
            while not self._closing.is_set():
                with self._retrying():
                    self._read_one(source)
        finally:
            self._pulse.beat("closing the stream")
            source.close()

    def _grow(self, partitions: int) -> bool:
        """Have all partitions of the topic read, or of the shard; False when `stop` came meanwhile."""
        mine = range(partitions) if self._shard is None else self._shard.among(range(partitions))
        if added := [partition for partition in mine if partition not in self._positions]:
            if not self._offer(Growth(partitions)):
                return False
            self._positions |= dict.fromkeys(added, 0)
        return True

    @contextmanager
    def _retrying(self) -> Iterator[None]:
        """Around a call that fails while the stream is unavailable: note the trouble, and wait a little."""
        try:
            yield
        except StreamUnavailable as error:
            self.trouble = error
            self._closing.wait(RETRY_SECONDS)

    def _read_one(self, source: Source) -> None:
        began = self._clock()
        self._pulse.beat("poll")
        batch = source.poll(self._size.next(), POLL_SECONDS)
        self.trouble = None
        reached = source.reached()
        if batch is not None:
            self._size.polled(batch)
            seconds = self._clock() - began
            for piece, alone in self._in_hand.known.pieces(batch):
                if not self._take(piece, alone, seconds):
                    return
                seconds = 0.0
        self._reach = (self._queued, reached)

    def _take(self, batch: RecordBatch, alone: bool, poll_seconds: float) -> bool:
        """Decode a batch and hand it over; False when `stop` came. alone: with nothing else in hand."""
        while (alone or self._was_alone) and self._done < self._queued:
            self._pulse.beat("waiting for the loop")
            if self._closing.wait(ALONE_SECONDS):
                return False
        self._was_alone, began = alone, self._clock()
        with self._pulse.patient("decode"), self._in_hand.hold(DECODE, batch, alone):
            decoded, triplets = self._assemble(batch)
        ready = ReadyBatch(batch, decoded, triplets, poll_seconds, self._clock() - began, alone)
        if not self._offer(ready):
            return False
        # where to read on should the source have to be opened again
        self._positions[batch.partition] = decoded.next_offset
        self._known.pop(batch.partition, None)
        if batch.damaged is None:
            self._known[batch.partition] = decoded.last_digest.hex()
        return True

    def _offer(self, ready: ReadyBatch | Growth) -> bool:
        """Hand a batch or growth over, however long the loop takes; False when `stop` came meanwhile."""
        while not self._closing.is_set():
            self._pulse.beat("waiting for the loop")
            if self._room.acquire(timeout=POLL_SECONDS):
                self._queued += 1
                self._queue.put(ready)
                return True
        return False


def learned_up_to(progress: Progress, reader: Reader) -> dict[int, int]:
    """Per partition, the offset below which nothing is left to learn, gaps without records included."""
    applied, reached = progress.next_offsets(), reader.reached() or {}
    return {partition: max(at, reached.get(partition, at)) for partition, at in applied.items()}
