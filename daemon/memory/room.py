"""How much memory a process can still get: of the machine, of its control groups, of its own limits.

Control groups nest, and any of those above a process may be the one that ends it, so all are looked at. In a
container the path in /proc/self/cgroup may be the host's, which is not mounted there; what is mounted then is
the container's own group.

What the kernel can take back is not counted as used: the page cache of files (their pages on the lists of the
active and the inactive), and of group v2 the slabs that can be reclaimed.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

NONE = 1 << 60
"""A limit of so many bytes or more is none: group v1 says "no limit" with 2^63 less a page."""
V2, V1 = "cgroup2", "cgroup"
V1_CONTROLLER = "memory"


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
    own = _own_groups(root)
    for kind, mount, top in _mounts(root):
        if kind not in own:
            continue
        within = root / mount.lstrip("/")
        for group in _upwards(within, _below(top, own[kind])):
            bound = _bound_v2(group) if kind == V2 else _bound_v1(group)
            if bound is not None:
                limit, used = bound
                name = f"/{group.relative_to(within)}" if group != within else "/"
                yield MemoryBound(f"the control group {name}", max(0, limit - used), limit)


def _own_groups(root: Path) -> dict[str, str]:
    """The path of this process's group in each hierarchy that may bound memory."""
    found = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found[V2] = path
        elif V1_CONTROLLER in controllers.split(","):
            found[V1] = path
    return found


def _mounts(root: Path) -> Iterator[tuple[str, str, str]]:
    """(kind, where it is mounted, which group is mounted there) of the hierarchies that may bound memory."""
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        is_v1 = kinds[0] == V1 and V1_CONTROLLER in kinds[2].split(",")
        if kinds[0] == V2 or is_v1:
            yield kinds[0], _plain(fields[4]), _plain(fields[3])


def _plain(field: str) -> str:
    """A path of mountinfo, which writes a blank as \\040."""
    return field.replace("\\040", " ").replace("\\134", "\\")


def _below(top: str, own: str) -> PurePosixPath:
    """The group's path under the mount, whose root is the group `top`; the mount itself where it is not
    under it, or not known from here."""
    path = PurePosixPath(own)
    if ".." in path.parts or not path.is_relative_to(top):
        return PurePosixPath()
    return path.relative_to(top)


def _upwards(mount: Path, below: PurePosixPath) -> Iterator[Path]:
    """The group and those above it, up to the one that is mounted."""
    group = mount / below  # where it is not there, neither are its files
    while True:
        yield group
        if group == mount:
            return
        group = group.parent


def _bound_v2(group: Path) -> tuple[int, int] | None:
    """(limit, used). Above memory.high a group is throttled so much that it stands still: a limit as well."""
    limits = [one for name in ("memory.max", "memory.high") if (one := _number(group / name)) is not None]
    used = _number(group / "memory.current")
    if not limits or used is None or min(limits) >= NONE:
        return None
    known = _table(group / "memory.stat")
    back = sum(known.get(name, 0) for name in ("inactive_file", "active_file", "slab_reclaimable"))
    return min(limits), max(0, used - back)


def _bound_v1(group: Path) -> tuple[int, int] | None:
    limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= NONE:
        return None
    known = _table(group / "memory.stat")
    back = sum(known.get(name, 0) for name in ("total_inactive_file", "total_active_file"))
    return limit, max(0, used - back)


_OF_PROCESS = ((resource.RLIMIT_AS, "VmSize", "-v"), (resource.RLIMIT_DATA, "VmData", "-d"))


def _of_process(root: Path) -> Iterator[MemoryBound]:
    """The limits of one process (`ulimit`)."""
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
    """`Name: 12 kB` or `name 12` of each line, the numbers as they stand."""
    numbers = {}
    for line in _lines(path):
        name, *rest = line.replace(":", " ").split() or [""]
        with suppress(ValueError, IndexError):
            numbers[name] = int(rest[0])
    return numbers


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", and where there is no such file."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return []
