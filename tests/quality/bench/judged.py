"""Scores of lists that were shown, for the statistics of the product, and by which rule they decide."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from daemon.validate.shown import ShownLists
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints

ALPHA = 0.05
HORIZON = 1_000


def of_lists(scores: Scores, held: Ints) -> Floats:
    """Scores of what was shown, float32 [lists, LENGTH]; each query is scored once."""
    queries, at = np.unique(held[:, 0], return_inverse=True)
    return scores(queries)[at[:, None], held[:, 1:]]


def shown(clicks: npt.NDArray[np.bool_]) -> ShownLists:
    """Lists that are all as long."""
    return ShownLists(np.ones(clicks.shape, bool), clicks, np.ones(clicks.shape))
