"""From a correction to the first answer that obeys it: how many clicks, what questions that mean the same
gain from it, and what other questions lose.

A correction is a click on the right object for a query whose first answer was wrong, as a user makes who
looks further down: the first object of the query's class in the owner's ranking. An answer obeys when that
object comes first; it is right when the first object is of the query's class. Time from a correction to a
change of the answer and the reliability on related queries afterwards are what Bang et al. ask of feedback in
retrieval-augmented generation (Feedback Adaptation for Retrieval-Augmented Generation, arXiv 2604.06647,
2026: correction lag, post-feedback performance).

Learners take a correction as `feed` makes triplets of it: the right object over wrong ones that were answered
above it, at most five, and over one drawn from the catalog. Ordinary lists go on in between. What changes is
counted against the same method that got the same ordinary lists and no correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import TypeAlias

import numpy as np

from learners import Oasis, OasisConfig, OasisSoftmax, OasisSoftmaxConfig
from learners.block import DenseBlock
from streams.feed.options import FeedSettings
from tests.quality.bench import rivals
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import Space, mapped
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import Floats, Ints, RawSet, unit
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import Learned, Users, split
from tests.quality.bench.versions import Version
from tests.results.freshness.answers import best, served
from tests.results.freshness.delays import DAY

WARM = 8_000
"""Lists that came before."""
LATER = 2_000
"""Lists in the hours of the corrections."""
BETWEEN_CLICKS = 10
CORRECTIONS = 12
LOOKED_AT = (1, 2, 3, 5, 10, 20)
"""Clicks after which answers are looked at."""
OTHERS = 120
"""Queries of classes without any correction."""
BOOST, HALF_LIFE = 0.3, DAY
RATE, TEMPERATURE = 2e-3, 0.07

AnyLearner: TypeAlias = Oasis | OasisSoftmax


@dataclass(frozen=True)
class Correction:
    """query: a row that never came. right: the object that is clicked for it."""

    query: int
    right: int


@dataclass(frozen=True)
class Effect:
    """Shares and means. obeyed: the clicked object is first. right: the first object is of the class, for the
    corrected queries. related, related_ap: the same share and mAP of other queries of their classes, which
    never came, minus those without corrections; others, others_ap: of queries of other classes.
    """

    obeyed: float
    right: float
    related: float
    related_ap: float
    others: float
    others_ap: float


@dataclass(frozen=True, eq=False)
class Setting:
    """Who asks what, for one seed."""

    data: RawSet
    seed: int

    @cached_property
    def space(self) -> Space:
        """Where learners learn."""
        return mapped(self.data, "precondition")

    @cached_property
    def lists(self) -> tuple[Learned, Learned]:
        """Those before, and those that come while corrections do."""
        users = Users(self.data, "position", self.seed, split(self.data, self.seed))
        shown = own_lists(self.data.name)
        return users.look(shown, WARM), users.look(shown, LATER)

    @cached_property
    def held(self) -> Ints:
        """Queries that came and were held out, each once."""
        return np.unique(self.lists[0].held[:, 0])

    def started(self) -> Mapping[str, AnyLearner]:
        """Learners that learned from the lists before, by name."""
        start = self.space.first("mean").diagonal().copy()
        made: dict[str, AnyLearner] = {
            "oasis": Oasis(self.space.dim, OasisConfig(start=start)),
            "oasis-softmax": OasisSoftmax(self.space.dim, OasisSoftmaxConfig(start=start)),
        }
        for learner in made.values():
            take(learner, self.space.Z, self.lists[0].rows)
        return made

    def scores(self, learner: AnyLearner) -> Scores:
        """What it answers."""
        shows = learner.oasis.W if isinstance(learner, OasisSoftmax) else None
        return served(Version(learner.W, self.space.Z, self.space.metric, shows), self.held)

    def corrections(self, answering: Sequence[Scores]) -> list[Correction]:
        """Queries that never came, one of a class, whose first answer is wrong by all of these."""
        labels, rows = self.data.labels, split(self.data, self.seed).judged
        wrong = np.logical_and.reduce([labels[first(one, rows)] != labels[rows] for one in answering])
        rows = np.random.default_rng((self.seed, 69)).permutation(rows[wrong])
        _, places = np.unique(labels[rows], return_index=True)
        chosen = rows[np.sort(places)][:CORRECTIONS]
        table = own_scores(self.data.joined())(chosen)
        table[labels[chosen][:, None] != labels] = -np.inf
        table[np.arange(len(chosen)), chosen] = -np.inf
        return [Correction(q, o) for q, o in zip(chosen.tolist(), table.argmax(1).tolist(), strict=True)]

    def related(self, given: Sequence[Correction]) -> Ints:
        """Queries that never came, of classes that are corrected."""
        return self._judged(given, True)

    def others(self, given: Sequence[Correction]) -> Ints:
        """Of classes that are not."""
        return self._judged(given, False)[:OTHERS]

    def _judged(self, given: Sequence[Correction], inside: bool) -> Ints:
        rows, queries = split(self.data, self.seed).judged, [one.query for one in given]
        of_class = np.isin(self.data.labels[rows], self.data.labels[queries])
        return rows[(of_class == inside) & ~np.isin(rows, queries)]


def take(learner: AnyLearner, Z: Floats, rows: Ints) -> None:
    """Learn triplets in order, int64 [3, n]."""
    for start in range(0, rows.shape[1], 1_000):
        learner.learn_many(*(DenseBlock(Z[one]) for one in rows[:, start : start + 1_000]))


def table_of(scores: Scores, rows: Ints) -> Floats:
    """Scores with the catalog, a query being no answer to itself."""
    table = scores(rows).copy()
    table[np.arange(len(rows)), rows] = -np.inf
    return table


def first(scores: Scores, rows: Ints) -> Ints:
    """The first answer to each."""
    return np.asarray(table_of(scores, rows).argmax(1), np.int64)


def triplets(data: RawSet, one: Correction, answer: Ints, rng: np.random.Generator) -> Ints:
    """What a click on the right object teaches, int64 [3, n]. answer: the ten objects that were answered."""
    labels = data.labels
    at = np.flatnonzero(answer == one.right)
    above = answer[: at[0]] if len(at) else answer
    wrong = above[labels[above] != labels[one.query]]
    wrong = rng.permutation(wrong)[: FeedSettings().triplets_per_impression]
    drawn = int(rng.integers(len(labels)))
    while drawn in (one.query, one.right):
        drawn = int(rng.integers(len(labels)))
    skipped = np.append(wrong, drawn)
    return np.stack([np.full(len(skipped), one.query), np.full(len(skipped), one.right), skipped])


def measures(scores: Scores, data: RawSet, rows: Ints) -> tuple[float, float]:
    """(share of queries whose first answer is right, mAP)"""
    right = float(np.mean(data.labels[first(scores, rows)] == data.labels[rows]))
    return right, judge(scores, data.labels, rows).pair[0]


def effect(
    after: Scores, without: Scores, setting: Setting, given: Sequence[Correction], rest: Sequence[Correction]
) -> Effect:
    """What `given` did. rest: all whose classes count as corrected, so that others are always the same."""
    data, rows = setting.data, np.array([one.query for one in given])
    answers = first(after, rows)
    gains = []
    for chosen in (setting.related(given), setting.others(rest)):
        gains += np.subtract(measures(after, data, chosen), measures(without, data, chosen)).tolist()
    return Effect(
        float(np.mean(answers == [one.right for one in given])),
        float(np.mean(data.labels[answers] == data.labels[rows])),
        *gains,
    )


def one_by_one(setting: Setting) -> Iterator[tuple[str, int, int, Effect]]:
    """(method, clicks, correction, what it did) of each correction by itself, ordinary lists going on."""
    made = setting.started()
    given = setting.corrections([own_scores(setting.data.joined()), *map(setting.scores, made.values())])
    ordinary = setting.lists[1]
    for name, learner in made.items():
        without = {}
        control = learner.clone()
        for clicks in range(1, LOOKED_AT[-1] + 1):
            take(control, setting.space.Z, _minute(ordinary, clicks))
            if clicks in LOOKED_AT:
                without[clicks] = setting.scores(control)
        for number, one in enumerate(given):
            rng = np.random.default_rng((setting.seed, number))
            taught, scores = learner.clone(), setting.scores(learner)
            answer = best(table_of(scores, np.array([one.query])))[0]
            for clicks in range(1, LOOKED_AT[-1] + 1):
                take(taught, setting.space.Z, triplets(setting.data, one, answer, rng))
                take(taught, setting.space.Z, _minute(ordinary, clicks))
                if clicks in LOOKED_AT:
                    scores = setting.scores(taught)
                    answer = best(table_of(scores, np.array([one.query])))[0]
                    yield name, clicks, number, effect(scores, without[clicks], setting, [one], given)
    for name, memory in MEMORIES.items():
        none = memory(setting, [], 0)
        for number, one in enumerate(given):
            for clicks in LOOKED_AT:
                yield (
                    name,
                    clicks,
                    number,
                    effect(memory(setting, [one], clicks), none, setting, [one], given),
                )


def _minute(ordinary: Learned, number: int) -> Ints:
    """Triplets of the lists that come between two clicks; number: from 1 on."""
    of = ordinary.of - WARM
    return ordinary.rows[:, (of >= (number - 1) * BETWEEN_CLICKS) & (of < number * BETWEEN_CLICKS)]


def pairs_with(setting: Setting, given: Sequence[Correction], clicks: int) -> rivals.Pairs:
    """All clicks so far, corrections among them."""
    parts = setting.lists
    rows = np.array([(one.query, one.right) for one in given for _ in range(clicks)], np.int64).reshape(-1, 2)
    counts = np.zeros(len(setting.data), np.int64)
    return rivals.Pairs(
        np.concatenate([parts[0].clicked, parts[1].clicked, rows.T], axis=1),
        np.concatenate([parts[0].held_clicked, parts[1].held_clicked], axis=1),
        counts,
        counts,
    )


def rocchio(place: int, setting: Setting, given: Sequence[Correction], clicks: int) -> Scores:
    """A memory of clicks by query; place: of the settings of `rivals.rocchio`."""
    made = rivals.rocchio(setting.data.joined(), pairs_with(setting, given, clicks))
    return next(islice(made, place, None))


def rescored(setting: Setting, given: Sequence[Correction], clicks: int, age: float = 0.0) -> Scores:
    """The owner's ranking, and what is clicked for this very query higher: + BOOST c / (1 + c), c being
    clicks that are forgotten by half in every `HALF_LIFE`. age: of all the clicks."""
    own, count = own_scores(setting.data.joined()), clicks * decayed(age)
    known = {one.query: one.right for one in given}

    def of(rows: Ints) -> Floats:
        table = np.array(own(rows))
        for at, row in enumerate(rows.tolist()):
            if row in known:
                table[at, known[row]] += np.float32(BOOST * count / (1 + count))
        return table

    return of


def decayed(age: float) -> float:
    """What is left of a click, in (0, 1]; age in seconds."""
    return float(0.5 ** (age / HALF_LIFE))


@lru_cache(maxsize=2)
def _without(setting: Setting) -> Scores:
    return _adapter(setting, pairs_with(setting, [], 0))


def adapted(setting: Setting, given: Sequence[Correction], clicks: int) -> Scores:
    """One matrix on both sides, trained on all clicks so far, as it is every
    night."""
    return _adapter(setting, pairs_with(setting, given, clicks)) if given else _without(setting)


def _adapter(setting: Setting, pairs: rivals.Pairs) -> Scores:
    X = setting.data.joined()
    loss = partial(rivals.both_sides, temperature=TEMPERATURE)
    Y = unit(X @ rivals.trained(X, pairs, loss, RATE))
    return lambda rows: Y[rows] @ Y.T


Method: TypeAlias = Callable[[Setting, Sequence[Correction], int], Scores]
SHARP, BROAD = 3, 4
"""Of the settings of Rocchio: a query moves by the whole mean of the clicks of the one nearest query that
came, or of the ten nearest."""
MEMORIES: Mapping[str, Method] = {
    "memory of clicks, nearest query": partial(rocchio, SHARP),
    "memory of clicks, ten nearest": partial(rocchio, BROAD),
    "re-scorer that forgets": rescored,
}
NIGHTLY = "adapter, every night"


def together(setting: Setting, clicks: int, kept_for: int) -> Iterator[tuple[str, Effect, float]]:
    """(method, what all corrections did that came within the same hours, how many are still obeyed after
    `kept_for` further lists, or a day later)."""
    made = setting.started()
    given = setting.corrections([own_scores(setting.data.joined()), *map(setting.scores, made.values())])
    rng, rows = np.random.default_rng((setting.seed, 70)), setting.lists[1].rows
    when = np.sort(rng.integers(rows.shape[1], size=len(given) * clicks))
    order = rng.permutation(np.repeat(np.arange(len(given)), clicks))
    users = Users(setting.data, "position", setting.seed + 1_000, split(setting.data, setting.seed))
    further = users.look(own_lists(setting.data.name), kept_for).rows
    queries, right = np.array([one.query for one in given]), np.array([one.right for one in given])
    for name, learner in made.items():
        control, taught = learner.clone(), learner.clone()
        answers, begin = best(table_of(setting.scores(learner), queries)), 0
        take(control, setting.space.Z, rows)
        for end, number in zip(when.tolist(), order.tolist(), strict=True):
            take(taught, setting.space.Z, rows[:, begin:end])
            begin = end
            take(taught, setting.space.Z, triplets(setting.data, given[number], answers[number], rng))
        take(taught, setting.space.Z, rows[:, begin:])
        found = effect(setting.scores(taught), setting.scores(control), setting, given, given)
        take(taught, setting.space.Z, further)
        yield name, found, float(np.mean(first(setting.scores(taught), queries) == right))
    for name, memory in {**MEMORIES, NIGHTLY: adapted}.items():
        found = effect(memory(setting, given, clicks), memory(setting, [], 0), setting, given, given)
        kept = found.obeyed
        if memory is rescored:
            kept = float(np.mean(first(rescored(setting, given, clicks, DAY), queries) == right))
        yield name, found, kept
