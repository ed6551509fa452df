"""The summary: one line per row, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import commit, machine
from tests.harness.kill.tally import Tally
from tests.soak.arguments import Arguments

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Line:
    """What became of one row."""

    stream: str
    what: str
    tried: int
    bad: int
    worst: str
    seconds: float
    told: tuple[str, ...] = ()


def line_of(stream: str, tally: Tally) -> Line:
    """A tally as a line; a row in which nothing was tried is a bad one."""
    bad = tuple(tally.bad) or (() if tally.tried else ("nothing was tried",))
    return Line(stream, tally.what, tally.tried, len(bad), tally.worst, round(tally.seconds, 1), bad)


def text(lines: Sequence[Line]) -> str:
    """The table, and below it what was wrong."""
    wide = max([len(line.what) for line in lines] + [4])
    head = f"{'stream':7s} {'what':{wide}s} {'tried':>7s} {'bad':>4s} {'s':>6s}  worst figure"
    table = [
        f"{one.stream:7s} {one.what:{wide}s} {one.tried:7,d} {one.bad:4d} {one.seconds:6.0f}  {one.worst}"
        for one in lines
    ]
    wrong = [f"\n{one.stream}, {one.what}:\n  " + "\n  ".join(one.told[:5]) for one in lines if one.bad]
    kills = sum(line.tried for line in lines if line.what.startswith("kill -9"))
    total = f"\n{kills:,} random kills in all; {sum(line.bad for line in lines):,} bad of {len(lines)} rows"
    return "\n".join([head, *table, *wrong, total]) + "\n"


def write(lines: Sequence[Line], asked: Arguments) -> None:
    """results.json beside this file: the newest row of each name, and what its run was told."""
    run = {"commit": commit(), "arguments": asdict(asked)}
    rows = {(row["stream"], row["what"]): row for row in _written()}
    for line in lines:
        row = {name: value for name, value in asdict(line).items() if name != "told"}
        rows[line.stream, line.what] = row | run
    RESULTS.write_text(json.dumps({"machine": machine(), "rows": list(rows.values())}, indent=1) + "\n")


def _written() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    return rows
