"""Which cells there are, and where their rows come from: measured, or kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from tests.quality.bench.sets import load
from tests.results.freshness.corrections import Effect, Setting, one_by_one, together
from tests.results.freshness.delays import DAY, MINUTE
from tests.results.freshness.kept import is_kept, kept
from tests.results.freshness.stream import PER_MINUTE, StreamCell
from tests.results.freshness.worlds import DRIFTS

SEEDS = 3
SETS = ("photos", "lsa")
CLOSED = ("0.3 s", "1 day")
CLOSED_SETS = ("photos",)
"""In the closed loop one set: it takes several times as long as the open one."""


def stream_cells(data: str, seeds: int = SEEDS) -> Iterator[StreamCell]:
    """Those of a set, seed by seed."""
    for seed in range(seeds):
        yield StreamCell(data, "nothing", "from the start", seed)
        for drift in DRIFTS:
            yield StreamCell(data, drift, "steadily", seed)
            if drift != "nothing":
                yield StreamCell(data, drift, "at once", seed)
        for closed in CLOSED if data in CLOSED_SETS else ():
            yield StreamCell(data, "all together", "steadily", seed, closed)


TEXTS = "sentences"
"""What corrections are made in: questions in other words are those of one intent."""
DAY_OF_LISTS = int(PER_MINUTE * DAY / MINUTE)
CLICKS = (1, 10)
"""Of each correction, where all come within the same hours."""


def seeds_there(data: str, most: int) -> int:
    """Of how many seeds, from the first on, everything of a set was measured before."""
    for seeds in range(most, 0, -1):
        if all(is_kept(cell.parts) for cell in stream_cells(data, seeds)):
            return seeds
    return 0


def corrections_there(most: int) -> int:
    """Of how many seeds the corrections were measured before."""
    for seeds in range(most, 0, -1):
        if all(is_kept(parts) for seed in range(seeds) for parts in _correction_parts(seed)):
            return seeds
    return 0


def _correction_parts(seed: int) -> list[tuple[object, ...]]:
    one = ("corrections", "one by one", seed)
    return [one, *(("corrections", "together", clicks, seed) for clicks in CLICKS)]


def one_by_one_rows(seed: int) -> list[tuple[str, int, int, Effect]]:
    """(method, clicks, correction, what it did)"""

    def make() -> Iterator[tuple[object, ...]]:
        for name, clicks, number, found in one_by_one(Setting(load(TEXTS), seed)):
            yield name, clicks, number, *astuple(found)

    rows = kept(("corrections", "one by one", seed), make)
    return [(name, clicks, number, Effect(*rest)) for name, clicks, number, *rest in rows]


def together_rows(clicks: int, seed: int) -> list[tuple[str, Effect, float]]:
    """(method, what all corrections did, the share that is obeyed a day later)"""

    def make() -> Iterator[tuple[object, ...]]:
        for name, found, later in together(Setting(load(TEXTS), seed), clicks, DAY_OF_LISTS):
            yield name, later, *astuple(found)

    rows = kept(("corrections", "together", clicks, seed), make)
    return [(name, Effect(*rest), later) for name, later, *rest in rows]
