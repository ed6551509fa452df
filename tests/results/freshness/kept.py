"""What was measured, a file for each cell: made once, read from then on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / ".cache" / "results" / "freshness"
VERSION = 2
"""Of what cells mean: one that was kept under another is made again."""


def path_of(parts: Sequence[object]) -> Path:
    """Where a cell is kept."""
    return FOLDER / f"{'-'.join(map(str, parts)).replace(' ', '_')}.json"


def is_kept(parts: Sequence[object]) -> bool:
    """Whether a cell was measured before, as it is measured now."""
    path = path_of(parts)
    return path.exists() and bool(json.loads(path.read_text())["version"] == VERSION)


def kept(parts: Sequence[object], make: Callable[[], Iterable[Any]]) -> list[Any]:
    """The rows of a cell, which JSON can hold, made if they are not there."""
    path = path_of(parts)
    if is_kept(parts):
        return list(json.loads(path.read_text())["rows"])
    began = time.process_time()
    rows = list(make())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": VERSION, "seconds": time.process_time() - began, "rows": rows}))
    return rows
