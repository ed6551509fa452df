"""Numbers, times and the words of others as people read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

_STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def safe(text: str) -> str:
    """What others wrote, so that nothing of it steers a terminal: "\\x1b" for an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    for step, unit in _STEPS:
        if count >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count} B"


def moment(ms: int) -> str:
    """Milliseconds -> "2026-01-31T12:00:00+00:00"; "<ms> ms" where no calendar has such a time.

    The time of a record is its writer's choice and may be anything.
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def ago(iso: str, now: float | None = None) -> str:
    """An ISO time -> "3 m ago"; the text itself when it is not one."""
    try:
        seconds = (time.time() if now is None else now) - datetime.fromisoformat(iso).timestamp()
    except ValueError:
        return iso
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """Seconds in their largest sensible unit: "45 s", "12 m", "3 h", "9 d"."""
    seconds = max(0.0, seconds)
    for limit, unit, divisor in ((90, "s", 1), (5400, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def number_runs(numbers: Sequence[int]) -> str:
    """Ascending numbers -> "0 to 1, 3 to 9"; "" for none."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        begins = runs.pop()[0] if runs and runs[-1][1] == number - 1 else number
        runs.append((begins, number))
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in runs)


def measure(value: Any) -> str:
    """A measure with three digits, a count without any, "-" when there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else str(value)
    return f"{value:,.0f}" if value > 1 and float(value).is_integer() else f"{value:.3f}"
