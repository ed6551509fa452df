"""What a learner reads and writes, opened: stream, dead letters, catalog, versions, ledger."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from checkpoints.ledger import Ledger
from checkpoints.versions import VersionStore
from daemon.catalogs import learner_catalog
from daemon.config.schema import Config
from daemon.dead_letters import open_dead
from daemon.versions.storage import open_store
from streams.address import Address
from streams.catalog import Catalog
from streams.catalog_cache import Tell
from streams.decode import BatchDecoder
from streams.open import open_source, prepare_topic
from streams.source import GrowingSource, Sink, Source, TopicIdentity, check_grown


@dataclass(frozen=True, slots=True)
class Inputs:
    """Opened once per run. `identity`: of the topic then. `control` is used at the start, afterwards by the
    housekeeper alone. `place`: the checkpoint folder.
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


def open_inputs(stack: ExitStack, config: Config, tell: Tell | None = None) -> Inputs:
    """Open everything; `stack` closes it. tell: hears how far objects are read; by default a log line. Raises
    the errors of streams and checkpoints."""
    space = config.space_spec()
    catalog = learner_catalog(config, tell)
    address = config.stream.to_address()
    with ThreadPoolExecutor(1) as other:  # a broker may be slow to answer: both topics are opened at once
        opening = other.submit(open_dead, address.dead)
        stack.callback(_close, opening)
        if address.scheme != "kafka":  # whose topics have to exist, which opening them finds out
            prepare_topic(address, config.stream.partitions)
        control = GrowingSource(lambda: open_source(address))
        stack.callback(control.close)
        dead = opening.result()
    stored = open_store(config.checkpoints.path)
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
        config.checkpoints.path,
        stored.versions,
        stored.ledger,
    )


def _close(opening: Future[Sink]) -> None:
    if opening.exception() is None:
        opening.result().close()
