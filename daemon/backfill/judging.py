"""The verdict on what history taught: the version against the one it began from, on lists of which nothing
was learned.

The lists are the newest held-out ones of the history, found by reading units once more from the newest on,
until there are as many as `validate.window` says. They are judged as `tripletd validate` judges; no verdict
is written to the ledger, for the live holdout has the say there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from checkpoints.store import CheckpointError
from checkpoints.versions import VersionStore
from daemon.backfill.blocks import BlockReader
from daemon.backfill.plan import HistoryProgress, Unit, UnitPlace
from daemon.backfill.shard import reader_options, reading_decider
from daemon.config.schema import Config
from daemon.exits import UserError
from daemon.validate.evaluator import CandidateCache, CandidateRejected, Evaluator
from daemon.validate.evidence import EvidenceRule, Standing, weigh
from daemon.validate.holdout import HeldImpression, Window, is_usable
from daemon.validate.judge import Judge
from daemon.validate.scorer import NotFinite, check_impression
from streams.catalog import Catalog
from streams.codec import decode_impression
from streams.event import Impression
from streams.poison import Poison

READ_AT_ONCE = 50_000
"""Records of a unit that are decided on at once while lists are looked for."""


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """lists: how many were judged. found: better, worse, or not yet, as `validate` concludes; why: what it
    could not be judged for. before, after: measures of the version it began from and of what was learned."""

    lists: int
    found: str
    why: str = ""
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)


def judge(
    config: Config, versions: VersionStore, catalog: Catalog | None, progress: HistoryProgress, number: int
) -> HistoryVerdict:
    """The verdict on version `number` against the one that the backfill began from."""
    if config.keys.slots:
        return HistoryVerdict(
            0, "not judged", "one model per key is learned: `tripletd validate` judges key by key"
        )
    lists = newest_lists(config, catalog, progress)
    least = config.validate.least_impressions
    if len(lists) < least:
        return HistoryVerdict(len(lists), "not judged", f"{len(lists)} held-out lists, {least} are needed")
    window = Window(config.validate.window, {0: 0})
    for at, one in enumerate(lists):
        window.add(HeldImpression(0, at, one))
    cache = CandidateCache(versions, config.space_spec(), catalog, config.serving, keep_forms=False)
    try:
        zero = cache.open(progress.base)
        evaluator = Evaluator(Judge(cache.objects, None, config.validate.max_queries))
        version = cache.open(number, evaluator.chooser(window, by_judgments=False))
        before, after = evaluator.measures(zero, window), evaluator.measures(version, window)
        seen = evaluator.compare((version, zero, zero, zero), window, {})
    except (CandidateRejected, NotFinite, CheckpointError, UserError) as error:
        return HistoryVerdict(len(lists), "not judged", str(error))
    rule = EvidenceRule(config.validate.alpha, config.validate.window)
    _, conclusion = weigh(Standing(), rule, version.number, 0, seen)
    words = {"superior": "better", "inferior": "worse"}
    guards = "; ".join(conclusion.guards)
    return HistoryVerdict(len(lists), words.get(conclusion.found, "not yet decided"), guards, before, after)


def newest_lists(config: Config, catalog: Catalog | None, progress: HistoryProgress) -> list[Impression]:
    """The newest usable held-out lists of the history, by time, each once; at most `validate.window`."""
    wanted, found = config.validate.window, dict[str, Impression]()
    for unit in reversed(progress.units):
        if not unit.paths:
            continue  # a log has its lists in its holdout topic, where validate finds them
        for one in _lists_of(config, catalog, progress, unit):
            found.setdefault(one.id, one)
        if len(found) >= wanted:
            break
    return sorted(found.values(), key=lambda one: (one.ts, one.id))[-wanted:]


def _lists_of(
    config: Config, catalog: Catalog | None, progress: HistoryProgress, unit: Unit
) -> Sequence[Impression]:
    decider = reading_decider(config, catalog, progress.recipe)
    options = reader_options(progress.recipe)
    lists, going = list[Impression](), True
    with closing(BlockReader([unit], UnitPlace(), decider.afresh, options, progress.recipe.format)) as reader:
        while going:
            block = reader.next(READ_AT_ONCE, 0)
            going = block.after is not None
            lists += [one for value in block.held if (one := _usable(config, catalog, value)) is not None]
    return lists


def _usable(config: Config, catalog: Catalog | None, value: bytes) -> Impression | None:
    try:
        impression = decode_impression(value)
        check_impression(impression, config.space_spec(), catalog)
    except Poison:
        return None
    return impression if is_usable(impression) and impression.kind is None else None
