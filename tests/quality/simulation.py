"""Clicks in, versions out, the best one chosen: the loop of the daemon with its own parts, in one process.

Impressions go through the real routing, rule and negatives of `feed`; events through the real learner;
versions through the real serving form as configured, judge and decision. Only the clicks are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import compress, count

import numpy as np
import numpy.typing as npt

from daemon.config.learners import LearnerConfig, OasisKeys
from daemon.config.schema import ServingConfig, ValidateConfig
from daemon.demo.report import Retrieval, retrieval
from daemon.demo.users import ClickModel, explored_list
from daemon.validate.comparing import Scored, compare
from daemon.validate.evidence import Conclusion, EvidenceRule, Standing, weigh
from daemon.validate.hops import two_clicks_away
from daemon.validate.judge import Judge
from daemon.validate.scorer import Scorer, make_panel
from daemon.versions.algorithms import ALGORITHMS, untrained
from learners.arms import takes
from learners.block import TripletBatch
from streams.event import Event, Impression, ObjectRef
from streams.feed.decide import Decider
from streams.feed.options import FeedSettings
from streams.feed.triplets import CatalogCandidates, Made
from streams.partitions import is_holdout, route_key
from streams.source import OutRecord
from tests.quality.datasets import Dataset

LENGTH = 10
VERSION_EVERY = 8_000
WINDOW = 2_000
BATCH = 1_000
WARM_UP = 1_000
RULE = EvidenceRule(ValidateConfig().alpha, WINDOW)


@dataclass(frozen=True)
class Setting:
    """What is simulated. `uniform` of the 10 shown objects are drawn from the catalog, the rest are the
    ranker's nearest; the ranker is version 0 (`closed_loop` False) or the best version so far. queries: how
    many objects are ever asked for, 0 for all; labels then judge these, as users ask them."""

    clicks: ClickModel
    closed_loop: bool = False
    uniform: int = 0
    queries: int = 0
    events: int = 16_000
    seed: int = 0
    feed: FeedSettings = field(default_factory=FeedSettings)
    serving: ServingConfig = field(default_factory=ServingConfig)
    learner: LearnerConfig = field(default_factory=OasisKeys)


@dataclass
class Run:
    """Versions judged by clicks alone, the one chosen, and what labels say of it and of version 0.

    best_at: which version was best after each.
    """

    before: Retrieval
    after: Retrieval
    newest: Retrieval
    best: int
    judged: list[Conclusion] = field(default_factory=list)
    best_at: list[int] = field(default_factory=list)


Step = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], list[Impression]]
"""Catalog rows of the next BATCH events, a row of the array per role; their weights; and the impressions held
out."""

_DONE: dict[Hashable, tuple[list[Step], Iterator[Step]]] = {}
_FIRST_LISTS: dict[Hashable, npt.NDArray[np.int64]] = {}


class _Undelivered(Decider):
    """Decides as ever; nobody reads records here, and writing them took a third of a simulation's time."""

    def _event_records(self, made: Made, key: bytes) -> tuple[OutRecord, ...]:
        return ()


def _steps(data: Dataset, setting: Setting, lists: Callable[[], npt.NDArray[np.int64]]) -> Iterator[Step]:
    """Simulated clicks on the lists, one per row of the catalog, without end."""
    decider = _Undelivered(setting.feed, CatalogCandidates(data.catalog.ids), frozenset(data.catalog.ids))
    pending: list[Event] = []
    held: list[Impression] = []
    for impression in _impressions(data, setting, lists):
        decision = decider.decide(impression)
        if decision.fate == "holdout":
            held.append(impression)
        # the learner takes pairs above the clicks, as learner.pairs = "above" has it
        kinds = np.array([event.pair for event in decision.made.events], np.uint8)
        pending.extend(compress(decision.made.events, takes("above", kinds)))
        while len(pending) >= BATCH:
            weights = np.array([event.weight for event in pending[:BATCH]])
            yield _rows(data, pending[:BATCH]), weights, held
            del pending[:BATCH]
            held = []


def _impressions(
    data: Dataset, setting: Setting, lists: Callable[[], npt.NDArray[np.int64]]
) -> Iterator[Impression]:
    refs = [ObjectRef(id=one) for one in data.catalog.ids]
    classes = np.unique(data.labels, return_inverse=True)[1]
    rng = np.random.default_rng(setting.seed)
    apart = len(refs) // setting.queries if setting.queries else 1
    asked = len(range(0, len(refs) - apart + 1, apart))
    for number in count(1):
        query = int(rng.integers(asked)) * apart
        near = lists()[query, : LENGTH - setting.uniform]
        shown = explored_list(near, len(refs), query, setting.uniform, rng) if setting.uniform else near
        clicked = setting.clicks(classes[shown] == classes[query], rng)
        yield Impression(f"visit-{number}", number, refs[query], tuple(refs[row] for row in shown), clicked)


def _rows(data: Dataset, events: list[Event]) -> npt.NDArray[np.int64]:
    roles = [[getattr(event, role).id or "" for event in events] for role in ("query", "clicked", "skipped")]
    return np.array([[data.catalog.row_of(one) for one in role] for role in roles], np.int64)


