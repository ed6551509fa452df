"""Users who click: stated click models over shown lists, for the demo and for tests of quality.

The clicks are simulated, the objects and their classes are real. A user examines a rank, and clicks an
examined object with probability `SAME` when it is of the query's class and `OTHER` otherwise (the noise).

Models: position-biased (each rank examined on its own with probability 1/sqrt(rank); the examination
hypothesis of Richardson, Dominowska and Ragno, WWW 2007) and cascade (ranks read from the top until the user
is satisfied; Craswell et al., WSDM 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

SAME = 0.8
OTHER = 0.1
SATISFIED = 0.7

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
ClickModel = Callable[[BoolArray, np.random.Generator], tuple[int, ...]]


def position_biased(same: BoolArray, rng: np.random.Generator) -> tuple[int, ...]:
    """Clicked ranks, 0-based and ascending: rank r (from 1) is examined with probability 1/sqrt(r).

    `same[r]` says whether the object at rank r is of the query's class.
    """
    examine = 1.0 / np.sqrt(np.arange(1, len(same) + 1))
    clicked = rng.random(len(same)) < examine * np.where(same, SAME, OTHER)
    return tuple(np.flatnonzero(clicked).tolist())


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


def explored_list(
    nearest: Sequence[int] | IntArray, n_objects: int, query: int, n_uniform: int, rng: np.random.Generator
) -> IntArray:
    """The rows to show: `nearest` and `n_uniform` further objects drawn uniformly, shuffled together.

    Neither the query nor an object twice; `n_objects` is the size of the catalog.
    """
    taken = {query, *map(int, nearest)}
    if n_objects - len(taken) < n_uniform:
        raise ValueError(
            f"{n_objects} objects are too few to draw {n_uniform} beside {len(taken)} taken ones"
        )
    drawn: list[int] = []
    while len(drawn) < n_uniform:
        row = int(rng.integers(n_objects))
        if row not in taken:
            taken.add(row)
            drawn.append(row)
    shown = np.concatenate([np.asarray(nearest, np.int64), np.asarray(drawn, np.int64)])
    rng.shuffle(shown)
    return shown
