"""How much a pair of a list counts, by how likely users examine the two ranks that it compares. Pure.

A click at rank c over an object passed over at rank s weighs examination(s) / examination(c): the lower a
click, the rarer it comes for the same relevance, and the higher what was passed over, the surer it was seen.
A click over an object that was drawn weighs 1 / examination(c). Both are bounded, and each is brought to the
mean of one over a log with the click rates that the curve was found with: steps keep their usual size.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.feed.options import RULES

MOST = 10.0
"""Of a weight, and 1 / MOST the least, before their mean is brought to one."""
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class ExaminationCurve:
    """examination: of each rank relative to the first, nan where it is not known. shown, clicks: of the ranks
    in the log that it was found with."""

    examination: tuple[float, ...]
    shown: tuple[float, ...]
    clicks: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> ExaminationCurve:
        """Read what `write` wrote, or somebody by hand. Raises ValueError, which names the field."""
        found = tomllib.loads(text)
        columns = [_numbers(found, name) for name in ("examination", "shown", "clicks")]
        examination, shown, clicks = columns
        if len({*map(len, columns)}) != 1 or len(examination) < 2:
            raise ValueError("examination, shown and clicks: expected as many ranks each, at least two")
        if math.isnan(examination[0]) or any(one <= 0 or math.isinf(one) for one in examination):
            raise ValueError("examination: expected numbers above 0, nan where a rank is not known")
        rates = zip(shown, clicks, strict=True)
        if not all(0 <= clicked <= there < math.inf for there, clicked in rates):
            raise ValueError("clicks: expected at least 0 of each rank, and no more than shown")
        if not sum(clicks):
            raise ValueError("clicks: expected at least one")
        return cls(examination, shown, clicks)

    def write(self, about: Mapping[str, str | int]) -> str:
        """As TOML, with what else is said of it."""
        lines = ["# How likely users examine each rank, relative to the first; for feed.position_weights."]
        lines += [
            f'{name} = "{one}"' if isinstance(one, str) else f"{name} = {one}" for name, one in about.items()
        ]
        for name, values in (
            ("examination", [round(one, _DIGITS) for one in self.examination]),
            ("shown", [int(one) for one in self.shown]),
            ("clicks", [int(one) for one in self.clicks]),
        ):
            lines.append(f"{name} = [{', '.join(map(str, values))}]")
        return "\n".join(lines) + "\n"


def _numbers(found: Mapping[str, Any], name: str) -> tuple[float, ...]:
    given = found.get(name)
    if not isinstance(given, list) or not all(type(one) in (int, float) for one in given):
        raise ValueError(f"{name}: expected a list of numbers, one of each rank")
    return tuple(float(one) for one in given)


@dataclass(frozen=True, slots=True)
class PositionWeights:
    """pairs: by clicked and skipped rank; drawn: by clicked rank, for objects that were drawn. Lower ranks
    weigh as the last."""

    pairs: Sequence[Sequence[float]]
    drawn: Sequence[float]

    @classmethod
    def of(cls, curve: ExaminationCurve, rule: str, cap: int) -> PositionWeights:
        """Of the pairs that a rule of `RULES` makes, at most `cap` of a list, 0: all."""
        # of pairs on both sides the mean is one over those above: learners may leave out the others
        rule = "skip_above" if rule == "all_skipped" else rule
        seen: list[float] = []
        for one in curve.examination:
            seen.append(seen[-1] if math.isnan(one) else one)
        ranks = range(len(seen))
        pairs = [[_bounded(seen[s] / seen[c]) for s in ranks] for c in ranks]
        drawn = [_bounded(1 / seen[c]) for c in ranks]
        rates = zip(curve.shown, curve.clicks, strict=True)
        passed = [1 - clicked / shown if shown else 1.0 for shown, clicked in rates]
        total = weighed = 0.0
        for c in ranks:
            made = RULES[rule](len(seen), (c,))
            kept = min(1.0, cap / len(made)) if cap and made else 1.0
            for _, s in made:
                often = curve.clicks[c] * passed[s] * kept
                total += often
                weighed += often * pairs[c][s]
        of_pairs = weighed / total if total else 1.0
        of_drawn = sum(n * one for n, one in zip(curve.clicks, drawn, strict=True)) / sum(curve.clicks)
        return cls(
            [[round(one / of_pairs, _DIGITS) for one in row] for row in pairs],
            [round(one / of_drawn, _DIGITS) for one in drawn],
        )

    def of_pair(self, clicked: int, skipped: int) -> float:
        """Of a pair of ranks, from 0."""
        last = len(self.drawn) - 1
        return self.pairs[min(clicked, last)][min(skipped, last)]

    def of_drawn(self, clicked: int) -> float:
        """Of a click at this rank over an object that was drawn."""
        return self.drawn[min(clicked, len(self.drawn) - 1)]


def _bounded(weight: float) -> float:
    return min(MOST, max(1 / MOST, weight))
