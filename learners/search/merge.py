"""One answer out of the answers of several parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.block import Float32s, Int64s
from learners.search.topk import TopK


def merge_topk(parts: Sequence[TopK], k: int) -> tuple[Float32s, Int64s, Int64s]:
    """(scores, parts, rows), each [m, at most k]: the k best of at least one part, ties by ascending (part,
    row).

    What is absent has score -inf, part -1 and row -1, at the end.
    """
    scores = np.concatenate([scores for scores, _ in parts], axis=1)
    rows = np.concatenate([rows for _, rows in parts], axis=1)
    numbers = np.repeat(np.arange(len(parts)), [part.shape[1] for _, part in parts])
    numbers = np.where(rows >= 0, numbers, -1)
    # Absent ones share the lowest score with nothing that is present: every score is finite.
    order = np.lexsort((rows, numbers, -scores), axis=1)[:, :k]
    best = (np.take_along_axis(array, order, axis=1) for array in (scores, numbers, rows))
    return next(best), next(best), next(best)
