"""Learners after equal numbers of triplets: LEGO along the stream of OASIS, OASIS at the number of kernels.

In the tables of the sets a row ends where its own stream does, 500,000 triplets for OASIS and 40,000 or
20,000 for learners that cost more, so those rows do not compare what a triplet teaches. Here each number of
triplets has settings of its own, chosen by validation, and all rows are judged on the same test objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from learners import Lego, LegoConfig, Oasis, OasisConfig
from tests.results import cells, curves
from tests.results.curves import learned, new_task, of_test
from tests.results.data import SETS, Space, Task
from tests.results.systems import Fits, System, best_by_row, trained, validate
from tests.results.systems_kernels import (
    COMPONENTS,
    MOST,
    OKS_BEST,
    ONE,
    PRINTED_HEDGE,
    UNIFORM,
    described,
)
from tests.results.systems_kernels import SYSTEMS as OF_KERNELS
from tests.results.systems_matrix import CS, as_learned, raw, served

MOST_SEEDS = 3
COUNTS = (40_000, 160_000, 500_000)
ETAS = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)

OASIS, LEGO = "OASIS", "LEGO"
GRIDS: Mapping[str, tuple[Sequence[float], Callable[[Space, float], Any], Callable[..., Any]]] = {
    OASIS: (CS, lambda space, C: Oasis(space.dim, OasisConfig(C=C, start=space.start)), raw),
    LEGO: (ETAS, lambda space, eta: Lego(space.dim, LegoConfig(eta=eta, start=space.start)), as_learned),
}
"""Learner -> its settings, what makes it, and the scores that it learns by."""


Tried: TypeAlias = tuple[float, float, float]
"""mAP of validation and of the test part, and the setting."""


def distances(name: str, seed: int, counts: Sequence[int] = COUNTS, task: Task | None = None) -> curves.Found:
    """LEGO and OASIS along the same triplets: row -> for each number, the best setting by validation, its
    validation and its test mAP; and the seconds of one setting, without forms."""
    task = task or new_task(name, seed)
    found: curves.Found = {"counts": list(counts)}
    for learner_name, (grid, make, scored) in GRIDS.items():
        forms = {learner_name: scored, f"{learner_name}, served": served}
        tried: dict[str, list[list[Tried]]] = {row: [[] for _ in counts] for row in forms}
        for setting in grid:
            learner = make(task.space, setting)
            steps, began = learned(task, task.space, learner, counts), time.process_time()
            seconds = 0.0
            for at, _ in enumerate(steps):
                seconds += time.process_time() - began
                for row, form in forms.items():
                    scores = form(learner, task.space)[0]
                    tried[row][at].append((validate(task, scores), of_test(task, scores), setting))
                began = time.process_time()
            found[f"{learner_name}, seconds"] = seconds
        for row, every in tried.items():
            best = [max(one) for one in every]
            found[row] = [{"setting": one[2], "validation": one[0], "map": one[1]} for one in best]
    return found


FEW, SAME = "OASIS, space of the tables", "OASIS, features of the kernels"


def few(task: Task) -> Fits:
    """OASIS from as many triplets as kernels get: in the space of the tables, and on what kernels get."""
    same = described(task, by_block=False)

    def settings(space: Space, row: str) -> Iterator[Fits]:
        for C in CS:
            learner = Oasis(space.dim, OasisConfig(C=C, start=space.start))
            yield trained(task, space, learner, {row: raw, f"{row}, served": served}, MOST, f"C = {C:g}")

    return best_by_row(settings(task.space, FEW)) | best_by_row(settings(same, SAME))


FEW_SYSTEM = System("few", (FEW, f"{FEW}, served", SAME, f"{SAME}, served"), few)
KERNEL_SYSTEMS = (
    FEW_SYSTEM,
    *(one for one in OF_KERNELS if {ONE, OKS_BEST, PRINTED_HEDGE} & set(one.rows)),
)
KERNEL_ROWS = (FEW, SAME, ONE, OKS_BEST, UNIFORM, PRINTED_HEDGE, f"{FEW}, served", f"{SAME}, served")


def measure(seeds: int) -> None:
    """What is missing."""
    for seed in range(min(seeds, MOST_SEEDS)):
        for name in SETS:
            curves.measure("equal", name, seed, distances)
        for system in KERNEL_SYSTEMS:
            for name in system.sets:
                cells.measure(system, name, seed)


def lines() -> Iterator[str]:
    """Two tables, of what was measured."""
    found = {name: every for name in SETS if (every := list(_kept(name)))}
    if not found:
        return
    yield f"By `python -m tests.results --systems --sections equal --seeds {MOST_SEEDS} --write`; mAP:"
    yield ""
    rows = [row for name in GRIDS for row in (name, f"{name}, served")]
    yield f"| set | triplets | {' | '.join(rows)} | settings | seeds |"
    yield "|---" * (4 + len(rows)) + "|"
    for name, every in found.items():
        for at, count in enumerate(every[0]["counts"]):
            told = " | ".join(_mean([one[row][at]["map"] for one in every]) for row in rows)
            settings = "; ".join(_settings(row, [one[row][at]["setting"] for one in every]) for row in GRIDS)
            yield f"| {name} | {count:,} | {told} | {settings} | {len(every)} |"
    yield ""
    for name, every in found.items():
        seconds = [np.mean([one[f"{learner}, seconds"] for one in every]) for learner in GRIDS]
        yield (
            f"{name}: {every[0]['counts'][-1]:,} triplets take {OASIS} {seconds[0]:.1f} s of a processor and "
            f"{LEGO} {seconds[1]:.1f} s, {seconds[1] / seconds[0]:.1f} times as long."
        )
    yield ""
    yield from _kernel_table()


def _kernel_table() -> Iterator[str]:
    of = {row: system for system in KERNEL_SYSTEMS for row in system.rows}
    every = {
        (row, name): {seed: cell.rows[row].map for seed, cell in cells.seeds_of(name, of[row])}
        for row in KERNEL_ROWS
        for name in of[row].sets
    }
    seeds = {
        name: set.intersection(*(set(maps) for (_, one), maps in every.items() if one == name))
        for name in SETS
    }
    columns = [name for name in SETS if seeds[name]]
    if not columns:
        return
    yield (
        f"After at most {MOST:,} triplets, each row at its best look, mAP. The features of the kernels are "
        f"{COMPONENTS} whitened directions of each view at unit length, tf-idf as it is:"
    )
    yield ""
    yield f"| row | {' | '.join(f'{name} (splits: {len(seeds[name])})' for name in columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for row in KERNEL_ROWS:
        values = ([every.get((row, name), {}).get(seed) for seed in sorted(seeds[name])] for name in columns)
        yield f"| {row} | {' | '.join(_mean([one for one in each if one is not None]) for each in values)} |"
    yield ""


def _kept(name: str) -> Iterator[curves.Found]:
    found = (curves.kept("equal", name, seed) for seed in range(MOST_SEEDS))
    return (one for one in found if one is not None)


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def _settings(row: str, values: Sequence[float]) -> str:
    name = "C" if row == OASIS else "eta"
    return f"{name} = {', '.join(f'{one:g}' for one in sorted(set(values)))}"
