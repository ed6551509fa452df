"""What a validator reads and writes, opened: holdout, training ends, versions, ledger, catalog, judgments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from checkpoints.ledger import Ledger
from checkpoints.store import Damaged
from checkpoints.versions import VersionStore
from daemon.catalogs import learner_catalog
from daemon.config.schema import Config, FeedConfig
from daemon.dead_letters import open_dead
from daemon.exits import UserError
from daemon.runtime.in_hand import InHand
from daemon.telemetry import ValidateMetrics
from daemon.validate.decide import CLICKS, MEANS, DecisionRule
from daemon.validate.evaluator import AnyEvaluator, CandidateCache, Evaluator, KeyedEvaluator
from daemon.validate.holdout import Holdout
from daemon.validate.judge import Judge, JudgedQueries
from daemon.validate.judgments import Judgments, load_judgments
from daemon.validate.ledger import stood_at
from daemon.validate.scorer import MappedObjects
from daemon.versions.storage import open_store
from streams.event import ObjectRef
from streams.objects.rows import Tell
from streams.open import open_source, prepare_topic
from streams.partitions import is_holdout, past_gaps, route_key
from streams.source import GrowingSource, Source


@dataclass(frozen=True, slots=True)
class ValidatorInputs:
    """What the validator works with. `training` is only asked for what comes after a version; `judgments` is
    None without a file.
    """

    config: Config
    holdout: Holdout
    training: Source
    versions: VersionStore
    ledger: Ledger
    candidates: CandidateCache
    judgments: Judgments | None
    metrics: ValidateMetrics

    @property
    def per_key(self) -> int | None:
        """Impressions that a key needs to be judged; None where one model for all is learned."""
        return self.config.validate.least_impressions if self.config.keys.slots else None

    @property
    def rule(self) -> DecisionRule:
        """By validate.decide; the margin of a model per key was asked of each."""
        if (means := MEANS.get(self.config.validate.decided_by)) is not None:
            return means
        return CLICKS if self.per_key is None else replace(CLICKS, margin=0.0)

    @property
    def by_evidence(self) -> bool:
        """Whether always-valid tests on clicks decide: a race, and one model for all."""
        return self.config.validate.decided_by == "race" and self.per_key is None

    def short_of_end(self, number: int) -> str | None:
        """Where the version stops before the last record of the training topic; None when it has them all."""
        try:
            positions = self.versions.manifest(number).positions
        except Damaged as error:  # refused as a version; the learner's next one tells
            return f"version {number} cannot be read ({error})"
        bounds = self.training.bounds()
        stands = {partition: at.next_offset for partition, at in positions.items()}
        return short_of_end(number, past_gaps(self.training, stands, bounds), bounds)

    def judge(self) -> Judge:
        """The judge for the objects as mapped now; a version must be open."""
        return judge_of(self.config, self.candidates.objects, self.judgments)

    def evaluator(self) -> AnyEvaluator:
        """What versions are measured by, for the objects as mapped now; a version must be open."""
        judge = self.judge()
        return Evaluator(judge) if self.per_key is None else KeyedEvaluator(judge, CLICKS, self.per_key)


def open_inputs(
    stack: ExitStack,
    config: Config,
    metrics: ValidateMetrics,
    tell: Tell | None = None,
    in_hand: InHand | None = None,
    *,
    newest_lists: bool = False,
) -> ValidatorInputs:
    """Open everything; `stack` closes it. tell: hears how far objects are read; by default a log line.
    in_hand: the note of `validate`, None for whoever else reads its lists. newest_lists: the window is that
    of the end of the topic, whichever versions are judged. Raises UserError and the errors of streams and
    checkpoints.
    """
    check_decision(config)
    space = config.space_spec()
    catalog = learner_catalog(config, tell)
    judgments, address = open_judgments(config), config.stream.to_address()
    for topic in (address, address.holdout):
        prepare_topic(topic, config.stream.partitions, "read")
    training = GrowingSource(lambda: open_source(address))
    source, dead = GrowingSource(lambda: open_source(address.holdout)), open_dead(address.dead)
    for opened in (training, source, dead):
        stack.callback(opened.close)
    stored = open_store(config.checkpoints.path)
    in_order = config.validate.judge == "every" and not newest_lists
    return ValidatorInputs(
        config=config,
        holdout=Holdout(
            *(source, dead),
            space=space,
            catalog=catalog,
            size=config.validate.window,
            keyed=config.keys.slots > 0,
            spread=lists_per_held_out(config.feed),
            stood=stood_at(stored.ledger.entries()) if in_order else None,
            in_hand=in_hand,
        ),
        training=training,
        versions=stored.versions,
        ledger=stored.ledger,
        candidates=CandidateCache(stored.versions, space, catalog, config.serving),
        judgments=judgments,
        metrics=metrics,
    )


def lists_per_held_out(feed: FeedConfig) -> int:
    """Records of the holdout topic for each held-out list; those that are learned from may be in it."""
    return math.ceil(1 / feed.holdout_share) if feed.prequential and feed.holdout_share else 1


def short_of_end(
    number: int, positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> str | None:
    """Where the version stops before the end of the training topic; None when it stands at the end. Pure."""
    for partition, (_, end) in sorted(bounds.items()):
        at = positions.get(partition, 0)
        if at < end:
            where = f" in partition {partition}" if len(bounds) > 1 else ""
            return f"version {number} stops at offset {at} of {end}{where}"
    return None


def holdout_rule(config: Config) -> Callable[[str], bool]:
    """Whether routing sends the query with this id to the holdout: such a query is never trained on."""
    share, seed = config.feed.holdout_share, config.feed.seed
    return lambda query_id: is_holdout(route_key(ObjectRef(query_id)), share, seed)


def judged_queries(config: Config, objects: MappedObjects, judgments: Judgments, most: int) -> JudgedQueries:
    """At most `most` queries of the holdout that have judgments."""
    return JudgedQueries(objects, judgments.bind(objects.ids), holdout_rule(config), most)


def judge_of(config: Config, objects: MappedObjects, judgments: Judgments | None) -> Judge:
    """The judge of these objects, with judgments where there are some."""
    most = config.validate.max_queries
    judged = None if judgments is None else judged_queries(config, objects, judgments, most)
    return Judge(objects, judged, most)


def check_decision(config: Config) -> None:
    """Raise UserError where validate.decide asks for what there is not."""
    decide = config.validate.decide
    if decide == "map_clicks" and not config.catalog.path:
        raise UserError(
            'validate.decide = "map_clicks" needs a catalog to rank',
            'set catalog.path, or decide inside the shown lists: "map_shown" or "race"',
        )
    if decide in MEANS and config.keys.slots:
        raise UserError(
            f'validate.decide = "{decide}" is for one model, and [keys] learns one for each key',
            'leave validate.decide at "auto": each key is judged by its own clicks',
        )


def open_judgments(config: Config) -> Judgments | None:
    """The configured judgments; None without. Raises UserError where there is no catalog to rank."""
    if not config.validate.judgments:
        return None
    if config.keys.slots:
        raise UserError(
            "validate.judgments say what is similar to everybody, and [keys] learns what is to each key",
            "leave validate.judgments empty: each key is judged by its own clicks",
        )
    if not config.catalog.path:
        raise UserError(
            "validate.judgments needs a catalog to rank",
            "set catalog.path, or leave validate.judgments empty to decide by clicks",
        )
    return load_judgments(config.validate.judgments)
