"""What freshness is worth: `python -m tests.results.freshness`.

The same clicks, answered with a model of 0.3 s, a minute, an hour and a day ago, in worlds that drift and in
one that does not; and from a correction to the first answer that obeys it. Cells that were measured before
are kept in .cache/results and not measured again; a part can be asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.results.freshness.cells import (
    CLICKS,
    CLOSED_SETS,
    SEEDS,
    SETS,
    corrections_there,
    one_by_one_rows,
    seeds_there,
    stream_cells,
    together_rows,
)
from tests.results.freshness.pictures import draw
from tests.results.freshness.report import (
    TOUCHED,
    Corrected,
    change_table,
    closed_table,
    correction_table,
    curves,
    drift_table,
    lists_to_recover,
    obeyed,
    obeyed_later,
    recovery_table,
    together_table,
)
from tests.results.freshness.stream import Pace, run
from tests.results.freshness.worlds import Drift

DOCS = Path(__file__).parents[3] / "docs"
PAGE, PICTURE = DOCS / "what-freshness-is-worth.md", DOCS / "images" / "freshness.svg"
BEGIN = "<!-- measured -->"
SHOWN: tuple[Drift, Pace] = ("all together", "at once")
"""The change of which times to 90 % are computed for other rates."""


def main() -> int:
    """Measure what is missing, then print tables of all that is there, or write them into the page."""
    options = _options()
    sets = dict.fromkeys(options.sets, options.seeds)
    corrected = options.seeds
    if options.draw_only:
        sets = {data: count for data in sets if (count := seeds_there(data, options.seeds))}
        corrected = corrections_there(options.seeds)
    for data, seeds in sets.items():
        for cell in stream_cells(data, seeds):
            run(cell)
            print(f"{data}, {cell.drift}, {cell.pace}, seed {cell.seed}", file=sys.stderr, flush=True)
    rows = []
    for seed in range(corrected):
        rows += one_by_one_rows(seed)
        for clicks in CLICKS:
            together_rows(clicks, seed)
        print(f"corrections, seed {seed}", file=sys.stderr, flush=True)
    lines = [*_drift_lines(sets), *_correction_lines(rows, corrected)]
    if not options.write:
        print("\n".join(lines))
        return 0
    head = PAGE.read_text(encoding="utf-8").split(BEGIN)[0]
    text = "\n".join([f"{head}{BEGIN}", *lines]).rstrip()
    PAGE.write_text(text + "\n", encoding="utf-8")
    draw(sets, obeyed(rows), obeyed_later(corrected), PICTURE)
    return 0


def _drift_lines(sets: Mapping[str, int]) -> Iterator[str]:
    command = " ".join(["python -m tests.results.freshness", *sys.argv[1:]])
    yield from (f"By `{command}`; means over seeds, ± the standard error.", "")
    yield from ("## A world that drifts for a day", "")
    for data, seeds in sets.items():
        yield from (f"### {data}, drifting, seeds: {seeds}", "", *drift_table(data, seeds))
    yield from ("## A change at once", "")
    for data, seeds in sets.items():
        yield from (f"### {data}, changing at once, seeds: {seeds}", "", *change_table(data, seeds))
    for data, seeds in list(sets.items())[:1]:
        lists = lists_to_recover(curves(data, *SHOWN, seeds, TOUCHED))
        yield from ("### From a change to 90 %, by rate and delay", "")
        yield from (f"{data}, {SHOWN[0]}: {lists:,.0f} lists.", "", *recovery_table(lists))
    yield from ("## Lists that the late model makes itself", "")
    for data in CLOSED_SETS:
        if data in sets:
            yield from (f"### {data}, all together", "", *closed_table(data, sets[data]))


def _correction_lines(rows: Corrected, seeds: int) -> Iterator[str]:
    if seeds:
        yield from ("## Corrections", "", f"### One at a time, seeds: {seeds}", "", *correction_table(rows))
        yield from (f"### All within the same hours, seeds: {seeds}", "", *together_table(seeds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.results.freshness", description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--draw-only", action="store_true", help="measure nothing, take what is there")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name} and its picture")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
