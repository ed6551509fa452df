"""What the textbook's learner makes of the same lists, as a reference: chosen in hindsight.

OASIS (C = .1, from the identity) on the vectors as they were given, over pairs of the click and what else
was shown, and as its score q^T W p, alone or plus three times your own ranking. Rule, C and shares were the
best of a few tried on these very lists, those that judge included: what could be reached, and not what
anybody would have chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from learners import Oasis, OasisConfig, TripletBatch, as_block
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints
from tests.quality.real.lists import ClickedLists

C = 0.1
OWN_SHARES = {"q^T W p": 0.0, "q^T W p + 3 x your ranking": 3.0}
"""What is added of the own ranking, by the name of the score."""
PAIRS = 5
"""Drawn of each list."""
AT_ONCE = 1_000


def triplets(lists: ClickedLists, rng: np.random.Generator) -> Ints:
    """Query, clicked and another object of at most PAIRS pairs of each list, in the order of lists, int64
    [3, n]."""
    chance = rng.random(len(lists.shown))
    chance[lists.starts[:-1] + lists.clicked] = 2.0  # the click itself comes last, and is left out
    order = np.lexsort((chance, lists.of))
    kept = order[(lists.ranks < np.minimum(PAIRS, np.diff(lists.starts) - 1)[lists.of])]
    of = lists.of[kept]
    clicked = lists.shown[lists.starts[:-1] + lists.clicked]
    return np.stack([lists.queries[of], clicked[of], lists.shown[kept]])


def in_hindsight(X: Floats, lists: ClickedLists) -> Mapping[str, Scores]:
    """By the name of the score, learned from all of the lists."""
    learner = Oasis(X.shape[1], OasisConfig(C=C))
    rows = triplets(lists, np.random.default_rng(0))
    for first in range(0, rows.shape[1], AT_ONCE):
        learner.learn_many(TripletBatch(*(as_block(X[one]) for one in rows[:, first : first + AT_ONCE])))
    folded = {name: X @ learner.W + np.float32(share) * X for name, share in OWN_SHARES.items()}
    return {name: partial(_products, rows, X) for name, rows in folded.items()}


def _products(folded: Floats, X: Floats, asked: Ints) -> Floats:
    scores: Floats = folded[asked] @ X.T
    return scores
