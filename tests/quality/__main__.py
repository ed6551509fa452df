"""What clicks teach on real sets, beside what people would do instead: `make quality`.

Cells that were measured before are kept in .cache/quality and not measured again; a part can be asked for.
Sets of lists that people clicked (wikispeedia, materials) are measured where they are named, by the product
itself; they have to be downloaded and prepared, see `python -m tests.quality.real --help`. Options of
clicks, loops, learners, seeds and lists are not for them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import get_args

from tests.quality.bench.cells import LISTS, by_default, run
from tests.quality.bench.loop import Algorithm
from tests.quality.bench.pictures import draw
from tests.quality.bench.sets import SETS
from tests.quality.bench.tables import answers, described, means, shortfalls, table
from tests.quality.bench.users import CLICKS
from tests.quality.real.lists import FOLDER
from tests.quality.real.measuring import RealResult, measure
from tests.quality.real.sources import NAMES, NotPrepared, prepared
from tests.quality.real.tables import section, with_section

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "quality.md", DOCS / "images" / "quality.svg"
LOOPS = {
    "static": "lists of the owner's ranking",
    "explored": "lists of the owner's ranking, a tenth with a random object",
    "closed": "lists of what clicks chose last",
}
BEGIN = "<!-- measured -->"


def main() -> int:
    """Measure what is missing, then write tables and picture of all that is there."""
    options = _options()
    real = [name for name in options.sets if name in NAMES]
    if real:
        try:
            _of_people(real, options)
        except (NotPrepared, FileNotFoundError) as error:
            sys.exit(str(error))
    simulated = [name for name in options.sets if name in SETS]
    if simulated:
        _simulated(simulated, options)
    return 0


def _of_people(names: Sequence[str], options: argparse.Namespace) -> None:
    """Measure lists that people clicked, and write the tables of those named."""
    if not options.draw_only:
        for name in names:
            measure(prepared(name), lambda said: print(said, flush=True), FOLDER / name / "run")
    lines = [line for name in names for line in section(RealResult.load(name))]
    text = "\n".join([f"By `{_command()}`.", "", *lines])
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    else:
        print(text)


def _simulated(names: Sequence[str], options: argparse.Namespace) -> None:
    """Measure what is missing of simulated clicks, and write the tables and the picture of those named."""
    asked = list(product(names, options.clicks, options.loops))
    if not options.draw_only:
        for seed, (data, clicks, loop) in product(range(options.seeds), asked):
            cell = by_default(data, clicks, loop, seed, options.learner)
            spent = run(cell, options.lists, not options.no_rivals, options.rivals_to).seconds
            told = ", ".join(f"{name} {seconds:.0f}" for name, seconds in spent.items())
            print(f"{data}, {clicks}, {loop}, seed {seed}: seconds of the processor: {told}", flush=True)
    lines, panels = [], {}
    for data, clicks, loop in asked:
        cells = [by_default(data, clicks, loop, seed, options.learner) for seed in range(options.seeds)]
        rows, seeds = means(cells)
        if not rows:
            continue
        lines += table(f"{data}, {clicks} clicks, {LOOPS[loop]}", rows, seeds, answers(cells))
        lines += [f"Below: {one}." for one in shortfalls(cells)] + [""]
        if loop == "static":
            # of one seed: rivals may have been measured with fewer, and their lines are beside ours
            panels[f"{data}, {clicks}"] = means(cells[:1])[0]
    about = [f"- {described(name)}" for name in names]
    if options.write:
        head = PAGE.read_text(encoding="utf-8").split(BEGIN)[0]
        text = "\n".join([f"{head}{BEGIN}", f"By `{_command()}`.", "", *about, "", *lines]).rstrip()
        PAGE.write_text(text + "\n", encoding="utf-8")
        draw(panels, PICTURE)
    else:
        print("\n".join([*about, "", *lines]))


def _command() -> str:
    return " ".join(["python -m tests.quality", *sys.argv[1:]])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=__doc__)
    parser.add_argument(
        "--sets", nargs="+", choices=[*SETS, *NAMES], default=["photos", "tfidf", "sentences"]
    )
    parser.add_argument("--clicks", nargs="+", choices=CLICKS, default=list(CLICKS), help="models of users")
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=list(LOOPS), help="who makes the lists")
    parser.add_argument("--learner", choices=get_args(Algorithm), help="the algorithm; else the default one")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--lists", type=int, default=LISTS[-1], help="up to so many")
    parser.add_argument("--rivals-to", type=int, default=LISTS[-1], help="rivals up to so many lists")
    parser.add_argument("--no-rivals", action="store_true", help="the product alone")
    parser.add_argument("--draw-only", action="store_true", help="measure nothing, take what is there")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name} and its picture")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
