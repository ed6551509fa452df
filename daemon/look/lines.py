"""Which versions follow each other: the line that is learned on now, and those it left behind. Pure.

A version's parent says what it went on from, so versions form a tree. The current line is the newest version
and everything it descends from. What remains (versions after the point that a rollback or a branch went back
to, or that were abandoned because a newer one could not be read) forms lines of its own, each from the
version where it left another line. Records learned again after going back are so drawn at the same positions,
on the current line, beside what had been learned from them before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Branch:
    """Version numbers of one line, ascending; `left`: the version of another line it went on from."""

    left: int | None
    numbers: tuple[int, ...]


def lines(parents: Mapping[int, int | None]) -> list[Branch]:
    """The current line first, then those left behind, the newest of them first.

    `parents`: version -> the version it went on from, None for the first one. A parent that is not among the
    versions (its manifest is lost) is taken for the newest known version before it.
    """
    known = sorted(parents)
    taken: set[int] = set()
    found = []
    for newest in reversed(known):
        if newest in taken:
            continue
        numbers: list[int] = []
        at: int | None = newest
        while at is not None and at not in taken:
            taken.add(at)
            numbers.append(at)
            at = _before(parents, known, at)
        found.append(Branch(at, tuple(reversed(numbers))))
    return found


def _before(parents: Mapping[int, int | None], known: list[int], number: int) -> int | None:
    parent = parents[number]
    if parent is None or (parent in parents and parent < number):
        return parent
    limit = min(parent, number - 1)
    return max((one for one in known if one <= limit), default=None)
