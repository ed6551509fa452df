"""Two lists of nearest objects side by side: what moved from one to the other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Hits = Sequence[tuple[str, float]]


def ranked(own: Hits, other: Hits) -> list[dict[str, Any]]:
    """Each hit with its rank (from 1), and the rank it has in the other list, None when it is not there."""
    elsewhere = {object_id: rank for rank, (object_id, _) in enumerate(other, start=1)}
    return [
        {"id": object_id, "score": score, "rank": rank, "other_rank": elsewhere.get(object_id)}
        for rank, (object_id, score) in enumerate(own, start=1)
    ]


def shared(left: Hits, right: Hits) -> int:
    """How many objects both lists have."""
    return len({one for one, _ in left} & {one for one, _ in right})
