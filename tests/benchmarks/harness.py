"""How every figure is taken: interleaved pairs in one run, the median of their ratios.

Machines are shared and their speed drifts, so absolute figures say little; a ratio of two things timed in
turn, A B A B, holds when the machine slows for a while.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Figure:
    """One measured number: `value` in `unit`, compared `against` something, over `repeats` runs."""

    name: str
    value: float
    unit: str
    against: str
    repeats: int
    detail: dict[str, float]


def paired_ratio(
    a: Callable[[], float], b: Callable[[], float], repeats: int
) -> tuple[float, list[float], list[float]]:
    """Run `a` and `b` (each returns a rate) in turn after one warm-up; median of a/b, and both series."""
    a(), b()
    rates_a: list[float] = []
    rates_b: list[float] = []
    for _ in range(repeats):
        rates_a.append(a())
        rates_b.append(b())
    ratio = statistics.median(x / y for x, y in zip(rates_a, rates_b, strict=True))
    return ratio, rates_a, rates_b


def ratio_figure(
    name: str, against: str, a: Callable[[], float], b: Callable[[], float], repeats: int = 7
) -> Figure:
    """A `Figure` whose value is the median of interleaved a/b rates (events per second each)."""
    ratio, rates_a, rates_b = paired_ratio(a, b, repeats)
    detail = {
        "ours_per_second_median": round(statistics.median(rates_a), 1),
        "theirs_per_second_median": round(statistics.median(rates_b), 1),
        "ratio_min": round(min(x / y for x, y in zip(rates_a, rates_b, strict=True)), 3),
        "ratio_max": round(max(x / y for x, y in zip(rates_a, rates_b, strict=True)), 3),
    }
    return Figure(name, round(ratio, 3), "ratio", against, repeats, detail)


def machine() -> str:
    """The processor and how many of them, in words; nothing that names a host."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(
        [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")]
    )
    return f"{cores} x {model}, Python {platform.python_version()}"


def commit() -> str:
    """The short hash of the measured commit, with a plus sign when the tree had changes."""
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", "--", ":!tests/benchmarks/results.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def record(figures: list[Figure], command: str) -> None:
    """Merge `figures` into results.json: name -> value, unit, against, repeats, command, machine, commit."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for figure in figures:
        results[figure.name] = {
            "value": figure.value,
            "unit": figure.unit,
            "against": figure.against,
            "repeats": figure.repeats,
            "detail": figure.detail,
            "command": command,
            "machine": machine(),
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
