"""Position-balanced accuracy: does a version order shown objects better than the order they were shown in?

Users look at the top of a list first, so clicks agree with the shown order, and with whatever similarity
made it, before any version is asked. Here every pair of ranks r < r' counts in both directions: the accuracy
on lists where r was clicked and r' was not, and on lists where r' was clicked and r was not, each with half
the weight however often it occurs. An order that depends on the rank alone is right in one direction and
wrong in the other, so it scores exactly 0.5, whatever the examination probabilities are: they need not be
known, and logged propensities are not used.
"""

from __future__ import annotations

import numpy as np

from daemon.validate.measures import Float, Mask, Scores


class PositionBalance:
    """Counts over the lists of a window, gathered part by part. Memory: two float64 [L, L]."""

    def __init__(self, length: int) -> None:
        self._pairs = np.zeros((length, length))
        self._won = np.zeros((length, length))

    def add(self, scores: Scores, clicked: Mask, valid: Mask) -> None:
        """Take lists: scores [n, L], clicked and valid bool[n, L]. Ties win one half."""
        pairs = clicked[:, :, None] & (valid & ~clicked)[:, None, :]
        above = scores[:, :, None] > scores[:, None, :]
        equal = scores[:, :, None] == scores[:, None, :]
        self._pairs += pairs.sum(axis=0)
        self._won += (pairs & above).sum(axis=0) + 0.5 * (pairs & equal).sum(axis=0)

    def value(self) -> float:
        """Mean over rank pairs of the mean of both accuracies, weighted by a b / (a + b) for the number of
        lists a with the upper and b with the lower rank clicked: the inverse variance of such a mean, up to
        a factor. NaN when no rank pair has both.
        """
        upper = np.triu_indices(len(self._pairs), 1)
        a, b = self._pairs[upper], self._pairs.T[upper]
        both = (a > 0) & (b > 0)
        if not both.any():
            return float("nan")
        a, b = a[both], b[both]
        accuracy: Float = (self._won[upper][both] / a + self._won.T[upper][both] / b) / 2
        weights = a * b / (a + b)
        return float((weights * accuracy).sum() / weights.sum())
