"""What one version scores on each query of the held-out lists, and how two are compared: by their difference
on the same queries. Pure, on NumPy arrays.

A query with many lists is one observation, for its lists are alike: the error of a mean over lists is that of
clusters (Liang and Zeger 1986). Two versions are compared on the lists that both were scored on, so that what
makes a query hard for both cancels out.

**Within noise of the best.** Of S versions the one that scores highest is the best of S by chance, too. So a
version is told from it only where its difference is more than the quantile of Student's t at
1 - ALPHA / (S - 1), one-sided. Then all that are not told from it hold the truly best one with probability
1 - ALPHA or more, whichever that is: it would be left out only where one of the S - 1 others surpassed it by
that much (subset selection, Gupta 1965, with Bonferroni's bound for paired differences).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

ALPHA = 0.05
"""Of the intervals, and of leaving out the truly best."""

Float = npt.NDArray[np.float64]

LOWER = frozenset({"loss"})
"""Measures of which less is better."""


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean with its standard error. queries: observations; an infinite error for fewer than two."""

    mean: float
    error: float
    queries: int

    def half_width(self, alpha: float = ALPHA) -> float:
        """Of the interval that has the true mean with probability 1 - alpha."""
        if self.queries < 2:
            return math.inf
        return float(stdtrit(self.queries - 1, 1 - alpha / 2)) * self.error


@dataclass(frozen=True, slots=True, eq=False)
class QuerySample:
    """Sums over the lists of each query, and over how many lists, float64 [Q]; 0 lists where none counts."""

    sums: Float
    lists: Float

    @classmethod
    def of_lists(cls, values: Float, query: npt.NDArray[np.int64], queries: int) -> Self:
        """Values of lists, float64 [n], NaN where a list does not count; query: int64 [n], whose list."""
        counts = ~np.isnan(values)
        sums: Float = np.bincount(query[counts], values[counts], minlength=queries).astype(np.float64)
        return cls(sums, np.bincount(query[counts], minlength=queries).astype(np.float64))

    @classmethod
    def of_queries(cls, values: Float) -> Self:
        """One value for each query, NaN where it does not count."""
        counts = ~np.isnan(values)
        return cls(np.where(counts, values, 0.0), counts.astype(np.float64))

    @property
    def means(self) -> Float:
        """Over the lists of each query, float64 [Q]; 0 without any."""
        return np.divide(self.sums, self.lists, out=np.zeros_like(self.sums), where=self.lists > 0)

    def estimate(self) -> MeanEstimate:
        """The mean over lists."""
        return _estimate(self.sums, self.lists)

    def less(self, other: QuerySample) -> MeanEstimate:
        """The mean difference to another on the queries that both have."""
        both = np.minimum(self.lists, other.lists)
        return _estimate((self.means - other.means) * both, both)

    def to_json(self) -> list[str]:
        """Its arrays, bit for bit."""
        return [base64.b64encode(one.astype("<f8").tobytes()).decode() for one in (self.sums, self.lists)]

    @classmethod
    def from_json(cls, found: Sequence[str]) -> Self:
        """Inverse. Raises ValueError."""
        sums, lists = (np.frombuffer(base64.b64decode(one), "<f8").astype(np.float64) for one in found)
        if len(sums) != len(lists):
            raise ValueError("sums and lists of a sample differ in length")
        return cls(sums, lists)


def _estimate(sums: Float, lists: Float) -> MeanEstimate:
    total, queries = float(lists.sum()), int(np.count_nonzero(lists))
    if not total:
        return MeanEstimate(math.nan, math.inf, 0)
    mean = float(sums.sum()) / total
    if queries < 2:
        return MeanEstimate(mean, math.inf, queries)
    spread = float(np.square(sums - mean * lists).sum()) * queries / (queries - 1)
    return MeanEstimate(mean, math.sqrt(spread) / total, queries)


@dataclass(frozen=True, slots=True, eq=False)
class VersionScores:
    """Of one version: measures as `validate` has them, and samples of those that are means over queries."""

    measures: Mapping[str, float]
    samples: Mapping[str, QuerySample] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON, bit for bit."""
        samples = {name: one.to_json() for name, one in self.samples.items()}
        return {"measures": dict(self.measures), "samples": samples}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Inverse. Raises KeyError, ValueError or TypeError."""
        samples = {name: QuerySample.from_json(one) for name, one in found["samples"].items()}
        return cls({name: float(one) for name, one in found["measures"].items()}, samples)


@dataclass(frozen=True, slots=True)
class PlacedVersion:
    """One row of a comparison. at: which of those given; score: by the measure; to_best: difference to the
    best one; is_best; noise: not told from the best."""

    at: int
    score: MeanEstimate
    to_best: MeanEstimate
    is_best: bool
    noise: bool

    def columns(self) -> dict[str, Any]:
        """Plain values by column; an error of too few queries is infinite."""
        return {
            "score": self.score.mean,
            "half_width": self.score.half_width(),
            "to_best": self.to_best.mean,
            "to_best_half_width": self.to_best.half_width(),
            "is_best": self.is_best,
            "within_noise": self.noise,
        }


def finite(line: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, and no number that is none."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line.items()
    }


def compare(every: Sequence[VersionScores], measure: str) -> list[PlacedVersion]:
    """All that have the measure, the best first, ties in the order given."""
    known = [at for at, one in enumerate(every) if measure in one.samples]
    sign = 1.0 if measure in LOWER else -1.0
    # the mean as the judge has it, to the bit, with the error of its sample
    found = {at: every[at].samples[measure].estimate() for at in known}
    scores = {at: replace(one, mean=every[at].measures.get(measure, one.mean)) for at, one in found.items()}
    known = [at for at in known if scores[at].queries]
    known.sort(key=lambda at: sign * scores[at].mean)
    if not known:
        return []
    best = every[known[0]].samples[measure]
    rows = []
    for at in known:
        difference = every[at].samples[measure].less(best)
        noise = at == known[0] or not is_told(difference, len(known) - 1)
        rows.append(PlacedVersion(at, scores[at], difference, at == known[0], noise))
    return rows


def is_told(difference: MeanEstimate, others: int, alpha: float = ALPHA) -> bool:
    """Whether a version is told from the best of `others` others by this difference, either sign."""
    if difference.queries < 2:
        return False
    bound = float(stdtrit(difference.queries - 1, 1 - alpha / max(1, others))) * difference.error
    return abs(difference.mean) > bound
