"""A role says that its memory runs out before it does, once, with what to do."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from daemon.config import load_config
from daemon.memory.watch import (
    AHEAD_S,
    LEAST_S,
    LOOK_S,
    WINDOW_S,
    GrowthJudge,
    MemoryLook,
    MemoryWatch,
    watch_memory,
    what_grows,
)
from tests.daemon.memory.files import MIB, V2_MOUNT, system, v2, write_group
from tests.harness.waiting import until

LIMIT = 1000 * MIB


def looks(rate: float, held: int, free: int, seconds: float) -> Iterator[MemoryLook]:
    """A process that grows by `rate` bytes/s from `held`, with `free` bytes at first."""
    at = 0.0
    while at <= seconds:
        yield MemoryLook(at, held + int(rate * at), free - int(rate * at))
        at += LOOK_S


def warned(judge: GrowthJudge, seen: Iterator[MemoryLook]) -> list[tuple[float, float | None]]:
    return [(look.at, found.seconds) for look in seen if (found := judge.judge(look, LIMIT)) is not None]


def test_growth_is_told_before_the_end_and_once() -> None:
    rate = 400 * MIB / AHEAD_S * 1.1
    told = warned(GrowthJudge(), looks(rate, 100 * MIB, 400 * MIB, 800))
    assert len(told) == 1
    at, left = told[0]
    assert LEAST_S <= at <= LEAST_S + LOOK_S
    assert left is not None
    assert left == pytest.approx(400 * MIB / rate - at, rel=0.01)


def test_slow_growth_and_a_step_at_the_start_are_not_told() -> None:
    assert warned(GrowthJudge(), looks(400 * MIB / AHEAD_S / 2, 100 * MIB, 900 * MIB, WINDOW_S)) == []
    jump = [MemoryLook(0.0, 0, 800 * MIB), *looks(0.0, 300 * MIB, 500 * MIB, WINDOW_S)]
    moved = (MemoryLook(one.at + 1, one.held, one.free) for one in jump[1:])
    assert warned(GrowthJudge(), iter([jump[0], *moved])) == []


def test_little_room_is_told_without_growth_and_again_after_it_was_better() -> None:
    judge = GrowthJudge()
    assert warned(judge, looks(0.0, 100 * MIB, 40 * MIB, 300)) == [(0.0, None)]
    later = (MemoryLook(one.at + 400, one.held, one.free) for one in looks(0.0, 100 * MIB, 400 * MIB, 10))
    assert warned(judge, later) == []
    again = (MemoryLook(one.at + 500, one.held, one.free) for one in looks(0.0, 100 * MIB, 30 * MIB, 10))
    assert warned(judge, again) == [(500.0, None)]


def test_half_of_little_room_is_told_again() -> None:
    judge = GrowthJudge()
    frees = [40, 38, 30, 21, 20, 19, 9]
    seen = (MemoryLook(float(n), 0, free * MIB) for n, free in enumerate(frees))
    assert [at for at, _ in warned(judge, seen)] == [0.0, 4.0, 6.0]


def test_metrics_and_the_log_line_name_the_group_and_the_remedy(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/a"
    root = system(tmp_path, 900 * MIB, "0::/a\n", V2_MOUNT, {group: v2(400 * MIB, 100 * MIB)})
    registry, now = CollectorRegistry(), [0.0]
    config = load_config(None, {"space.views.x.dim": 3, "keys.slots": 12_345}, {})
    watch = MemoryWatch(registry, lambda: what_grows(config, "learn"), root=root, clock=lambda: now[0])
    with capture_logs() as lines:
        watch.look()
        assert registry.get_sample_value("tripletd_memory_free_bytes") == 300 * MIB
        assert registry.get_sample_value("tripletd_memory_limit_bytes") == 400 * MIB
        assert registry.get_sample_value("tripletd_memory_left_seconds") == float("inf")
        assert lines == []
        write_group(root / group, v2(400 * MIB, 390 * MIB))
        watch.look()
    (line,) = lines
    assert line["log_level"] == "warning"
    assert line["event"] == "memory runs out"
    assert line["free"] == "10.0 MiB"
    assert line["of"] == "400.0 MiB (the control group /a)"
    assert "keys.slots (12,345)" in line["remedy"]


def test_the_seconds_that_are_left_are_shown_while_it_grows(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/a"
    root = system(tmp_path, 900 * MIB, "0::/a\n", V2_MOUNT, {group: v2(400 * MIB, 100 * MIB)})
    registry, now = CollectorRegistry(), [0.0]
    watch = MemoryWatch(registry, lambda: "less", root=root, clock=lambda: now[0])
    for minute in range(4):
        now[0] = 60.0 * minute
        status = f"RssAnon:\t{(100 + 30 * minute) * 1024} kB\nRssShmem:\t0 kB\n"
        (root / "proc/self/status").write_text(status)
        write_group(root / group, v2(400 * MIB, (100 + 30 * minute) * MIB))
        watch.look()
    assert registry.get_sample_value("tripletd_memory_left_seconds") == pytest.approx(210 / 30 * 60, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "role", "named"),
    [
        ({"learner.algorithm": "omks"}, "learn", "learner.objects"),
        ({"keys.slots": 10}, "validate", "keys.slots"),
        ({}, "validate", "validate.window"),
        ({}, "serve", "objects that are put"),
        ({}, "merge", "tripletd check"),
    ],
)
def test_what_grows_in_a_role_is_named(settings: dict[str, Any], role: str, named: str) -> None:
    assert named in what_grows(load_config(None, {"space.views.x.dim": 3, **settings}, {}), role)


def test_the_thread_looks_and_ends() -> None:
    registry, config = CollectorRegistry(), load_config(None, {"space.views.x.dim": 3}, {})
    with ExitStack() as stack:
        watch_memory(stack, registry, config, "learn")
        until(lambda: (registry.get_sample_value("tripletd_memory_free_bytes") or 0) > MIB)


def _grows(results: Any) -> None:
    """Takes memory under a real limit until there is none; what was told until then."""
    now, kept = [0.0], []
    watch = MemoryWatch(CollectorRegistry(), lambda: "less", clock=lambda: now[0])
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 600 * MIB, resource.RLIM_INFINITY))
    with capture_logs() as lines:
        try:
            while True:
                watch.look()
                if lines:
                    break
                kept.append(bytearray(b"x") * (8 * MIB))
                now[0] += 15.0
        except MemoryError:
            kept.clear()
    results.put((len(kept), [line["event"] for line in lines], [line.get("in") for line in lines]))


def test_under_a_real_limit_it_is_told_while_there_is_room() -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_grows, args=(results,))
    child.start()
    taken, events, left = results.get()
    child.join()
    assert events == ["memory runs out"]
    assert 0 < taken < 40
    assert left[0] is not None
