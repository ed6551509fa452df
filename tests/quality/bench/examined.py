"""Triplets weighed by how likely users examine the two ranks that they compare, against none weighed.

`python -m tests.quality.bench.examined photos sentences` prints a line for each weighting, form and number of
lists: mAP and P@10 minus those of the same clicks without weights, mean over seeds and its standard error.
Clicks by position on lists of the owner's ranking; the curve is the users' own, 1/sqrt(rank), so that what is
measured is the weighting and not an estimate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from tests.quality.bench.backoff import Giving, Learned, scores_of
from tests.quality.bench.cells import QUERIES
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import SETS, load
from tests.quality.bench.users import LENGTH, split
from tests.quality.bench.users import Learned as Clicked

Doubles = npt.NDArray[np.float64]
CURVE: Doubles = 1 / np.sqrt(np.arange(1, LENGTH + 1))
MOST = 10.0
"""Of a weight before and after its mean is brought to one."""
FORMS = (Giving(1.5, 0.0), Giving(1.5, 0.3))
LISTS = (2_000, 8_000)


@dataclass(frozen=True)
class Weighting:
    """pair: of the examination of the clicked and of the skipped rank. click: of the clicked one, where the
    other object was drawn."""

    pair: Callable[[Doubles, Doubles], Doubles]
    click: Callable[[Doubles], Doubles] = np.ones_like


WEIGHTINGS: Mapping[str, Weighting] = {
    "none": Weighting(lambda c, s: np.ones_like(c)),
    "1/clicked": Weighting(lambda c, s: 1 / c, lambda c: 1 / c),
    "1/clicked, pairs alone": Weighting(lambda c, s: 1 / c),
    "skipped": Weighting(lambda c, s: s),
    "skipped/clicked": Weighting(lambda c, s: s / c, lambda c: 1 / c),
    "skipped/clicked, pairs alone": Weighting(lambda c, s: s / c),
    "(skipped/clicked) squared": Weighting(lambda c, s: (s / c) ** 2, lambda c: 1 / c**2),
    "clicked": Weighting(lambda c, s: c, lambda c: c),
    "clicked/skipped": Weighting(lambda c, s: c / s),
}


def weights(how: Weighting, learned: Clicked) -> Doubles:
    """Of each triplet, float64 [n]: bounded, the mean of pairs and that of drawn objects one each."""
    clicked, skipped = learned.ranks
    found = np.where(
        learned.drawn, how.click(CURVE[clicked]), how.pair(CURVE[clicked], CURVE[np.maximum(skipped, 0)])
    )
    for part in (learned.drawn, ~learned.drawn):
        found[part] /= found[part].mean()
    return np.minimum(found, MOST)


def measured(name: str, seed: int) -> Iterator[tuple[str, int, Giving, Doubles]]:
    """(weighting, lists, form, [mAP, P@10])."""
    data = load(name)
    who = split(data, seed)
    rows = who.judged[:QUERIES]
    for called, how in WEIGHTINGS.items():
        learned = Learned(data, who, "position", seed, weigh=partial(weights, how))
        for count in LISTS:
            learned.go_on(count)
            for form in FORMS:
                served = scores_of(learned.form(form), learned.space.Z)
                yield called, count, form, np.array(judge(served, data.labels, rows).pair)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.examined", description=__doc__)
    parser.add_argument("sets", nargs="+", choices=[name for name in SETS if name != "tfidf"])
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    asked = parser.parse_args()
    for name in asked.sets:
        found: dict[tuple[int, Giving, str], list[Doubles]] = {}
        for seed in range(asked.seeds):
            for called, count, form, pair in measured(name, seed):
                found.setdefault((count, form, called), []).append(pair)
        for (count, form, called), pairs in sorted(
            found.items(), key=lambda one: (one[0][0], one[0][1].told)
        ):
            without = np.array(found[count, form, next(iter(WEIGHTINGS))])
            if called == next(iter(WEIGHTINGS)):
                told = "mAP {:.3f}, P@10 {:.3f}".format(*without.mean(axis=0))
            else:
                away = np.array(pairs) - without
                error = away.std(axis=0, ddof=1) / np.sqrt(len(away)) if len(away) > 1 else away[0] * np.nan
                told = "mAP {:+.4f} ({:.4f}), P@10 {:+.4f} ({:.4f})".format(
                    *np.column_stack([away.mean(axis=0), error]).ravel()
                )
            print(f"{name}, {count:,} lists, {form.told}, {called}: {told}", flush=True)


if __name__ == "__main__":
    main()
