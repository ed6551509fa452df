"""What bounds memory: the machine, control groups of both kinds, nested, and a process's own limits."""

from __future__ import annotations

import multiprocessing
import resource
from pathlib import Path
from typing import Any

import pytest

from daemon.memory.room import memory_bounds, memory_room, resident_bytes
from tests.daemon.memory.files import MIB, NO_LIMIT_V1, V1_MOUNTS, V2_MOUNT, system, v1, v2


def test_this_machine_tells_what_it_has() -> None:
    bounds = memory_bounds()
    (machine,) = (one for one in bounds if one.name == "the machine")
    assert MIB < machine.free <= machine.limit
    assert bounds[0].free == min(one.free for one in bounds)
    assert resident_bytes() > 8 * MIB


def test_a_group_bounds_by_what_is_left_and_pages_of_files_are_left(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/system.slice/tripletd.service"
    root = system(
        tmp_path,
        900 * MIB,
        "0::/system.slice/tripletd.service\n",
        V2_MOUNT,
        {group: v2(300 * MIB, 280 * MIB)},
    )
    room = memory_room(root)
    assert room is not None
    assert (room.free, room.limit) == (20 * MIB, 300 * MIB)
    assert room.name == "the control group /system.slice/tripletd.service"
    system(
        root,
        900 * MIB,
        "0::/system.slice/tripletd.service\n",
        V2_MOUNT,
        {group: v2(300 * MIB, 280 * MIB, 200 * MIB)},
    )
    room = memory_room(root)
    assert room is not None
    assert room.free == 220 * MIB


@pytest.mark.parametrize("at", ["kubepods", "kubepods/pod1", "kubepods/pod1/one"])
def test_the_tightest_of_nested_groups_bounds(tmp_path: Path, at: str) -> None:
    folders = ["kubepods", "kubepods/pod1", "kubepods/pod1/one"]
    groups = {f"sys/fs/cgroup/{one}": v2("max", 10 * MIB) for one in folders}
    groups[f"sys/fs/cgroup/{at}"] = v2(100 * MIB, 60 * MIB)
    room = memory_room(system(tmp_path, 900 * MIB, "0::/kubepods/pod1/one\n", V2_MOUNT, groups))
    assert room is not None
    assert (room.name, room.free) == (f"the control group /{at}", 40 * MIB)


def test_a_group_that_is_throttled_above_a_bound_is_bounded_there(tmp_path: Path) -> None:
    groups = {"sys/fs/cgroup/a": v2(300 * MIB, 60 * MIB, high=100 * MIB)}
    room = memory_room(system(tmp_path, 900 * MIB, "0::/a\n", V2_MOUNT, groups))
    assert room is not None
    assert (room.free, room.limit) == (40 * MIB, 100 * MIB)


def test_in_a_container_the_group_that_is_mounted_is_its_own(tmp_path: Path) -> None:
    """Its path is the host's, which is not to be found there; or lies beside the root of its namespace."""
    for cgroup in ("0::/docker/0123\n", "0::/../../docker/0123\n"):
        root = system(tmp_path, 900 * MIB, cgroup, V2_MOUNT, {"sys/fs/cgroup": v2(200 * MIB, 50 * MIB)})
        room = memory_room(root)
        assert room is not None
        assert (room.name, room.free) == ("the control group /", 150 * MIB)


def test_a_part_of_the_tree_may_be_mounted_elsewhere(tmp_path: Path) -> None:
    mount = "31 23 0:28 /docker /cg\\040roup rw - cgroup2 cgroup2 rw\n"
    root = system(tmp_path, 900 * MIB, "0::/docker/0123\n", mount, {"cg roup/0123": v2(200 * MIB, 50 * MIB)})
    room = memory_room(root)
    assert room is not None
    assert (room.name, room.free) == ("the control group /0123", 150 * MIB)


def test_groups_of_the_first_kind_bound_too(tmp_path: Path) -> None:
    cgroup = "12:cpuset:/\n4:hugetlb,memory:/docker/0123\n0::/docker/0123\n"
    groups = {
        "sys/fs/cgroup/memory": v1(NO_LIMIT_V1, 700 * MIB),
        "sys/fs/cgroup/memory/docker": v1(250 * MIB, 200 * MIB, 40 * MIB),
        "sys/fs/cgroup/memory/docker/0123": v1(NO_LIMIT_V1, 10 * MIB),
        "sys/fs/cgroup/unified/docker/0123": {},
    }
    bounds = memory_bounds(system(tmp_path, 900 * MIB, cgroup, V1_MOUNTS, groups))
    told = [(one.name, one.free) for one in bounds if one.shared]
    assert told == [("the control group /docker", 90 * MIB), ("the machine", 900 * MIB)]


def test_where_nothing_is_told_nothing_bounds(tmp_path: Path) -> None:
    assert [one for one in memory_bounds(tmp_path) if one.shared] == []
    assert resident_bytes(tmp_path) == 0
    root = system(tmp_path, 900 * MIB, "nonsense\n0::\n", "also - nonsense\n31 - \n", {})
    assert [one.name for one in memory_bounds(root) if one.shared] == ["the machine"]
    group = {"memory.max": "what?", "memory.current": "", "memory.stat": "a\n"}
    system(root, 900 * MIB, "0::/a\n", V2_MOUNT, {"sys/fs/cgroup/a": group})
    assert [one.name for one in memory_bounds(root) if one.shared] == ["the machine"]


def _limited(results: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, resource.RLIM_INFINITY))
    (bound,) = (one for one in memory_bounds() if not one.shared)
    kept = bytearray(512 * MIB)
    (after,) = (one for one in memory_bounds() if not one.shared)
    results.put((bound.name, bound.free - after.free, len(kept)))


def test_a_process_is_bounded_by_its_own_limit() -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_limited, args=(results,))
    child.start()
    name, taken, kept = results.get()
    child.join()
    assert name == "the limit of a process (ulimit -v)"
    assert abs(taken - kept) < 8 * MIB
