"""A second model of users: they read from the top and stop once they are content."""

from __future__ import annotations

import numpy as np

from daemon.demo.users import OTHER, SAME, BoolArray

SATISFIED = 0.7


def cascade(same: BoolArray, rng: np.random.Generator) -> tuple[int, ...]:
    """Clicked ranks of a user who reads from the top and stops after a click with probability `SATISFIED`."""
    clicked: list[int] = []
    clicks = rng.random(len(same)) < np.where(same, SAME, OTHER)
    stops = rng.random(len(same)) < SATISFIED
    for rank in np.flatnonzero(clicks):
        clicked.append(int(rank))
        if stops[rank]:
            break
    return tuple(clicked)
