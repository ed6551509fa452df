"""The control groups that this process is in, by what they bound.

Control groups nest, and any of those above a process may be the one that bounds it, so all are looked at. In
a container the path in /proc/self/cgroup may be the host's, which is not mounted there; what is mounted then
is the container's own group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

V2, V1 = "cgroup2", "cgroup"


class ControlGroup(NamedTuple):
    """A group. kind: V2 or V1. files: the folder that tells of it. name: its path below what is mounted."""

    kind: str
    files: Path
    name: str


def own_groups(root: Path, controller: str) -> Iterator[ControlGroup]:
    """The group of this process and those above it, the innermost first, in each hierarchy that may bound
    what `controller` counts: of version 2 the only one, of version 1 its own.

    root: the folder that holds `proc` and what is mounted; another one than `/` for copies of these files.
    """
    own = {}
    for line in lines_of(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            own[V2] = path
        elif controller in controllers.split(","):
            own[V1] = path
    for kind, mount, top in _mounts(root, controller):
        if kind in own:
            within = root / mount.lstrip("/")
            innermost = within / _below(top, own[kind])  # where it is not there, neither are its files
            for files in (innermost, *innermost.parents):
                if not files.is_relative_to(within):
                    break
                yield ControlGroup(kind, files, f"/{files.relative_to(within)}" if files != within else "/")


def _mounts(root: Path, controller: str) -> Iterator[tuple[str, str, str]]:
    """(kind, where it is mounted, which group is mounted there) of these hierarchies."""
    for line in lines_of(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        is_v1 = kinds[0] == V1 and controller in kinds[2].split(",")
        if kinds[0] == V2 or is_v1:
            mount, group = (
                one.replace("\\040", " ").replace("\\134", "\\") for one in (fields[4], fields[3])
            )
            yield kinds[0], mount, group


def _below(top: str, own: str) -> PurePosixPath:
    """The group's path under the mount, whose root is the group `top`; the mount itself where it is not
    under it, or not known from here."""
    path = PurePosixPath(own)
    if ".." in path.parts or not path.is_relative_to(top):
        return PurePosixPath()
    return path.relative_to(top)


def number_in(path: Path) -> int | None:
    """The number in a file; None for "max", and where there is no such file."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def lines_of(path: Path) -> list[str]:
    """The lines of a file; none where it cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return []
