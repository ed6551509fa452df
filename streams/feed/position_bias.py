"""How much of a click is its place: the examination of each rank, relative to the first, out of shown lists.

The position-based model (Richardson, Dominowska and Ragno, WWW 2007): a click at rank k on object d for query
q has the probability theta_k * gamma_qd, examination times relevance. Click rates of ranks also measure
relevance, since better objects stand higher. So clicks are compared only among places whose mean relevance is
the same, here called a group:

- what chance had placed: an object drawn for a place that was drawn (grouped by the length of the list),
  the two objects of a round of a team draft, of which a coin decided who stands first (by the first one's
  rank), and lists that were shuffled (by length);
- else one object for one query, where it was shown at several ranks ("intervention harvesting": Agarwal,
  Zaitsev, Wang, Li, Najork and Joachims, WSDM 2019).

With n_gk places of group g at rank k and c_gk clicks on them, c_gk has the mean n_gk * theta_k * gamma_g.
Given the clicks C_g of a group their ranks are multinomial with p_gk = n_gk theta_k / sum_j n_gj theta_j, in
which gamma_g is gone. The maximum of that likelihood is consistent however many groups there are and however
few places each has, and needs that mean alone (Wooldridge, Journal of Econometrics 90, 1999). Standard errors
are those of the score by list, so clicks of one list may depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

LEAST_RANK_CLICKS = 10
"""Least of a rank that is reported: below it the relative error is above a third."""
LEAST_CLICKS = 100
"""In groups that compare ranks, all together."""
_BLOCK = 1 << 15
"""Groups worked on at a time: some 13 MB an array at 50 ranks."""
_MOST_STEPS = 50
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class ComparedPlaces:
    """Shown places that may be compared: of each its group, rank (from 0), list, and whether clicked."""

    group: Int
    rank: Int
    listed: Int
    clicked: Bool

    def __len__(self) -> int:
        return len(self.group)


@dataclass(frozen=True, slots=True)
class Examination:
    """Examination by rank relative to the first.

    curve float64 [ranks], 1 at the first, nan where it is not known; error float64 [ranks], its standard
    error, 0 at the first. clicks: those that were compared. refused: why there is no curve (then all nan).
    """

    curve: Float
    error: Float
    clicks: int
    refused: str = ""

    @property
    def known(self) -> int:
        """How many ranks it tells."""
        return int(np.isfinite(self.curve).sum())


def estimate(places: ComparedPlaces, ranks: int) -> Examination:
    """The curve of the first `ranks` ranks; what stands lower is left out.

    Known are the ranks with `LEAST_RANK_CLICKS` that are tied to the first by groups, clicks on both sides.
    """
    nothing = np.full(ranks, np.nan)
    counts = _Counts(places, ranks)
    known = counts.tied_to_first()
    compared = counts.keep(known)
    if compared.total < LEAST_CLICKS or known.sum() < 2:
        why = f"{compared.total:,} clicks compare ranks with the first; {LEAST_CLICKS} are needed"
        if compared.total >= LEAST_CLICKS:
            why = "no rank is tied to the first by places that can be compared"
        return Examination(nothing, nothing, compared.total, why)
    at = np.flatnonzero(known)
    log_theta = compared.maximum()
    covariance = compared.covariance(log_theta)
    curve, error = nothing.copy(), nothing.copy()
    curve[at] = np.exp(log_theta)
    error[at] = curve[at] * np.sqrt(np.concatenate(([0.0], np.diag(covariance))))
    return Examination(curve, error, compared.total)


class _Counts:
    """Shown and clicked by group and rank, of groups that have a click and several ranks."""

    def __init__(self, places: ComparedPlaces, ranks: int) -> None:
        inside = places.rank < ranks
        self._places = ComparedPlaces(
            places.group[inside], places.rank[inside], places.listed[inside], places.clicked[inside]
        )
        self._ranks = ranks
        self._restrict()

    def _restrict(self) -> None:
        """Leave out groups of one rank or without a click, and number the others from 0."""
        one, ranks = self._places, self._ranks
        names, group = np.unique(one.group, return_inverse=True)
        cells = np.bincount(group * ranks + one.rank, minlength=len(names) * ranks).reshape(-1, ranks)
        clicks = np.bincount(group, weights=one.clicked, minlength=len(names))
        useful = (np.count_nonzero(cells, axis=1) > 1) & (clicks > 0)
        number = np.cumsum(useful) - 1
        kept = useful[group]
        self._places = ComparedPlaces(
            number[group[kept]], one.rank[kept], one.listed[kept], one.clicked[kept]
        )
        self._shown = cells[useful].astype(np.float64)
        self._clicks = clicks[useful]
        self._by_rank = np.bincount(one.rank[kept], weights=one.clicked[kept], minlength=ranks)

    @property
    def total(self) -> int:
        """The clicks that are compared."""
        return int(self._clicks.sum())

    def tied_to_first(self) -> Bool:
        """bool [ranks]: those that a finite curve can tell.

        The maximum is finite on ranks of which each reaches each other by steps from a rank to one that was
        clicked in a group that shows both (Ford, American Mathematical Monthly 64, 1957).
        """
        ranks, one = self._ranks, self._places
        known = self._by_rank >= LEAST_RANK_CLICKS
        if not known[0]:
            return np.zeros(ranks, np.bool_)
        clicked = np.zeros(self._shown.shape)
        np.add.at(clicked, (one.group, one.rank), one.clicked)
        beats = (self._shown > 0).astype(np.float64).T @ clicked > 0  # [shown beside, clicked]
        beats &= known[:, None] & known[None, :]
        reach = beats | np.eye(ranks, dtype=np.bool_)
        for _ in range(ranks.bit_length()):
            reach = (reach.astype(np.float64) @ reach.astype(np.float64)) > 0
        tied: Bool = known & reach[0] & reach[:, 0]
        return tied

    def keep(self, known: Bool) -> _Counts:
        """The same of these ranks alone, numbered from 0."""
        inside = known[self._places.rank]
        number = np.cumsum(known) - 1
        one = self._places
        kept = ComparedPlaces(
            one.group[inside], number[one.rank[inside]], one.listed[inside], one.clicked[inside]
        )
        return _Counts(kept, max(int(known.sum()), 1))

    def maximum(self) -> Float:
        """log theta float64 [ranks], 0 at the first: Newton's steps, halved while they do not lead upward."""
        at = np.zeros(self._ranks)
        value = self._likelihood(at)
        for _ in range(_MOST_STEPS):
            slope, information = self._derivatives(at)
            step = np.linalg.lstsq(information, slope, rcond=None)[0]
            while np.abs(step).max() > _CLOSE:
                tried = at + np.concatenate(([0.0], step))
                reached = self._likelihood(tried)
                if reached >= value:
                    break
                step = step / 2
            else:
                return at
            at, value = tried, reached
        return at

    def _likelihood(self, log_theta: Float) -> float:
        means = np.log(self._shown @ np.exp(log_theta))
        return float(self._by_rank @ log_theta - self._clicks @ means)

    def _derivatives(self, log_theta: Float) -> tuple[Float, Float]:
        """The gradient [ranks - 1] and minus the second derivatives [ranks - 1, ranks - 1], the first left
        out."""
        ranks, theta = self._ranks, np.exp(log_theta)
        expected, products = np.zeros(ranks), np.zeros((ranks, ranks))
        for begin in range(0, len(self._shown), _BLOCK):
            share = self._shown[begin : begin + _BLOCK] * theta
            share /= share.sum(axis=1, keepdims=True)
            weighted = share * self._clicks[begin : begin + _BLOCK, None]
            expected += weighted.sum(axis=0)
            products += weighted.T @ share
        return (self._by_rank - expected)[1:], (np.diag(expected) - products)[1:, 1:]

    def covariance(self, log_theta: Float) -> Float:
        """Of log theta without the first, float64 [ranks - 1, ranks - 1]: the sandwich, by list.

        A place's part of the score is (clicked - its mean) * (its rank - the mean rank of its group's
        clicks); the residuals of small groups are widened by sqrt(n / (n - 1)), for gamma_g was fitted.
        """
        one, theta = self._places, np.exp(log_theta)
        mass = self._shown @ theta
        size = self._shown.sum(axis=1)
        mean = (self._clicks / mass)[one.group] * theta[one.rank]
        rest = (one.clicked - mean) * np.sqrt(size / (size - 1))[one.group]
        _, listed = np.unique(one.listed, return_inverse=True)
        scores = np.zeros((int(listed.max()) + 1, self._ranks))
        for rank in range(self._ranks):
            away = (one.rank == rank) - (self._shown[:, rank] * theta[rank] / mass)[one.group]
            scores[:, rank] = np.bincount(listed, weights=rest * away, minlength=len(scores))
        _, information = self._derivatives(log_theta)
        bread = np.linalg.pinv(information)
        meat = scores[:, 1:].T @ scores[:, 1:]
        sandwich: Float = bread @ meat @ bread
        return sandwich
