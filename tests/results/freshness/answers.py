"""What users get from a model in a state of the world, by labels; clicks as expected, not as drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daemon.demo.users import OTHER, SAME
from daemon.versions.forms import DEFAULT_FORM
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import Floats, Ints
from tests.quality.bench.users import LENGTH
from tests.quality.bench.versions import Version
from tests.results.freshness.worlds import WorldState

EXAMINED = 1 / np.sqrt(np.arange(1, LENGTH + 1))
PANEL = 200
"""Queries that are looked at, of those that never come."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answered:
    """Means over queries. ap, p10: mAP and P@10. clicks: expected of users of the model `position` on a list
    of ten. touched: mAP of the queries that the change touched, NaN for none."""

    ap: float
    p10: float
    clicks: float
    touched: float

    @property
    def row(self) -> tuple[float, float, float, float]:
        """As it is kept."""
        return self.ap, self.p10, self.clicks, self.touched


def expected_clicks(right: npt.NDArray[np.bool_]) -> Doubles:
    """Of users of the model `position` on lists, whether each object is right, bool [lists, LENGTH]."""
    return np.asarray((EXAMINED * np.where(right, SAME, OTHER)).sum(axis=1))


def answered(scores: Scores, state: WorldState, rows: Ints) -> Answered:
    """What the panel `rows` gets of the objects that are there; queries that do not come are left out."""
    queries, objects = state.among(rows)[:PANEL], np.flatnonzero(state.there)
    labels, place = state.labels[objects], np.searchsorted(objects, queries)
    table = scores(queries)[:, objects].copy()
    found = judge(lambda some: table[np.searchsorted(place, some)], labels, place)
    table[np.arange(len(place)), place] = -np.inf
    right = labels[best(table)] == state.labels[queries][:, None]
    touched = state.touched[queries]
    return Answered(
        *found.pair,
        float(expected_clicks(right).mean()),
        float(found.ap[touched].mean()) if touched.any() else float("nan"),
    )


def best(table: Floats) -> Ints:
    """The ten best columns of each row, in order, int64 [rows, LENGTH]."""
    kept = np.argpartition(-table, LENGTH, axis=1)[:, :LENGTH]
    order = np.argsort(-np.take_along_axis(table, kept, axis=1), axis=1, kind="stable")
    return np.take_along_axis(kept, order, axis=1)


def served(version: Version, queries: Ints) -> Scores:
    """The scores of a version as it would be served. queries: that came and are held out, of which the form
    learns what is usual."""
    return version.scores(version.with_usual(DEFAULT_FORM, queries))
