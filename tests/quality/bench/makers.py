"""Who made the lists, and what that does to decisions by their order.

`python -m tests.quality.bench.makers SET` goes a closed loop: what is best makes the lists, as soon as a
judgement says so. A version is published after every `EVERY` lists, judged by the lists held out since as
the validator judges it, and `best` follows. With `--learn N` nothing more is published after N lists.
`--every` places bets by order on all lists, whoever made them. `--either` instead compares rankings with the
own one on lists that either made: some are worse than it, and know something of their own. How much worse may
one be and still be promoted?
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.validate.betting import FALSE_ALARM_BETS, NOTHING_SEEN
from daemon.validate.comparing import told_by_order
from daemon.validate.evidence import (
    Comparison,
    EvidenceRule,
    Standing,
    weigh,
)
from daemon.validate.preferences import by_cluster, differences, in_shown_order
from tests.quality.bench.backoff import Learned, scores_of
from tests.quality.bench.evidence import SERVED, Held
from tests.quality.bench.forms import own_scores
from tests.quality.bench.judged import ALPHA, HORIZON, of_lists, shown
from tests.quality.bench.retrieval import Scores, judge, nearest
from tests.quality.bench.sets import SETS, Floats, Ints, RawSet, load, unit
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import CLICKS, LENGTH, Bools, Split, Users, split

EVERY = 1_000
QUERIES = 400
WINDOW = 2_000
RULE = EvidenceRule(ALPHA, HORIZON)
SHARES = (0.75, 0.5, 0.35, 0.25, 0.15)
"""Of the columns that worse rankings see."""
LEARNED = (1_000, 4_000, 12_000)
"""Lists that better ones learned from."""


@dataclass(frozen=True)
class Loop:
    """A closed loop. up_to: lists. learn: lists after which nothing more is learned, 0: never. every: whether
    bets by order are placed on all lists, whoever made them.
    """

    name: str
    clicks: str
    seed: int
    up_to: int
    learn: int
    every: bool

    def run(self) -> Iterator[str]:
        """A line for each judgement: what it found, who is best after it, and what labels say of it."""
        data, who = load(self.name), split(load(self.name), self.seed)
        learned = Learned(data, who, self.clicks, self.seed)
        served: dict[int, Scores] = {0: own_scores(data.joined())}
        maps = {0: judge(served[0], data.labels, who.judged[:QUERIES]).pair[0]}
        lists, best, version, standing, taken = own_lists(self.name), 0, 0, Standing(), 0
        for count in range(EVERY, self.up_to + 1, EVERY):
            learned.go_on(count, lists)
            if not self.learn or count <= self.learn:
                version += 1
                served[version] = scores_of(learned.form(SERVED), learned.space.Z)
                maps[version] = judge(served[version], data.labels, who.judged[:QUERIES]).pair[0]
            held = Held(learned.held[-WINDOW:], learned.held_clicks[-WINDOW:])
            fresh = np.arange(-len(held.lists), 0) >= taken - len(learned.held)
            taken = len(learned.held)
            needed = {version, 0, best, standing.anchor}
            scores = {one: of_lists(served[one], held.lists) for one in needed}
            seen = self._compared(scores, (version, best, standing.anchor), held, fresh, taken)
            before, anchor, hold = best, standing.anchor, standing.hold.log
            standing, outcome = weigh(standing, RULE, version, best, seen)
            best = 0 if outcome.fell else version if outcome.promoted else before
            if best != before:
                lists = nearest(served[best], LENGTH, len(data))
            what = "taken back" if outcome.fell else outcome.found
            clicked = shown(held.clicks[fresh])
            near = {one: in_shown_order(scores[one][fresh], clicked) for one in (0, anchor, before, version)}
            pairs = ", ".join(f"version {one} {share:.2f}" for one, share in sorted(near.items()))
            yield (
                f"{count:,} lists, pairs as shown {pairs}: {what}, best {best}, mAP {maps[best]:.3f} "
                f"(newest {maps[version]:.3f}, own {maps[0]:.3f}); bets against what is best "
                f"e^{max(hold, standing.hold.log):.1f} of e^{math.log(FALSE_ALARM_BETS):.1f}"
            )

    def _compared(
        self, scores: Mapping[int, Floats], of: tuple[int, int, int], held: Held, fresh: Bools, taken: int
    ) -> Comparison:
        version, best, anchor = of
        clicked, queries = shown(held.clicks), held.lists[:, 0]

        def bets(one: int, other: int, where: Bools) -> list[float]:
            if one == other:
                return []
            if self.every:
                found = differences(scores[one], scores[other], clicked)
            else:
                found = told_by_order(scores[one], scores[other], clicked, where)
            told = where & ~np.isnan(found)
            return by_cluster(found[told], queries[told].tolist())

        return Comparison(
            fresh=bets(version, 0, fresh),
            fresh_anchor=bets(version, anchor, fresh),
            fresh_best=bets(best, 0, fresh),
            window_best=bets(version, best, np.ones(len(fresh), bool)) if best else [],
            lists=int(fresh.sum()),
            through={0: taken},
        )


def either(name: str, clicks: str, seed: int, up_to: int) -> Iterator[str]:
    """A line for each ranking: what labels say of it, whether lists of the own ranking would promote it, and
    z of what users prefer by order on these, on lists of its own, and on as many of both.
    """
    data, who = load(name), split(load(name), seed)
    own = own_scores(data.joined())
    base = np.array(judge(own, data.labels, who.judged[:QUERIES]).pair)

    def told(scores: Scores, lists: Ints, users: int) -> npt.NDArray[np.float64]:
        found = Users(data, clicks, seed + users, who).look(lists, up_to)
        one, other = of_lists(scores, found.held), of_lists(own, found.held)
        return differences(one, other, shown(found.held_clicks))

    for what, scores in _rankings(data, who, clicks, seed):
        pair = np.array(judge(scores, data.labels, who.judged[:QUERIES]).pair) - base
        first = told(scores, own_lists(name), 100)
        other = told(scores, nearest(scores, LENGTH, len(data)), 200)
        few = min(len(first), len(other))
        zs = [_z(first), _z(other), _z(first[:few] + other[:few])]
        yield (
            f"{what}: mAP {pair[0]:+.3f}, P@10 {pair[1]:+.3f}; z on lists of the own ranking {zs[0]:+.1f} "
            f"({_promoted(first)}), on its own {zs[1]:+.1f}, on both {zs[2]:+.1f}"
        )


def _rankings(data: RawSet, who: Split, clicks: str, seed: int) -> Iterator[tuple[str, Scores]]:
    X = data.joined()
    for share in SHARES:
        some = np.random.default_rng(seed).permutation(X.shape[1])[: max(1, round(share * X.shape[1]))]
        yield f"cosine on {share:.0%} of the columns", own_scores(unit(X[:, some]))
    learned = Learned(data, who, clicks, seed)
    for count in LEARNED:
        learned.go_on(count)
        yield f"learned from {count:,} lists", scores_of(learned.form(SERVED), learned.space.Z)


def _z(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean() / values.std() * np.sqrt(len(values)))


def _promoted(values: npt.NDArray[np.float64]) -> str:
    test = NOTHING_SEEN
    for place, one in enumerate(values.tolist(), 1):
        test = test.take([one], HORIZON)
        if test.found(ALPHA) == "superior":
            return f"promoted after {place:,}"
    return "never promoted"


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.makers", description=__doc__)
    parser.add_argument("set", choices=[name for name in SETS if name != "tfidf"])
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lists", type=int, default=12_000)
    parser.add_argument("--learn", type=int, default=0, help="learn from so many lists only")
    parser.add_argument("--every", action="store_true", help="bets by order on all lists")
    parser.add_argument("--either", action="store_true", help="rankings on lists of either maker instead")
    asked = parser.parse_args()
    loop = Loop(asked.set, asked.clicks, asked.seed, asked.lists, asked.learn, asked.every)
    for line in either(asked.set, asked.clicks, asked.seed, asked.lists) if asked.either else loop.run():
        print(f"{asked.set}, {asked.clicks}, seed {asked.seed}: {line}", flush=True)


if __name__ == "__main__":
    main()
