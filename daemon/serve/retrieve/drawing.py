"""A random object of those that a query may be answered with, each as likely, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from daemon.serve.interleave import Drawn
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Query
from daemon.serve.retrieve.finding import allowed_rows


def draw(
    snapshot: IndexSnapshot, query: Query, left_out: Sequence[str], below: Callable[[int], int]
) -> Drawn | None:
    """One of the living objects that the filters allow, less the query's own and those left out; None where
    none is left. below: a random whole number from 0 to below its argument, each as likely.

    Looks at every row where there are tags or dead rows, else at none.
    """
    gone = {query.id or "", *query.exclude, *left_out}
    if query.include is None:
        rows = [
            np.arange(len(part)) if mask is None else np.flatnonzero(mask)
            for part, mask in zip(
                snapshot.parts, allowed_rows(snapshot, query.tags, frozenset()), strict=True
            )
        ]
        parts, places = snapshot.find_many(sorted(gone))
    else:
        parts, places = snapshot.find_many(sorted(query.include - gone))
        masks = allowed_rows(snapshot, query.tags, frozenset())
        rows = [np.unique(places[parts == number]) for number in range(len(snapshot.parts))]
        rows = [here if mask is None else here[mask[here]] for here, mask in zip(rows, masks, strict=True)]
        parts, places = parts[:0], places[:0]
    rows = [
        np.setdiff1d(here, places[parts == number], assume_unique=True) for number, here in enumerate(rows)
    ]
    eligible = sum(map(len, rows))
    if not eligible:
        return None
    chosen = below(eligible)
    for number, here in enumerate(rows):
        if chosen < len(here):
            return Drawn(snapshot.id_at(number, int(here[chosen])), eligible)
        chosen -= len(here)
    raise AssertionError("the number drawn is below the number of rows")
