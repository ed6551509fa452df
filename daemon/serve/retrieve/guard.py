"""The recall guard: how wide an approximate search has to be under a version, or that it has to be exact.

What an approximate index finds depends on the version that asks: a strong change of W turns the folded
queries away from the directions that the index was made for. So it is measured anew for every version,
before it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learners.block import Int64s

TOP = 10
"""Neighbours that recall is the found share of."""

QUERIES = 64
"""Items of the part, evenly spaced, that ask for their neighbours; recall is then known to about .01, its
standard error, by which it has to be better than what is demanded."""

NARROWEST = 4
"""Cells of the first attempt."""

WORTH = 16
"""A search of more than this part of all cells saves nothing: a row that is looked up costs several times
as much as one of a scan that several queries share."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """What the guard found for one part. width: cells to search, None for exact search. recall: measured at
    that width, 1 for exact; attempts: recall by width, in the order tried. model, items: what it was
    measured for.
    """

    width: int | None
    recall: float
    attempts: tuple[tuple[int, float], ...]
    model: str = ""
    items: int = 0


def saves(width: int, cells: int) -> bool:
    """Whether a search of this many of all cells is worth it."""
    return width * WORTH <= cells


def choose_width(recall_at: Callable[[int], tuple[float, float]], cells: int, least: float) -> Guarded:
    """The narrowest width, doubled each time, whose recall is at least `least` even after its standard
    error is taken off; exact where none is worth it. recall_at: (recall, standard error) at a width.
    """
    attempts: list[tuple[int, float]] = []
    width = NARROWEST
    while saves(width, cells):
        recall, error = recall_at(width)
        attempts.append((width, recall))
        if recall - error >= least:
            return Guarded(width, recall, tuple(attempts))
        width *= 2
    return Guarded(None, 1.0, tuple(attempts))


def recall(exact: Int64s, found: Int64s, own: NDArray[np.int64]) -> tuple[float, float]:
    """(mean, standard error) of the share of the exact rows [m, k] that are among the found rows [m, any],
    query i's own row left out of both (it finds itself in any index); absent rows are -1; (1, 0) where
    there is nothing to find.
    """
    shares = []
    for truth, rows, self_row in zip(exact, found, own, strict=True):
        wanted = set(truth[truth >= 0].tolist()) - {int(self_row)}
        if wanted:
            shares.append(len(wanted & set(rows.tolist())) / len(wanted))
    if not shares:
        return 1.0, 0.0
    return float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))
