"""Parts put together answer as one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from learners.search import as_items, merge_topk, topk
from tests.learners.examples import block, rows


def test_parts_answer_as_the_whole() -> None:
    rng = np.random.default_rng(0)
    items = np.round(rows(rng, 90, 6) * 3)  # many ties
    folded = np.round(rows(rng, 5, 6, 1.0) * 3)
    cuts = [0, 40, 40, 41, 90]
    parts = [as_items(block(items[a:b], "dense")) for a, b in pairwise(cuts)]
    scores, numbers, found = merge_topk([topk(folded, part, None, None, 12) for part in parts], 12)
    expected = topk(folded, as_items(block(items, "dense")), None, None, 12)
    assert scores.tobytes() == expected[0].tobytes()
    assert (np.array(cuts)[numbers] + found).tolist() == expected[1].tolist()


def test_what_is_absent_comes_last() -> None:
    folded = np.ones((2, 3), np.float32)
    few, none = (
        as_items(block(np.ones((1, 3), np.float32), "dense")),
        as_items(block(np.ones((0, 3)), "sparse")),
    )
    scores, numbers, found = merge_topk([topk(folded, part, None, None, 3) for part in (none, few)], 3)
    assert numbers.tolist() == [[1, -1, -1]] * 2
    assert found.tolist() == [[0, -1, -1]] * 2
    assert scores.tolist() == [[3.0, -np.inf, -np.inf]] * 2
