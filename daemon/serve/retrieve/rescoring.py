"""Exact scores of what a search has found, for models whose scores are no inner products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemon.serve.items.snapshot import IndexSnapshot
from learners.block import Block, Float32s, Int64s, concatenate
from learners.forms.quadratic import ServedForm
from learners.search import exact_scores

Place = tuple[float, int, int]
"""(score, part, row) of an item."""


@dataclass(frozen=True, slots=True, eq=False)
class Rescoring:
    """How the items that a search found for a query are put in order.

    queries: mapped, row i is that of query i. features: of the items of each part, None where they were not
    made. shortlist: how many items are looked for at least, beside those that are left out of an answer.
    """

    form: ServedForm
    queries: Block
    features: Sequence[Float32s | None]
    shortlist: int

    def ordered(self, snapshot: IndexSnapshot, query: int, parts: Int64s, rows: Int64s) -> list[Place]:
        """Items by descending score, equal ones by part and row. parts, rows: int64 [n], where they are."""
        blocks, features = [], []
        numbers: list[int] = []
        places: list[int] = []
        for number in np.unique(parts).tolist():
            here = np.sort(rows[parts == number])
            blocks.append(snapshot.parts[number].vectors.take(here))
            known = self.features[number]
            if known is not None:
                features.append(known[here])
            numbers += [number] * len(here)
            places += here.tolist()
        if not blocks:
            return []
        items, one = concatenate(blocks), self.queries.slice(query, query + 1)
        known = np.concatenate(features) if len(features) == len(blocks) else None
        found = exact_scores(self.form, one, items, known)
        order: Sequence[int] = np.argsort(-found, kind="stable").tolist()
        return [(float(found[at]), numbers[at], places[at]) for at in order]
