"""Which form of a version clicks alone would serve: the product's statistic and its always-valid bets, on
the lists that were held out, one difference per query, against the owner's ranking.

A form is served once users are found to prefer it; of several, the one they prefer most. As long as none
is, the owner's ranking is. From then on a form stays, that of the newest version, until users are as surely
found to prefer the owner's ranking as the validator asks for. Each form is looked at once per number of
lists, and lists of all of them so far are used: simpler than the validator, which sees every version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from daemon.validate.evidence import FALSE_ALARM_BETS, NOTHING_SEEN
from daemon.validate.measures import ShownLists, by_cluster, differences
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints
from tests.quality.bench.users import Learned

ALPHA = 0.05
HORIZON = 1_000
OWN = "own"


def chosen(forms: Mapping[str, Scores], own: Scores, learned: Learned, lists: int, served: str = OWN) -> str:
    """The name of the form to serve after so many lists, or OWN; served: what was so far."""
    count = int(np.searchsorted(learned.held_of, lists))
    if not count:
        return served
    held = learned.held[:count]
    lists_held = shown(learned.held_clicks[:count])
    before, means = of_lists(own, held), {}
    for name, scores in forms.items():
        values = by_cluster(differences(of_lists(scores, held), before, lists_held), held[:, 0].tolist())
        test = NOTHING_SEEN.take(values, HORIZON)
        if test.found(ALPHA) == "superior":
            means[name] = test.mean
        elif name == served and test.below.log >= math.log(FALSE_ALARM_BETS):
            served = OWN
    return max(means, key=means.__getitem__) if means else served


def of_lists(scores: Scores, held: Ints) -> Floats:
    """Scores of what was shown, float32 [lists, LENGTH]; each query is scored once."""
    queries, at = np.unique(held[:, 0], return_inverse=True)
    return scores(queries)[at[:, None], held[:, 1:]]


def shown(clicks: npt.NDArray[np.bool_]) -> ShownLists:
    """Lists that are all as long."""
    return ShownLists(np.ones(clicks.shape, bool), clicks, np.ones(clicks.shape))
