"""The score itself, for given rows."""

from __future__ import annotations

from learners.block import Float32s, Int64s
from learners.search.items import Items


def score_rows(folded: Float32s, items: Items, scale: Float32s | None, rows: Int64s) -> Float32s:
    """Scores float32 [len(rows)] of one folded query float32 [d] for these rows, bit for bit those of `topk`."""
    raise NotImplementedError
