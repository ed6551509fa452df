"""Measures what labels teach on real sets and draws the tables of docs/results.md.

Every cell (a method, a set, a seed) is kept in .cache/results: a run resumes where it stopped. It goes seed
by seed, so that what there is after half of the time is a table of fewer seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import numpy as np

from tests.quality.bench.sets import load
from tests.results import (
    systems_diagonal,
    systems_embeddings,
    systems_given,
    systems_kernels,
    systems_matrix,
    systems_rivals,
)
from tests.results.cells import kept, measure
from tests.results.data import SETS, WHITENED, given_test, overlap, parts_of
from tests.results.systems import System
from tests.results.tables import BEGIN, lines_of, replaced, table, unfinished

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
SYSTEMS: tuple[System, ...] = (
    *systems_given.SYSTEMS,
    *systems_matrix.SYSTEMS,
    *systems_diagonal.SYSTEMS,
    *systems_kernels.SYSTEMS,
    *systems_embeddings.SYSTEMS,
    *systems_rivals.SYSTEMS,
)
SEEDS = 5

SECTIONS = ("ridge", "landmarks", "freshness", "kernels", "pictures", "regime", "equal")
"""Modules of this package that have a section of the page of their own, between markers of their name. Each
has `measure(seeds: int) -> None`, resumable, and `lines() -> Iterator[str]`, its Markdown from what is there;
one that is not there yet is left out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, print or write the tables."""
    asked = arguments_of(arguments)
    sections = [module for name in SECTIONS if name in asked.sections for module in _section(name)]
    if not asked.draw_only:
        measure_all(asked)
        for module in sections:
            module.measure(asked.seeds)
    found = {}
    if asked.systems:  # who measures a section alone leaves the tables of the sets as they are
        found["tables"] = list(tables(SETS if asked.write else asked.sets))
    found |= {module.__name__.rpartition(".")[2]: list(module.lines()) for module in sections}
    if not asked.write:
        print("\n".join(line for lines in found.values() for line in lines))
        return 0
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in found.items():
        if name != "tables" and BEGIN.format(name) not in page:
            print(f"{name} has no place on the page: add {BEGIN.format(name)}", file=sys.stderr)
            continue
        page = replaced(page, name, lines)
    PAGE.write_text(page, encoding="utf-8")
    return 0


def _section(name: str) -> Iterator[ModuleType]:
    if find_spec(f"tests.results.{name}") is not None:
        module = import_module(f"tests.results.{name}")
        if hasattr(module, "measure") and hasattr(module, "lines"):
            yield module


def measure_all(asked: argparse.Namespace) -> None:
    """All cells that are asked for, the first seed of every method first, in so many processes."""
    until = time.time() + 60 * asked.minutes if asked.minutes else float("inf")
    wanted = list(missing(asked))
    if asked.workers == 1:
        for one in wanted:
            _tell(_measured(until, *one))
        return
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("fork")) as pool:
        for told in [pool.submit(_measured, until, *one) for one in wanted]:
            _tell(told.result())


def missing(asked: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """(system, set, seed) of the cells that were not measured before."""
    chosen = [one for one in SYSTEMS if one.name in asked.systems]
    for system in [one for one in chosen if one.needs and find_spec(one.needs) is None]:
        print(f"{system.name} is left out: {system.needs} is not installed", file=sys.stderr)
        chosen.remove(system)
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for name in asked.sets:
            for system in chosen:
                if name in system.sets and seed < system.seeds and kept(name, system, seed) is None:
                    yield system.name, name, seed


def _measured(until: float, system: str, name: str, seed: int) -> str:
    if time.time() > until:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cell = measure(next(one for one in SYSTEMS if one.name == system), name, seed)
    told = ", ".join(f"{row} {one.map:.3f}" for row, one in cell.rows.items())
    return f"{name}, {system}, seed {seed}: {told or cell.unfinished} ({cell.took:.0f} s)"


def _tell(line: str) -> None:
    print(line or "out of time: run again to go on", file=sys.stderr, flush=True)


def tables(names: Sequence[str]) -> Iterator[str]:
    """A table for each set."""
    for name in names:
        lines = lines_of(name, SYSTEMS)
        if not lines:
            continue
        yield f"### {name}"
        yield ""
        yield described(name)
        seeds = 1 + max(seed for line in lines for seed in line.rows)
        yield f"By `python -m tests.results --sections --sets {name} --seeds {seeds} --write`."
        yield ""
        yield from table(lines, overlap(name))
        yield ""
        for why in unfinished(name, SYSTEMS):
            yield why
            yield ""
        yield from elsewhere(name)


def elsewhere(name: str) -> Iterator[str]:
    """Rows that make no sense for a set, and what it lacks."""
    lacking: dict[str, list[str]] = {}
    for system in SYSTEMS:
        if name not in system.sets:
            lacking.setdefault(system.why, []).extend(system.rows)
    if lacking:
        told = "; ".join(f"{why}: {', '.join(rows)}" for why, rows in lacking.items())
        yield f"Not for this set, which lacks what they need. {told[0].upper()}{told[1:]}."
        yield ""


def described(name: str) -> str:
    """A set and its parts in words."""
    data = load(name)
    parts, kept_of = parts_of(data, 0, given_test(name)), WHITENED.get(name)
    dim = sum(min(kept_of or width, width) for width in (view.shape[1] for view in data.views.values()))
    columns = "+".join(str(view.shape[1]) for view in data.views.values())
    classes = len(np.unique(data.labels))
    return (
        f"{len(data):,} objects in {classes} classes, {columns} columns: {len(parts.train):,} to learn from, "
        f"{len(parts.validation):,} to choose by, {len(parts.test):,} to be judged by. Learned in "
        f"{dim} dimensions."
    )


def arguments_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.results", description=__doc__)
    names = [one.name for one in SYSTEMS]
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--systems", nargs="*", choices=names, default=names)
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes, one core each")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no cell after so long; 0: no limit")
    parser.add_argument("--draw-only", action="store_true", help="measure nothing, take what is there")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name}, between its markers")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
