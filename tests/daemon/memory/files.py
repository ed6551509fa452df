"""The files by which a system tells what memory there is, in a folder of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MIB = 1 << 20
NO_LIMIT_V1 = 9_223_372_036_854_771_712


def system(
    root: Path, free: int, cgroup: str, mounts: str, groups: Mapping[str, Mapping[str, object]] | None = None
) -> Path:
    """A system with `free` bytes. cgroup, mounts: /proc/self/cgroup and mountinfo. groups: by folder, the
    files of each."""
    own = root / "proc/self"
    own.mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:       {8 * free // 1024} kB\nMemFree:  12 kB\nMemAvailable:   {free // 1024} kB\n"
    )
    (own / "status").write_text(
        "Name:\tx\nVmSize:\t  100 kB\nVmData:\t 50 kB\nRssAnon:\t 40 kB\nRssShmem:\t 2 kB\n"
    )
    (own / "cgroup").write_text(cgroup)
    (own / "mountinfo").write_text(mounts)
    for folder, files in (groups or {}).items():
        write_group(root / folder, files)
    return root


def write_group(folder: Path, files: Mapping[str, object]) -> None:
    """The files of one group."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def v2(limit: object, used: int, back: int = 0, high: object = "max") -> dict[str, object]:
    """A group v2 of which `back` bytes can be taken back: half inactive pages of files, a quarter active
    ones, a quarter slabs."""
    stat = f"anon 7\ninactive_file {back // 2}\nactive_file {back // 4}\nslab_reclaimable {back // 4}"
    return {"memory.max": limit, "memory.high": high, "memory.current": used, "memory.stat": stat}


def v1(limit: int, used: int, back: int = 0) -> dict[str, object]:
    """A group v1."""
    stat = f"inactive_file 1\ntotal_inactive_file {back // 2}\ntotal_active_file {back // 2}"
    return {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used, "memory.stat": stat}
