"""What a replay compares: states by array, row and column; progress; and whether the records are still
there. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checkpoints import Manifest
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.state import Progress
from daemon.versions.contents import Arrays
from daemon.versions.storage import Link

TOLERANCE = 1e-4
"""Where other packages or another processor computed a version: how far apart two numbers may be, relative to
the largest of the array (at least 1). A rounding of float32 is 6e-8; it grows with every step, and beyond any
bound where a step is decided by a loss that is nearly 0."""

BLOCK = 1 << 22  # elements compared at a time


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """The first difference: array name, row and column of it, the two values, how many rows differ.

    `row` is None where the array is missing on one side or has another shape or type; the values say which.
    """

    array: str
    row: int | None
    column: int
    recorded: Any
    recomputed: Any
    rows: int

    def __str__(self) -> str:
        if self.row is None:
            return f"array {self.array}: recorded {self.recorded}, recomputed {self.recomputed}"
        values = f"recorded {self.recorded!r}, recomputed {self.recomputed!r}"
        more = f"; {self.rows:,} rows differ" if self.rows > 1 else ""
        return f"array {self.array}, row {self.row} (column {self.column}: {values}{more})"


def first_difference(
    recorded: Arrays, recomputed: Arrays, tolerance: float | None = None
) -> ArrayPlace | None:
    """The first difference, arrays by name; bit for bit, or of floats beyond a tolerance. None when equal."""
    for name in sorted({*recorded, *recomputed}):
        old, new = recorded.get(name), recomputed.get(name)
        if old is None or new is None or (old.shape, old.dtype) != (new.shape, new.dtype):
            return ArrayPlace(name, None, 0, _kind(old), _kind(new), 0)
        place = _compare(name, as_rows(old), as_rows(new), tolerance)
        if place is not None:
            return place
    return None


def as_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with two axes: rows of what lies behind its first axis; a number is one row."""
    return array.reshape(len(array), math.prod(array.shape[1:])) if array.ndim > 1 else array.reshape(-1, 1)


def _compare(
    name: str, old: npt.NDArray[Any], new: npt.NDArray[Any], tolerance: float | None
) -> ArrayPlace | None:
    scale = None
    if tolerance is not None and old.dtype.kind == "f":
        scale = tolerance * max([1.0, *(float(np.abs(part).max(initial=0.0)) for part in _blocks(old))])
    first, rows, start = None, 0, 0
    for mine, its in zip(_blocks(old), _blocks(new), strict=True):
        differs = _differs(mine, its, scale)
        found = np.flatnonzero(differs.any(axis=1))
        if len(found) and first is None:
            column = int(np.flatnonzero(differs[found[0]])[0])
            first = start + int(found[0]), column
        rows, start = rows + len(found), start + len(mine)
    if first is None:
        return None
    return ArrayPlace(name, *first, old[first].item(), new[first].item(), rows)


def _differs(old: npt.NDArray[Any], new: npt.NDArray[Any], scale: float | None) -> npt.NDArray[np.bool_]:
    """bool [rows, columns]; without a scale by bits, where -0.0 is not 0.0 and a NaN is itself."""
    if scale is not None:
        return np.asarray(~(np.abs(old - new) <= scale))  # also where either is NaN
    bits = f"u{old.dtype.itemsize}"
    return np.asarray(np.ascontiguousarray(old).view(bits) != np.ascontiguousarray(new).view(bits))


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    step = max(1, BLOCK // max(1, array.shape[1]))
    return (array[start : start + step] for start in range(0, len(array), step))


def _kind(array: npt.NDArray[Any] | None) -> str:
    return "none" if array is None else f"{array.dtype} {list(array.shape)}"


@dataclass(frozen=True, slots=True)
class EventPlace:
    """One event: partition, offset, and its id where it can be read."""

    partition: int
    offset: int
    id: str | None = None

    def __str__(self) -> str:
        named = "" if self.id is None else f", id {self.id!r}"
        return f"partition {self.partition}, offset {self.offset:,}{named}"


def other_position(found: Progress, manifest: Manifest) -> str | None:
    """The first partition that the schedule leads elsewhere than recorded, in words."""
    for partition, at in sorted(manifest.positions.items()):
        mine = found.positions.get(partition)
        if mine is None or mine.next_offset != at.next_offset:
            leads_to = "nowhere" if mine is None else f"{mine.next_offset:,}"
            return (
                f"partition {partition} is recorded at {at.next_offset:,}; its schedule leads to {leads_to}"
            )
    return None


def other_record(found: Progress, manifest: Manifest) -> EventPlace | None:
    """The first record before a position whose sha256 is not the recorded one."""
    for partition, at in sorted(manifest.positions.items()):
        if found.positions[partition].last_digest != at.last_digest:
            return EventPlace(partition, at.next_offset - 1)
    return None


def other_counts(found: Progress, manifest: Manifest) -> str | None:
    """The first counter, or else the watermark, that is not as recorded, in words."""
    for name in sorted({*manifest.counters, *found.counters}):
        old, new = manifest.counters.get(name, 0), found.counters.get(name, 0)
        if old != new:
            return f"counter {name}: recorded {old:,}, recomputed {new:,}"
    if manifest.watermark != found.watermark:
        return f"watermark: recorded {manifest.watermark}, recomputed {found.watermark}"
    return None


def check_kept(links: Sequence[Link], bounds: Mapping[int, tuple[int, int]], from_version: int) -> None:
    """Raise UserError (data) where records of the links were dropped from the log, with what can be replayed.

    `links`: the versions after `from_version`, oldest first; `bounds`: (earliest, end) by partition.
    """
    lost = [at for at, link in enumerate(links) if _gone(link, bounds)]
    if not lost:
        return
    wanted = _first_wanted([link for link in links if _gone(link, bounds)])
    gone = "; ".join(
        f"partition {p}: offsets {start:,} up to {bounds[p][0]:,}"
        for p, start in sorted(wanted.items())
        if p in bounds and start < bounds[p][0]
    )
    rest = [link.number for link in links[lost[-1] : -1] if link.manifest is not None]
    raise UserError(
        f"records learned after version {from_version} have expired from the log: {gone}",
        f"the oldest kept version from which this can still be replayed: --from {rest[0]}"
        if rest
        else "no version kept on this line stands where the log still holds what came after it",
        EX_DATAERR,
    )


def _gone(link: Link, bounds: Mapping[int, tuple[int, int]]) -> bool:
    return any(start < bounds[p][0] for p, start in _first_wanted([link]).items() if p in bounds)


def _first_wanted(links: Sequence[Link]) -> dict[int, int]:
    wanted: dict[int, int] = {}
    for link in links:
        for entry in link.schedule:
            if not isinstance(entry, dict):
                partition, start, _ = entry
                wanted[partition] = min(start, wanted.get(partition, start))
    return wanted
