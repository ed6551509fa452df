"""How soon held-out clicks tell that a version is better, by the share of queries that is held out.

`python -m tests.quality.bench.evidence SET` publishes a version at each of `VERSIONS`, bets on each held-out
list once, by the version published next after it, and tells after how many lists "superior" was found. Beside
it what all held-out lists would tell of the newest version: z, the mean of their differences over its error,
and z^2 / 2, what the best bettor would have gained (natural logarithms; ln 20 = 3.0 decides). `--signs` tells
whom each statistic prefers where labels know who is better.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.validate.betting import NOTHING_SEEN
from daemon.validate.preferences import by_cluster, differences
from daemon.validate.shown import ShownLists
from tests.quality.bench.backoff import Giving, Learned, scores_of
from tests.quality.bench.forms import own_scores
from tests.quality.bench.judged import ALPHA, HORIZON, of_lists, shown
from tests.quality.bench.retrieval import Scores, judge, nearest
from tests.quality.bench.sets import SETS, Floats, Ints, load, unit
from tests.quality.bench.users import CLICKS, LENGTH, Users, split

VERSIONS = (250, 500, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000, 32_000)
SERVED = Giving(1.5, 0.3)
QUERIES = 400

Given = Floats | npt.NDArray[np.float64]
Preferred = npt.NDArray[np.float64]
Statistic = Callable[[Given, Given, ShownLists], Preferred]
"""Scores of one ranking, of another, and the lists -> how much more users prefer the first, [-1, 1]."""


def by_scores(own: Given, other: Given, lists: ShownLists) -> Preferred:
    """By standardised scores inside each list: the mean over clicked objects of what the two give them,
    less what the places of clicks before lead to expect. Lists are all as long.
    """
    return _above_expected(_standardised(own) - _standardised(other), lists)


def by_ranks(own: Given, other: Given, lists: ShownLists) -> Preferred:
    """The same by ranks inside each list."""
    ranks = (np.argsort(np.argsort(one, axis=1), axis=1) for one in (own, other))
    first, second = (_standardised(one.astype(np.float32)) for one in ranks)
    return _above_expected(first - second, lists)


def by_gaps(own: Given, other: Given, lists: ShownLists) -> Preferred:
    """By how far apart two objects are scored, as `differences` by which is above: scores are standardised
    over all lists, so that what is surely in order weighs more. Lists are all as long.
    """
    apart = _spread(own) - _spread(other)
    pairs = (lists.clicked[:, :, None] & ~lists.clicked[:, None, :]).astype(np.float64)
    pairs /= np.maximum(1.0, pairs.sum(axis=(1, 2), keepdims=True))
    before = np.cumsum(pairs, axis=0) - pairs
    turned = before.transpose(0, 2, 1)
    share = np.divide(turned, before + turned, out=np.zeros_like(pairs), where=before + turned > 0)
    gaps = apart[:, :, None] - apart[:, None, :]
    widest = np.abs(gaps).max(axis=(1, 2))
    found = (pairs * share * gaps).sum(axis=(1, 2))
    return np.asarray(found / np.maximum(widest, max(float(np.median(widest)), 1e-6)))


def _spread(scores: Given) -> Given:
    centred = scores - scores.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0)
    return np.asarray(centred / np.sqrt(np.mean(centred**2)))


def _standardised(scores: Given) -> Given:
    centred = scores - scores.mean(axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12))


def _above_expected(apart: Given, lists: ShownLists) -> Preferred:
    apart = apart - apart.mean(axis=0)
    before = np.cumsum(lists.clicked, axis=0, dtype=np.float64) - lists.clicked + 1e-3
    expected = (before * apart).sum(axis=1) / before.sum(axis=1)
    above = apart - expected[:, None]
    found = np.where(lists.clicked, above, 0).sum(axis=1) / lists.clicked.sum(axis=1)
    return np.asarray(found / np.maximum(np.abs(above).max(axis=1), 0.5))


STATISTICS: Mapping[str, Statistic] = {
    "order": differences,
    "scores": by_scores,
    "ranks": by_ranks,
    "gaps": by_gaps,
}
"""`order` is what the validator bets on."""


@dataclass(frozen=True)
class Told:
    """What the held-out lists of one run tell. superior: lists after which it was found, None where it was
    not. log: of the capital, at its highest. held: lists held out that have clicks. z: of the newest version
    on all of them. own, newest: mAP and P@10 by labels.
    """

    superior: int | None
    log: float
    held: int
    z: float
    own: tuple[float, float]
    newest: tuple[float, float]

    def __str__(self) -> str:
        found = "never" if self.superior is None else f"after {self.superior:,} lists"
        best = self.z * abs(self.z) / 2
        (before, before_10), (after, after_10) = self.own, self.newest
        return (
            f"superior {found}, capital e^{self.log:.1f} on {self.held:,} lists; of the newest z "
            f"{self.z:+.1f}, e^{best:.1f}; mAP {before:.3f} -> {after:.3f}, "
            f"P@10 {before_10:.3f} -> {after_10:.3f}"
        )


def told(name: str, clicks: str, share: float, seed: int, up_to: int, statistic: Statistic) -> Told:
    """Learn from lists of the owner's ranking and bet as the validator does."""
    data, who = load(name), split(load(name), seed)
    learned, own = Learned(data, who, clicks, seed, share=share), own_scores(data.joined())
    test, superior, highest, z, taken = NOTHING_SEEN, None, 0.0, 0.0, 0
    scores = own
    for count in (one for one in VERSIONS if one <= up_to):
        learned.go_on(count)
        scores = scores_of(learned.form(SERVED), learned.space.Z)
        held = learned.held
        every = statistic(of_lists(scores, held), of_lists(own, held), shown(learned.held_clicks))
        test = test.take(by_cluster(every[taken:], held[taken:, 0].tolist()), HORIZON)
        highest, taken = max(highest, test.above.log), len(held)
        z = float(every.mean() / every.std() * np.sqrt(len(every))) if every.any() else 0.0
        if superior is None and test.found(ALPHA) == "superior":
            superior = count
    pairs = (judge(one, data.labels, who.judged[:QUERIES]).pair for one in (own, scores))
    return Told(superior, highest, taken, z, *pairs)


