"""What a validator reads and writes, opened: holdout, training ends, versions, ledger, catalog, judgments."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.versions import VersionStore
from daemon.config.model import Config
from daemon.exits import UserError
from daemon.judgments import Judgments, load_judgments
from daemon.space import space_of
from daemon.telemetry import ValidateMetrics
from daemon.validate.decide import FULL_CATALOG, SHOWN_LIST, DecisionRule
from daemon.validate.holdout import Holdout
from daemon.validate.shelf import Shelf
from streams.address import Address, parse_address
from streams.catalog import load_catalog
from streams.errors import TopicMissing
from streams.open import ensure_topic, open_sink, open_source
from streams.source import Sink, Source


@dataclass(frozen=True, slots=True)
class Bench:
    """What the validator works with. `training` is only asked for its ends; `judgments` None without a
    file.
    """

    holdout: Holdout
    training: Source
    versions: VersionStore
    ledger: Ledger
    shelf: Shelf
    judgments: Judgments | None
    metrics: ValidateMetrics

    @property
    def rule(self) -> DecisionRule:
        """Judgments decide where they are configured, else the shown lists under their guard."""
        return SHOWN_LIST if self.judgments is None else FULL_CATALOG


def open_bench(stack: ExitStack, config: Config, metrics: ValidateMetrics) -> Bench:
    """Open everything; `stack` closes it. Raises UserError and the errors of streams and checkpoints."""
    space = space_of(config)
    catalog = load_catalog(Path(config.catalog.path), space) if config.catalog.path else None
    judgments = _open_judgments(config)
    address = parse_address(config.stream.address)
    for topic in (address, address.holdout):
        ensure_topic(topic, config.stream.partitions)
    training, source, dead = open_source(address), open_source(address.holdout), _open_dead(address.dead)
    for opened in (training, source, dead):
        stack.callback(opened.close)
    store = LocalStore(Path(config.checkpoints.path))
    versions = VersionStore(store)
    return Bench(
        holdout=Holdout(source, dead, space=space, catalog=catalog, size=config.validate.window),
        training=training,
        versions=versions,
        ledger=Ledger(store),
        shelf=Shelf(versions, space, catalog, config.serving),
        judgments=judgments,
        metrics=metrics,
    )


def _open_dead(address: Address) -> Sink:
    """The dead-letter topic as it is; one partition where it is new."""
    try:
        return open_sink(address)
    except TopicMissing:
        ensure_topic(address, 1)
        return open_sink(address)


def _open_judgments(config: Config) -> Judgments | None:
    if not config.validate.judgments:
        return None
    if not config.catalog.path:
        raise UserError(
            "validate.judgments needs a catalog to rank",
            "set catalog.path, or leave validate.judgments empty to decide by the shown lists",
        )
    return load_judgments(config.validate.judgments)
