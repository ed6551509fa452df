"""Long computations in pieces: whoever calls says how the work is cut, and may rest between two pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

Pieces: TypeAlias = Callable[[int], Iterable[slice]]
"""Cuts range(n) into slices, in order; the next one is asked for when the work of the last is done."""

BATCH_PRODUCTS = 1 << 25
"""Multiplications of one batch: under a millisecond of a core."""
LEAST_ROWS = 16


def whole(count: int) -> Iterator[slice]:
    """All at once."""
    yield slice(0, count)


def batches(rows: int, products: int, pieces: Pieces) -> Iterator[slice]:
    """Batches of rows, each row worth so many multiplications; `pieces` cuts the list of batches.

    Their size follows from the shape alone, since BLAS may give a row other bits among other rows: how the
    work is cut changes no bit.
    """
    step = max(LEAST_ROWS, BATCH_PRODUCTS // max(1, products))
    for piece in pieces(-(-rows // step)):
        for batch in range(piece.start, piece.stop):
            yield slice(batch * step, min((batch + 1) * step, rows))
