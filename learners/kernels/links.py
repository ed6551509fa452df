"""Adding links to a graph of near neighbours: the other way round, and towards rows that few links lead to.

Every row has room for the same number of links; only room that is free is used, so no link is lost.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

from numba import types

from learners.kernels.compile import INDICES_OUT, POINTERS, inlined, kernel

LINKS_OUT = types.int32[:, ::1]


@inlined
def _link(links: Any, counts: Any, in_degree: Any, source: int, target: int) -> bool:
    """Add source -> target where there is room and no such link yet; whether there is one now."""
    for place in range(counts[source]):
        if links[source, place] == target:
            return True
    if counts[source] == links.shape[1]:
        return False
    links[source, counts[source]] = target
    counts[source] += 1
    in_degree[target] += 1
    return True


@kernel(types.void(LINKS_OUT, INDICES_OUT, INDICES_OUT))
def link_back(links: Any, counts: Any, in_degree: Any) -> None:
    """For each link of int32 [N, w] (-1 behind the last) one the other way round, where there is room.

    Overwritten: counts: int32 [N], links of each row; in_degree: int32 [N], links that lead to it.
    """
    counts[:] = 0
    in_degree[:] = 0
    for row in range(len(links)):
        for place in range(links.shape[1]):
            if links[row, place] < 0:
                break
            counts[row] += 1
            in_degree[links[row, place]] += 1
    first = counts.copy()  # those added here have their other way already
    for row in range(len(links)):
        for place in range(first[row]):
            _link(links, counts, in_degree, links[row, place], row)


@kernel(types.void(LINKS_OUT, INDICES_OUT, INDICES_OUT, types.int64, POINTERS, types.int64))
def link_to(links: Any, counts: Any, in_degree: Any, row: int, near: Any, wanted: int) -> None:
    """Link the rows of `near`, int64, nearest first, with `row`, both ways where there is room, until
    `wanted` links lead to it. Else as `link_back`."""
    for other in near:
        if in_degree[row] >= wanted:
            break
        if other != row and _link(links, counts, in_degree, other, row):
            _link(links, counts, in_degree, row, other)
