"""What is measured once and kept: one method on one set with one seed. A run resumes where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from tests.results.data import Task, task
from tests.results.judge import judge
from tests.results.systems import DidNotFinish, Fit, System

CACHE = Path(__file__).parents[2] / ".cache" / "results"
VERSION = 2
"""Of what a cell means: one that was kept under another is made again."""


@dataclass(frozen=True)
class Row:
    """A row of one seed, on the test part. map, macro: mean average precision over queries and over classes.
    precision: at the ranks 1..50. by_class: mean average precision by the number of the class. The others as
    in `Fit`; curve is of validation.
    """

    map: float
    macro: float
    precision: list[float]
    by_class: dict[str, float]
    validation: float
    chosen: str = ""
    triplets: int | None = None
    seconds: float = 0.0
    zeros: float | None = None
    curve: list[list[float]] = field(default_factory=list)
    grid: dict[str, float] = field(default_factory=dict)

    def at(self, rank: int) -> float:
        """Precision at a rank up to 50."""
        return self.precision[rank - 1]


@dataclass(frozen=True)
class Cell:
    """rows: by name. took: seconds of a processor for all of it, choosing included. unfinished: why rows are
    missing. edition: of the system."""

    rows: dict[str, Row]
    took: float = 0.0
    unfinished: str = ""
    edition: int = 1

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What was kept there, None where nothing was or it meant something else."""
        if not path.exists():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("version") != VERSION:
            return None
        rows = {name: Row(**row) for name, row in found.pop("rows").items()}
        return cls(rows, **found)

    def write(self, path: Path) -> None:
        """Keep it; whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps({"version": VERSION, **asdict(self)}, indent=1), encoding="utf-8")
        beside.replace(path)


def path_of(name: str, system: str, seed: int, folder: Path | None = None) -> Path:
    """Where the cell of a set, a system and a seed is kept."""
    return (folder or CACHE) / name / system / f"{seed}.json"


def kept(name: str, system: System, seed: int, folder: Path | None = None) -> Cell | None:
    """The cell, if it was measured before, and by what the system does now."""
    found = Cell.read(path_of(name, system.name, seed, folder))
    return found if found is not None and found.edition == system.edition else None


def measure(
    system: System,
    name: str,
    seed: int,
    folder: Path | None = None,
    load: Callable[[str, int], Task] = task,
) -> Cell:
    """The cell, from the folder or measured now."""
    found = kept(name, system, seed, folder)
    if found is None:
        given, began = load(name, seed), spent()
        try:
            rows, unfinished = system.fit(given), ""
        except DidNotFinish as stopped:
            rows, unfinished = {}, str(stopped)
        judged = {row: tested(given, fit) for row, fit in rows.items()}
        found = Cell(judged, spent() - began, unfinished, system.edition)
        found.write(path_of(name, system.name, seed, folder))
    return found


def spent() -> float:
    """Seconds of a processor that this process and those it waited for took."""
    return sum(os.times()[:4])


def tested(given: Task, fit: Fit) -> Row:
    """The test part is looked at here, and nowhere else."""
    rows = given.parts.test
    found = judge(fit.scores, given.truth, rows, rows)
    return Row(
        found.map,
        found.macro,
        [round(one, 5) for one in found.precision.mean(0).tolist()],
        {str(one): round(ap, 5) for one, ap in found.by_class.items()},
        fit.validation,
        fit.chosen,
        fit.triplets,
        fit.seconds,
        fit.zeros,
        [[count, round(ap, 5)] for count, ap in fit.curve],
        dict(fit.grid),
    )


def seeds_of(name: str, system: System, folder: Path | None = None) -> Iterator[tuple[int, Cell]]:
    """What was measured of a system on a set: (seed, cell) in the order of the seeds."""
    for seed in sorted(
        int(path.stem) for path in path_of(name, system.name, 0, folder).parent.glob("*.json")
    ):
        found = kept(name, system, seed, folder)
        if found is not None:
            yield seed, found