def signs(name: str, clicks: str, share: float, seed: int, up_to: int) -> Iterator[str]:
    """Whom each statistic prefers where labels tell who is better: a line for each pair of rankings."""
    data, who = load(name), split(load(name), seed)
    learned, X = Learned(data, who, clicks, seed, share=share), data.joined()
    own = own_scores(X)
    learned.go_on(up_to)
    version = scores_of(learned.form(SERVED), learned.space.Z)
    half = np.random.default_rng(seed).permutation(X.shape[1])[: X.shape[1] // 2]
    coarse = own_scores(unit(X[:, half]))
    users = Users(data, clicks, seed + 100, who, share=share)
    before = Held(learned.held, learned.held_clicks)
    after = users.look(nearest(version, LENGTH, len(data)), up_to)
    for what, scores, held in (
        ("the newest version, lists of the own ranking", version, before),
        ("the newest version, its own lists", version, Held(after.held, after.held_clicks)),
        ("half of the columns, lists of the own ranking", coarse, before),
        ("the own ranking to the ninth power, its lists", lambda rows: own(rows) ** 9, before),
    ):
        newest, base = (judge(one, data.labels, who.judged[:QUERIES]).pair for one in (scores, own))
        pair = np.subtract(newest, base)
        found = (f"{way} {_z(one, scores, own, held):+.1f}" for way, one in STATISTICS.items())
        yield f"{what}: mAP {pair[0]:+.3f}, P@10 {pair[1]:+.3f}; z by {', '.join(found)}"


@dataclass(frozen=True)
class Held:
    """Lists held out: query and objects, int64 [h, 1 + LENGTH], and what was clicked, bool [h, LENGTH]."""

    lists: Ints
    clicks: npt.NDArray[np.bool_]


def _z(statistic: Statistic, one: Scores, other: Scores, held: Held) -> float:
    values = statistic(of_lists(one, held.lists), of_lists(other, held.lists), shown(held.clicks))
    return float(values.mean() / values.std() * np.sqrt(len(values))) if values.any() else 0.0


def main() -> None:
    """Print a line for each share, seed and statistic."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.evidence", description=__doc__)
    parser.add_argument("set", choices=[name for name in SETS if name != "tfidf"])
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--share", type=float, nargs="+", default=[0.1, 0.25])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lists", type=int, default=8_000)
    parser.add_argument("--statistic", choices=STATISTICS, nargs="+", default=["order"])
    parser.add_argument("--signs", action="store_true", help="whom each statistic prefers instead")
    asked = parser.parse_args()
    if asked.signs:
        for line in signs(asked.set, asked.clicks, asked.share[-1], 0, asked.lists):
            print(f"{asked.set}, {asked.clicks}: {line}", flush=True)
        return
    for share in asked.share:
        for seed in range(asked.seeds):
            for name in asked.statistic:
                one = told(asked.set, asked.clicks, share, seed, asked.lists, STATISTICS[name])
                print(
                    f"{asked.set}, {asked.clicks}, share {share:g}, seed {seed}, by {name}: {one}", flush=True
                )


if __name__ == "__main__":
    main()
