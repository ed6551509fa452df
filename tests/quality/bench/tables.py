"""The cells that are done as tables in Markdown: means over seeds, mAP / P@10, over the number of lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tests.quality.bench.cells import HINDSIGHT, LISTS, NEWEST, OURS, YOURS, Cell, Result
from tests.quality.bench.rivals import RIVALS
from tests.quality.bench.sets import load

ROWS = (YOURS, OURS, NEWEST, HINDSIGHT, *RIVALS)

Means = dict[str, dict[int, tuple[float, float, int]]]


def means(cells: Sequence[Cell]) -> tuple[Means, dict[int, int]]:
    """Rows of one set, model and loop: name -> lists -> mean (mAP, P@10) and of how many seeds; and over how
    many each number of lists is. Only seeds that have it of ours count; a rival is of those that have it."""
    results = [Result(cell) for cell in cells]
    seeds = {lists: [one for one in results if one.has(OURS, lists)] for lists in LISTS}
    rows: Means = {}
    for name in ROWS:
        for lists, done in seeds.items():
            found = [one.rows[name][lists] for one in done if one.has(name, lists)]
            if found:
                pair = np.mean(found, axis=0)
                rows.setdefault(name, {})[lists] = (float(pair[0]), float(pair[1]), len(found))
    return rows, {lists: len(done) for lists, done in seeds.items() if done}


def answers(cells: Sequence[Cell]) -> dict[int, str]:
    """In how many seeds something learned is served after so many lists; of one seed, what."""
    results = [Result(cell) for cell in cells]
    out = {}
    for lists in LISTS:
        served = [one.served[lists] for one in results if one.has(OURS, lists)]
        learned = [one for one in served if one != YOURS]
        if served:
            out[lists] = (
                served[0] if len(served) == 1 else f"learned in {len(learned)} of {len(served)} seeds"
            )
    return out


def table(title: str, rows: Means, seeds: dict[int, int], answering: dict[int, str]) -> Iterator[str]:
    """Lines of a table."""
    yield f"### {title}"
    yield ""
    yield f"| mAP / P@10 after so many lists | {' | '.join(f'{lists:,}' for lists in seeds)} |"
    yield f"|---|{'---|' * len(seeds)}"
    yield f"| seeds | {' | '.join(str(count) for count in seeds.values())} |"
    yield f"| what is served | {' | '.join(answering[lists] for lists in seeds)} |"
    for name, row in rows.items():
        values = (_value(*row[lists], seeds[lists]) if lists in row else "" for lists in seeds)
        yield f"| {name} | {' | '.join(values)} |"
    yield ""


def _value(found: float, precision: float, count: int, seeds: int) -> str:
    """A cell, which says so where it is of fewer seeds than its column."""
    return f"{found:.3f} / {precision:.3f}" + (f" ({count} of {seeds} seeds)" if count < seeds else "")


def shortfalls(cells: Sequence[Cell]) -> Iterator[str]:
    """Where what is served is below the owner's ranking by more than .002, or below a rival, on average
    over the seeds that have both."""
    results = [Result(cell) for cell in cells]
    for lists in LISTS:
        for name in (YOURS, *RIVALS):
            both = [one.rows for one in results if one.has(OURS, lists) and one.has(name, lists)]
            if not both:
                continue
            ahead = np.mean([np.subtract(rows[OURS][lists], rows[name][lists]) for rows in both], axis=0)
            least = -0.002 if name == YOURS else 0.0
            below = [
                f"{what} {one:+.3f}" for what, one in zip(("mAP", "P@10"), ahead, strict=True) if one < least
            ]
            if below:
                yield f"{lists:,} lists, {name}: {', '.join(below)}"


def described(name: str) -> str:
    """A set in words."""
    data = load(name)
    columns = "+".join(str(view.shape[1]) for view in data.views.values())
    return f"{name}: {len(data):,} objects, {len(np.unique(data.labels))} classes, {columns} columns"
