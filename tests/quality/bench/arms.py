"""The arms of the race for the order of given lists, with default settings: learners of all pairs of a list,
and of the pairs above its clicks and drawn objects, in the geometry of the owner's ranking.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from daemon.validate.comparing import are_nearer
from daemon.validate.judge import MOST_ASKED, order_top
from daemon.validate.preferences import balanced, bets_of
from daemon.validate.race import FORM, NO_BETS, OWN_SHARES, ArmShare, OrderBets
from learners import Oasis, OasisConfig
from learners.block import DenseBlock, TripletBatch
from tests.quality.bench.judged import of_lists, shown
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints, unit

Bools = npt.NDArray[np.bool_]
C = 0.05
MOST = 5
"""Pairs of a list above its clicks that are learned; of both sides twice as many."""


class Arms:
    """Learners by name. U: rows whose inner products are the owner's scores, float32 [n, d]."""

    def __init__(self, U: Floats, seed: int) -> None:
        self._U, self._rng = unit(np.asarray(U, np.float32)), np.random.default_rng((seed, 11))
        self._learners = {name: Oasis(U.shape[1], OasisConfig(C=C)) for name in ("all", "above")}

    def learn(self, lists: Ints, clicks: Bools) -> None:
        """From lists, query and objects int64 [h, 1 + LENGTH], and what was clicked, bool [h, LENGTH]."""
        rows: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self._learners}
        for (query, *objects), clicked in zip(lists.tolist(), clicks, strict=True):
            chosen, free = np.flatnonzero(clicked), np.flatnonzero(~clicked)
            pairs = self._rng.permutation(np.array([(c, s) for c in chosen for s in free]))
            samples = {"all": pairs[: 2 * MOST], "above": pairs[pairs[:, 0] > pairs[:, 1]][:MOST]}
            for name, sample in samples.items():
                rows[name] += [(query, objects[c], objects[s]) for c, s in sample]
            size = len(self._U)
            rows["above"] += [(query, objects[c], int(self._rng.integers(size))) for c in chosen]
        for name, learner in self._learners.items():
            if rows[name]:
                triplets = np.array(rows[name]).T
                learner.learn_many(TripletBatch(*(DenseBlock(self._U[one]) for one in triplets)))

    def scores(self, candidate: ArmShare) -> Scores:
        """Of catalog rows with the catalog, raw and with a share of the owner's ranking."""
        name, share = candidate
        folded = self._U @ self._learners[name].W + np.float32(share) * self._U
        return lambda rows: np.asarray(folded[rows] @ self._U.T, np.float32)

    def bets(self, lists: Ints, clicks: Bools, form: Scores, leader: ArmShare | None) -> OrderBets:
        """As `daemon.validate.comparing.order_bets`; form: scores of the version's form."""
        if not len(lists):
            return NO_BETS
        clicked, asked = shown(clicks), lists[:, 0].tolist()
        given = of_lists(lambda rows: self._U[rows] @ self._U.T, lists)
        raw = {
            name: of_lists(lambda rows, W=learner.W: self._U[rows] @ W @ self._U.T, lists)
            for name, learner in self._learners.items()
        }
        scores = {
            (name, share): one + np.float32(share) * given
            for name, one in raw.items()
            for share in OWN_SHARES
        }
        scores[FORM] = of_lists(form, lists)

        def bets(candidate: ArmShare, other: Floats) -> list[float]:
            ours = scores[candidate]
            return [] if are_nearer(ours, other, clicked) else bets_of(balanced(ours, other, clicked), asked)

        lead = {} if leader is None else {one: bets(one, scores[leader]) for one in scores if one != leader}
        _, first = np.unique(lists[:, 0], return_index=True)
        queries, seen = lists[first[:MOST_ASKED], 0], lists[first[:MOST_ASKED], 1:]
        lengths = np.full(len(seen), seen.shape[1])
        top = order_top(lambda at: self._U[queries[at]] @ self._U.T, queries, seen, lengths, len(self._U))
        return OrderBets({one: bets(one, given) for one in scores}, lead, top)


def reordered(own: Floats, order: Floats, rows: Ints, top: int) -> Floats:
    """Scores by which the first `top` objects of the own ranking are in another order, the query left out."""
    out = own.copy()
    out[np.arange(len(rows)), rows] = np.inf
    first = np.argsort(-out, axis=1, kind="stable")[:, 1 : top + 1]
    ranks = np.argsort(np.argsort(-np.take_along_axis(order, first, axis=1), axis=1), axis=1)
    scale = np.float32(np.abs(own).max() + 1)
    np.put_along_axis(out, first, scale * (np.float32(1 + top) - ranks.astype(np.float32)), axis=1)
    return out
