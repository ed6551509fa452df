"""A random object of those that a query may be answered with, each as likely, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daemon.serve.interleave import Drawn
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Query
from daemon.serve.retrieve.finding import eligible_rows


def draw(
    snapshot: IndexSnapshot, query: Query, left_out: Sequence[str], below: Callable[[int], int]
) -> Drawn | None:
    """One of the living objects that the filters allow, less the query's own and those left out; None where
    none is left. below: a random whole number from 0 to below its argument, each as likely.

    Looks at every row where there are tags or dead rows, else at none.
    """
    rows = eligible_rows(snapshot, query, left_out)
    eligible = sum(map(len, rows))
    if not eligible:
        return None
    chosen = below(eligible)
    for number, here in enumerate(rows):
        if chosen < len(here):
            return Drawn(snapshot.id_at(number, int(here[chosen])), eligible)
        chosen -= len(here)
    raise AssertionError("the number drawn is below the number of rows")
