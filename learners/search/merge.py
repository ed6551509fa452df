"""One answer out of the answers of several parts."""

from __future__ import annotations

from collections.abc import Sequence

from learners.block import Float32s, Int64s
from learners.search.topk import TopK


def merge_topk(parts: Sequence[TopK], k: int) -> tuple[Float32s, Int64s, Int64s]:
    """(scores, parts, rows), each [m, k]: the k best of all parts, ties by ascending (part, row).

    What is absent has score -inf, part -1 and row -1.
    """
    raise NotImplementedError