class Simulation:
    """One run over one dataset with the default settings of feed, serving and validation."""

    def __init__(self, data: Dataset, setting: Setting) -> None:
        self._data = data
        self._setting = setting
        self._learner = untrained(
            setting.learner, data.objects.dim, data.columns, data.mapped.slice(0, 1_000)
        )
        self._judge = Judge(data.objects, None, 1_000)
        self._window: list[Impression] = []
        self._judged: list[Conclusion] = []
        self._best_at: list[int] = []
        self._standing = Standing()
        self._held = 0
        self._scorers: dict[int, Scorer] = {}
        self._labelled: dict[int, Retrieval] = {}
        self._make(0)
        self._lists = self._first_lists()
        self._steps = self._replayed() if not setting.closed_loop else _steps(data, setting, self._shown_now)

    def run(self) -> Run:
        """Simulate until `events` triplets are learned."""
        learned = version = 0
        for batch, weights in self.batches():
            self._learner.learn_many(batch, weights)
            learned += BATCH
            if learned % VERSION_EVERY == 0:
                version += 1
                self._publish(version)
            if learned >= self._setting.events:
                break
        best = self._best_at[-1]
        rows = self._holdout_rows()
        before, after, newest = (self._by_labels(number, rows) for number in (0, best, version))
        return Run(before, after, newest, best, self._judged, self._best_at)

    def in_hindsight(self) -> list[Retrieval]:
        """What labels say of every version, by number."""
        rows = self._holdout_rows()
        return [self._by_labels(number, rows) for number in sorted(self._scorers)]

    def batches(self) -> Iterator[tuple[TripletBatch, npt.NDArray[np.float64]]]:
        """Triplets of the simulated clicks with their weights, BATCH at a time, without end; holdout
        impressions go to the window.
        """
        for rows, weights, held in self._steps:
            usable = [one for one in held if 0 < len(one.clicked) < len(one.shown)]
            self._held += len(usable)
            self._window = [*self._window, *usable][-WINDOW:]
            yield TripletBatch(*(self._data.mapped.take(column) for column in rows)), weights

    def _shown_now(self) -> npt.NDArray[np.int64]:
        return self._lists

    def _replayed(self) -> Iterator[Step]:
        """The steps on lists that never change: the same for all learners that begin with these lists."""
        setting, lists = self._setting, self._lists
        users = replace(setting, learner=OasisKeys(), serving=ServingConfig(), events=0)
        key = (self._data.name, repr(users), setting.clicks, sha256(lists.tobytes()).digest())
        if key not in _DONE:
            _DONE[key] = [], _steps(self._data, setting, lambda: lists)
        done, more = _DONE[key]
        for number in count():
            if number == len(done):
                done.append(next(more))
            yield done[number]

    def _publish(self, version: int) -> None:
        self._make(version)
        panel = make_panel(self._data.objects, self._window)
        before, taken = self._best_at[-1] if self._best_at else 0, self._standing.through.get(0, 0)
        needed = (version, 0, before, self._standing.anchor)
        distinct = sorted({*needed})
        scores = self._judge.shown_scores([self._scorers[one] for one in distinct], panel)
        looks = {one: Scored({}, found) for one, found in zip(distinct, scores, strict=True)}  # no measures
        fresh = np.arange(self._held - len(panel), self._held) >= taken
        own, zero, best, anchor = (looks[one] for one in needed)
        states = tuple((number, number * VERSION_EVERY) for number in needed)
        seen = compare(panel, (own, zero, best, anchor), states, fresh, {0: self._held})
        scorers = self._scorers[version], self._scorers[0]
        learned, untrained = two_clicks_away(scorers, panel, len(self._data.objects.ids), 1_000)
        away = learned - untrained
        seen = replace(seen, away=away[~np.isnan(away)].tolist())  # no form of this simulation gives way
        self._standing, outcome = weigh(self._standing, RULE, version, before, seen)
        self._judged.append(outcome)
        now = 0 if outcome.fell else version if outcome.promoted else before
        self._best_at.append(now)
        if self._setting.closed_loop:
            self._lists = self._nearest(now)

    def _make(self, version: int) -> None:
        """The serving form of what is learned now, ready to be judged on any window."""
        forms = ALGORITHMS[self._setting.learner.algorithm].forms
        form = forms.make(self._learner.clone(), version, self._setting.serving)
        self._scorers[version] = Scorer(form, self._data.objects)

    def _first_lists(self) -> npt.NDArray[np.int64]:
        """Version 0's, the same for all learners that score alike before any event."""
        some = self._scorers[0].within_catalog(np.arange(32))
        key = self._data.name, sha256(some.tobytes()).digest()
        if key not in _FIRST_LISTS:
            _FIRST_LISTS[key] = self._nearest(0)
        return _FIRST_LISTS[key]

    def _nearest(self, version: int) -> npt.NDArray[np.int64]:
        size, scorer = len(self._data.mapped), self._scorers[version]
        out = np.empty((size, LENGTH), np.int64)
        for start in range(0, size, 256):
            rows = np.arange(start, min(start + 256, size))
            scores = scorer.within_catalog(rows)
            scores[np.arange(len(rows)), rows] = -np.inf
            best = np.argpartition(-scores, LENGTH, axis=1)[:, :LENGTH]
            order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
            out[rows] = np.take_along_axis(best, order, axis=1)
        return out

    def _holdout_rows(self) -> npt.NDArray[np.int64]:
        feed, ids = self._setting.feed, self._data.catalog.ids
        if self._setting.queries:
            apart = len(ids) // self._setting.queries
            return np.arange(0, len(ids) - apart + 1, apart)
        held = [is_holdout(route_key(ObjectRef(id=one)), feed.holdout_share, feed.seed) for one in ids]
        return np.flatnonzero(held).astype(np.int64)

    def _by_labels(self, version: int, rows: npt.NDArray[np.int64]) -> Retrieval:
        if version not in self._labelled:
            self._labelled[version] = retrieval(
                self._scorers[version].within_catalog, self._data.labels, rows
            )
        return self._labelled[version]
