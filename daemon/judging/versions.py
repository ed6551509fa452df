"""One version of a folder scored on held-out lists, in whichever process: the same numbers to the bit.

What `validate` measures is measured by its own code, with one difference: no form is chosen and none is kept
beside a version. A version whose form `validate` chose is scored in that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from threadpoolctl import threadpool_limits

from checkpoints.store import CheckpointError
from daemon.catalogs import learner_catalog
from daemon.config.objects import remember
from daemon.config.schema import Config
from daemon.exits import EX_DATAERR, UserError
from daemon.judging.lists import decode_lists
from daemon.judging.samples import QuerySample, VersionScores
from daemon.validate import measures
from daemon.validate.comparing import Scored, told_by_order
from daemon.validate.evaluator import Candidate, CandidateCache, CandidateRejected
from daemon.validate.inputs import judge_of, open_judgments
from daemon.validate.judge import Judge
from daemon.validate.preferences import Preference
from daemon.validate.scorer import NotFinite, Panel
from daemon.versions.storage import open_store
from streams.catalog import Catalog
from streams.event import Impression

PREFERENCE, PREFERENCE_ERROR = "preference", "preference_error"
"""How much users prefer a version's order to that of version 0, on average over queries, and its error."""
MAP_FULL, MAP_SHOWN = "map_full", "map_shown"
COMPARED = (MAP_FULL, MAP_SHOWN, PREFERENCE, "loss")
"""Measures that two versions are compared by, query by query."""


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A version to score: its number in the folder of config.checkpoints.path, and the encoded lists."""

    config: Config
    number: int
    lists: bytes


@dataclass(frozen=True, slots=True)
class JudgedVersion:
    """What came of it. events: applied up to it; hash: of its state; zero: what version 0 scores there."""

    number: int
    hash: str
    events: int
    scores: VersionScores
    zero: VersionScores


def default_measure(config: Config) -> str:
    """What versions are placed by where nobody says: mAP by judgments where there are some, else by the
    clicks in the shown lists."""
    return MAP_FULL if config.validate.judgments else MAP_SHOWN


def judge_version(task: JudgeTask) -> JudgedVersion:
    """Score one version. Raises UserError for one that cannot be ranked, or is of another space."""
    with threadpool_limits(limits=1):
        remember(task.config.checkpoints)  # a worker's process read no configuration
        desk = _desk(task.lists)
        try:
            opened = desk.opened(task.config)
            zero = opened.open(0)
            version = opened.open(task.number)
            scores, at_zero = (desk.scores(task.config, one, zero) for one in (version, zero))
        except (CandidateRejected, NotFinite, CheckpointError) as error:
            message = f"version {task.number} in {task.config.checkpoints.path} cannot be judged: {error}"
            raise UserError(message, "leave it out, or learn it again", EX_DATAERR) from error
        opened.keep(0)
        manifest = version.manifest
        return JudgedVersion(version.number, manifest.state_hash, version.events, scores, at_zero)


class JudgeDesk:
    """Lists with what is made of them once in a process, whichever versions follow: the catalog, the open
    version 0 of the newest folder, the panel and version 0's scores."""

    def __init__(self, lists: Sequence[Impression]) -> None:
        self._lists = lists
        self._catalog: tuple[str, Catalog | None] | None = None
        self._opened: tuple[str, CandidateCache] | None = None
        self._made: tuple[tuple[str, str, str], Judge, Panel, Scored] | None = None

    def opened(self, config: Config) -> CandidateCache:
        """Opens versions of a configuration's folder; no form is kept beside them."""
        place = repr((config.checkpoints.path, config.catalog, config.space_spec(), config.serving))
        if self._opened is None or self._opened[0] != place:
            self._opened = None  # before the next one is there, or both take memory
            versions = open_store(config.checkpoints.path).versions
            objects = repr((config.catalog, config.space_spec()))
            if self._catalog is None or self._catalog[0] != objects:
                self._catalog = objects, learner_catalog(config, lambda _: None)
            inputs = versions, config.space_spec(), self._catalog[1], config.serving
            self._opened = place, CandidateCache(*inputs, keep_forms=False)
        return self._opened[1]

    def scores(self, config: Config, version: Candidate, zero: Candidate) -> VersionScores:
        """Of a version, against version 0 of its folder. Raises NotFinite, UserError."""
        objects = zero.objects
        known = objects.fitted.id, zero.manifest.state_hash, repr((config.validate, config.serving))
        if self._made is None or self._made[0] != known:
            judge = judge_of(config, objects, open_judgments(config))
            panel = judge.panel(self._lists)
            self._made = known, judge, panel, judge.look(zero.scorer, panel)
        judge, panel, at_zero = self._made[1:]
        found = at_zero if version.number == 0 else judge.look(version.scorer, panel)
        samples = samples_of(panel, found, at_zero, is_zero=version.number == 0)
        own = dict(found.measures) | dict(version.measures)
        if PREFERENCE in samples:
            told = samples[PREFERENCE]
            preference = Preference.of(told.sums[told.lists > 0].tolist())
            if preference.queries > 1:
                own |= {PREFERENCE: preference.mean, PREFERENCE_ERROR: preference.error}
        return VersionScores(own, samples)


@lru_cache(maxsize=1)
def _desk(lists: bytes) -> JudgeDesk:
    return JudgeDesk(decode_lists(lists))


def samples_of(panel: Panel, found: Scored, zero: Scored, *, is_zero: bool = False) -> dict[str, QuerySample]:
    """By measure, what each query of the panel says. Pure."""
    lists = panel.by_time
    query, queries = panel.in_time(panel.group), len(panel.queries)
    ranks = measures.shown_ranks(found.scores, lists.valid)
    precision = measures.shown_average_precision(ranks, lists.clicked, lists.weights)
    loss = measures.shown_hinge(found.scores, lists)
    samples = {
        MAP_SHOWN: QuerySample.of_lists(precision, query, queries),
        "loss": QuerySample.of_lists(loss, query, queries),
    }
    if len(found.precision):
        samples[MAP_FULL] = QuerySample.of_queries(found.precision)
    if not is_zero:
        told = told_by_order(found.scores, zero.scores, lists, panel.plain)
        by_lists = QuerySample.of_lists(told, query, queries)
        samples[PREFERENCE] = QuerySample.of_queries(np.where(by_lists.lists > 0, by_lists.means, np.nan))
    return samples
