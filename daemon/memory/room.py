"""How much memory a process can still get: of the machine, of its control groups, of its own limits.

What the kernel can take back is not counted as used: the page cache of files (their pages on the lists of the
active and the inactive), and of group v2 the slabs that can be reclaimed.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daemon.memory.groups import V1, V2, lines_of, number_in, own_groups

NONE = 1 << 60
"""A limit of so many bytes or more is none: group v1 says "no limit" with 2^63 less a page."""


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """One thing that bounds memory. free, limit: bytes, of which free can still be had. name: of it, for
    people. shared: whether other processes, such as the other roles, draw on it too."""

    name: str
    free: int
    limit: int
    shared: bool = True


def memory_bounds(root: Path = Path("/")) -> list[MemoryBound]:
    """Everything that bounds this process, the tightest first; none where the system does not tell.

    root: the folder that holds `proc` and what is mounted; another one than `/` for copies of these files.
    """
    found = [*_of_machine(root), *_of_groups(root), *_of_process(root)]
    return sorted(found, key=lambda bound: bound.free)


def memory_room(root: Path = Path("/")) -> MemoryBound | None:
    """The tightest bound; None where there is none that is known."""
    return next(iter(memory_bounds(root)), None)


def _of_machine(root: Path) -> Iterator[MemoryBound]:
    numbers = _table(root / "proc/meminfo")
    if "MemAvailable" in numbers:
        free, whole = 1024 * numbers["MemAvailable"], 1024 * numbers.get("MemTotal", 0)
        yield MemoryBound("the machine", free, max(free, whole))


def _of_groups(root: Path) -> Iterator[MemoryBound]:
    for group in own_groups(root, "memory"):
        limits, usage, reclaimed = _FILES[group.kind]
        numbers = [one for name in limits if (one := number_in(group.files / name)) is not None]
        used, limit = number_in(group.files / usage), min(numbers, default=NONE)
        if used is not None and limit < NONE:
            known = _table(group.files / "memory.stat")
            used = max(0, used - sum(known.get(name, 0) for name in reclaimed))
            yield MemoryBound(f"the control group {group.name}", max(0, limit - used), limit)


_FILES = {
    V2: (
        ("memory.max", "memory.high"),  # above memory.high a group is throttled until it stands still
        "memory.current",
        ("inactive_file", "active_file", "slab_reclaimable"),
    ),
    V1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}
"""Files of a group by kind: its limits, what is used, and what of `memory.stat` the kernel can take back."""
_OF_PROCESS = ((resource.RLIMIT_AS, "VmSize", "-v"), (resource.RLIMIT_DATA, "VmData", "-d"))


def _of_process(root: Path) -> Iterator[MemoryBound]:
    numbers = _table(root / "proc/self/status")
    for which, line, option in _OF_PROCESS:
        limit, _ = resource.getrlimit(which)
        if limit != resource.RLIM_INFINITY and limit < NONE and line in numbers:
            free = max(0, limit - 1024 * numbers[line])
            yield MemoryBound(f"the limit of a process (ulimit {option})", free, limit, shared=False)


def resident_bytes(root: Path = Path("/")) -> int:
    """Memory of this process that cannot be dropped: anonymous and shared pages; 0 where it is not told."""
    numbers = _table(root / "proc/self/status")
    return 1024 * (numbers.get("RssAnon", 0) + numbers.get("RssShmem", 0))


def _table(path: Path) -> dict[str, int]:
    numbers = {}
    for line in lines_of(path):
        name, *rest = line.replace(":", " ").split() or [""]
        with suppress(ValueError, IndexError):
            numbers[name] = int(rest[0])
    return numbers
