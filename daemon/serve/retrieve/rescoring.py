"""Exact scores of what a search has found, for models whose scores are no inner products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.serve.items.snapshot import IndexSnapshot
from learners.block import Block, Int64s, concatenate
from learners.search import kept_scores
from learners.search.rescoring import Scores

Place = tuple[float, int, int]
"""(score, part, row) of an item."""


@dataclass(frozen=True, slots=True, eq=False)
class Rescoring:
    """How the items that a search found for a query are put in order.

    scores: the form's own. queries: mapped, row i is that of query i. shortlist: how many items are looked
    for at least, beside those that are left out of an answer.
    """

    scores: Scores
    queries: Block
    shortlist: int

    def ordered(self, snapshot: IndexSnapshot, query: int, parts: Int64s, rows: Int64s) -> list[Place]:
        """Items by descending score, equal ones by part and row. parts, rows: int64 [n], where they are."""
        blocks, numbers, places = [], [], []
        for number in np.unique(parts).tolist():
            here = np.sort(rows[parts == number])
            blocks.append(snapshot.parts[number].vectors.take(here))
            numbers += [number] * len(here)
            places += here.tolist()
        if not blocks:
            return []
        one = self.queries.slice(query, query + 1)
        found = kept_scores(self.scores(one, concatenate(blocks))[0])
        order: Sequence[int] = np.argsort(-found, kind="stable").tolist()
        return [(float(found[at]), numbers[at], places[at]) for at in order]
