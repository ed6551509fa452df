"""Settings beside each other on the clicks of the owner's own lists, also for kinds of queries that never
came.

`python -m tests.quality.bench.sweep sentences --epsilon 1 3 --start own identity --C 0.03 0.1`: a line for
each setting, form and number of lists: differences to the owner's ranking, mAP / P@10, on queries of kinds
that were clicked and of kinds that never were.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt

from tests.quality.bench.cells import QUERIES
from tests.quality.bench.forms import Eigen, Form, own_scores, scores
from tests.quality.bench.geometry import mapped
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import SETS, Ints, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import CLICKS, Users, split

Pairs = dict[str, npt.NDArray[np.float64]]


def measured(
    name: str, clicks: str, seed: int, epsilon: float, how: Learning, made: list[Form], lists: list[int]
) -> Iterator[tuple[int, Form, Pairs]]:
    """(lists, form, kinds of queries -> difference to the owner's ranking of [mAP, P@10]); a quarter of the
    classes never comes."""
    data, who = load(name), split(load(name), seed, kinds=True)
    space, users = mapped(data, "precondition", epsilon=epsilon), Users(data, clicks, seed, who)
    queries = {"seen": who.judged[:QUERIES], "unseen": _some(who.unseen)}

    def found(of: Scores) -> Pairs:
        return {kind: np.array(judge(of, data.labels, rows).pair) for kind, rows in queries.items()}

    own, W, before = found(own_scores(data.joined())), space.first(how.start), 0
    for count in lists:
        part = users.look(own_lists(name), count - before)
        W, before = step(W, space, part.rows, how.bounds(part.drawn)), count
        eigen = Eigen(W)
        for form in made:
            pairs = found(scores(eigen.matrix(form, space.metric), space.Z))
            yield count, form, {kind: pair - own[kind] for kind, pair in pairs.items()}


def _some(rows: Ints) -> Ints:
    """At equal distances, at most `QUERIES`."""
    return rows[:: max(1, len(rows) // QUERIES)][:QUERIES]


def main() -> None:
    """Print the lines of all combinations."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.sweep", description=__doc__)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lists", type=int, nargs="+", default=[2_000, 32_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--start", nargs="+", choices=["own", "mean", "identity"], default=["mean"])
    parser.add_argument("--C", type=float, nargs="+", default=[0.1])
    parser.add_argument("--negative", type=float, nargs="+", default=[1.0])
    parser.add_argument("--power", type=float, nargs="+", default=[1.0, 1.5])
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.3, 1.0])
    asked = parser.parse_args()
    made = [Form(power, share) for power, share in product(asked.power, asked.share)]
    for epsilon, start, C, negative in product(asked.epsilon, asked.start, asked.C, asked.negative):
        how = Learning(start, C, negative)
        for count, form, pairs in measured(
            asked.set, asked.clicks, asked.seed, epsilon, how, made, asked.lists
        ):
            found = ", ".join(f"{kind} {ap:+.3f} / {p10:+.3f}" for kind, (ap, p10) in pairs.items())
            setting = f"epsilon {epsilon}, {start}, C {C}, negatives {negative}"
            print(f"{setting}, {count:,} lists, power {form.power} share {form.share}: {found}", flush=True)


if __name__ == "__main__":
    main()
