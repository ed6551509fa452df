"""The history of pruned versions is thinned, and still says all that led from one version to the next."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpoints import CheckpointError, LocalStore, fold_history, history
from checkpoints.pruned import add_line, folded_key, lines_of, newest_fold, tail_key
from checkpoints.store import BlobStore
from tests.harness.memory_store import MemoryStore

from .disk import FaultyDisk
from .power import lay_out, power_losses, snapshot

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def line(
    number: int, parent: int | None, at: datetime, schedule: list[Any], runtime: str = "1"
) -> dict[str, Any]:
    return {
        "number": number,
        "parent": parent,
        "created": at.isoformat(),
        "epoch": 0,
        "counters": {"records": number},
        "schedule": schedule,
        "runtime": {"packages": runtime},
        "learner": {"name": "oasis"},
    }


def lines_at_random(seed: int, count: int) -> list[dict[str, Any]]:
    """Versions of two months with branches, other runtimes, control entries and two partitions."""
    rng, found = random.Random(seed), []
    parent, at = 0, [0, 0]
    for number in range(1, count + 1):
        if rng.random() < 0.01:
            parent = rng.randrange(number)
            schedule: list[Any] = [{"control": "branch", "from_version": parent}]
        else:
            schedule = []
        for partition in (0, 1) if number % 3 else (0,):
            schedule.append([partition, at[partition], at[partition] + 5])
            at[partition] += 5
        when = NOW - timedelta(minutes=30 * (count - number))
        found.append(line(number, parent, when, schedule, str(number // 900)))
        parent = number
    return found


def put(store: BlobStore, lines: list[dict[str, Any]]) -> None:
    for one in lines:
        add_line(store, json.dumps(one).encode())


def fold_now(store: BlobStore, parents: tuple[int, ...] = (), **how: Any) -> int | None:
    how = {"least_bytes": 1, "leave": 0, "clock": NOW.timestamp} | how
    return fold_history(store, lambda: parents, lambda: None, **how)


def steps(lines: list[dict[str, Any]], number: int) -> Iterator[Any]:
    """Everything that led to a version, from the first one on, single offsets and runtimes included."""
    known = {one["number"]: one for one in lines}
    line_of = []
    while number in known:
        line_of.append(known[number])
        number = known[number]["parent"]
    for one in reversed(line_of):
        for entry in one["schedule"]:
            if isinstance(entry, dict):
                yield entry
            else:
                yield from ((entry[0], offset, one["runtime"]["packages"]) for offset in range(*entry[1:]))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_leads_to_every_version_as_before(seed: int) -> None:
    store, lines = MemoryStore(), lines_at_random(seed, 2900)
    named = (7, 333, 1801)
    gone_on_from = [one["parent"] for one in lines if one["parent"] != one["number"] - 1]
    for part in (lines[:1000], lines[1000:2000], lines[2000:]):
        put(store, part)
        assert fold_now(store, (*named, *gone_on_from)) is not None
    left = history(store)
    assert len(left) < 1300
    assert {*named, 2900} <= {one["number"] for one in left}
    for number in [one["number"] for one in left][::97] + [*named, 2900]:
        assert list(steps(left, number)) == list(steps(lines, number))
    assert all("learner" not in one for one in left)
    assert left[0]["parent"] == 0


def test_a_branch_from_a_line_that_is_long_gone_into_a_snapshot_finds_it() -> None:
    store, lines = MemoryStore(), lines_at_random(5, 1000)
    put(store, lines)
    fold_now(store, leave=64)
    late = line(1001, 990, NOW, [[0, 1, 2]])
    put(store, [late])
    fold_now(store)
    assert list(steps(history(store), 1001)) == list(steps([*lines, late], 1001))


def test_a_damaged_snapshot_loses_nothing(tmp_path: Path) -> None:
    store, lines = LocalStore(tmp_path), lines_at_random(1, 400)
    parents = tuple(one["parent"] for one in lines)
    for part in range(0, 400, 100):
        put(store, lines[part : part + 100])
        fold_now(store, parents)
    put(store, [line(401, 400, NOW, [[0, 9000, 9001]])])
    whole = list(steps(history(store), 401))
    assert newest_fold(store) == 4
    assert not (tmp_path / tail_key(0)).exists()
    path = tmp_path / folded_key(4)
    path.write_bytes(path.read_bytes().replace(b'"epoch":0', b'"epoch":1', 1))
    assert list(steps(history(store), 401)) == whole
    path.unlink()
    assert list(steps(history(store), 401)) == whole


def test_a_line_added_beside_a_fold_is_not_lost(tmp_path: Path) -> None:
    store, lines = LocalStore(tmp_path), lines_at_random(1, 300)
    put(store, lines[:100])

    class Late(LocalStore):
        """Whoever adds a line stands still while others fold, `times` times."""

        times = 0

        def append_line(self, key: str, line: bytes) -> None:
            for part in range(self.times):
                put(store, lines[100 + 50 * part : 150 + 50 * part])
                fold_now(store)
            self.times = 0
            super().append_line(key, line)

    for number, times in ((500, 1), (501, 3)):
        slow = Late(tmp_path)
        slow.times = times
        add_line(slow, json.dumps(line(number, 100, NOW, [[0, 1, 2]])).encode())
        assert number in {one["number"] for one in history(store)}
        fold_now(store)
        assert number in {one["number"] for one in history(store)}


def test_no_failing_call_and_no_lost_power_loses_a_line(tmp_path: Path) -> None:
    live, lines = LocalStore(tmp_path / "live"), lines_at_random(2, 90)
    for part in range(0, 60, 20):
        put(live, lines[part : part + 20])
        fold_now(live)
    put(live, lines[60:])
    state = snapshot(tmp_path / "live")
    whole = list(steps(history(live), 90))
    disk = FaultyDisk(tmp_path / "live")
    store = LocalStore(tmp_path / "live", disk.fs)
    disk.log.clear()
    assert fold_now(store) == 4
    log, calls = list(disk.log), disk.calls
    for place, (_, left) in enumerate(power_losses(state, log)):
        root = tmp_path / f"lost-{place}"
        lay_out(left, root)
        again = LocalStore(root)
        assert list(steps(history(again), 90)) == whole
        put(again, [line(91, 90, NOW, [])])
        fold_now(again)
        assert list(steps(history(again), 91)) == whole
        shutil.rmtree(root)
    for k in range(1, calls + 1):
        root = tmp_path / f"failed-{k}"
        lay_out(state, root)
        failing = FaultyDisk(root)
        store = LocalStore(root, failing.fs)
        failing.fail_at = failing.calls + k
        with suppress(CheckpointError):
            fold_now(store)
        assert list(steps(history(LocalStore(root)), 90)) == whole
        shutil.rmtree(root)


def test_an_old_history_of_tens_of_thousands_is_folded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoints.pruned.PART", 5000)
    store = MemoryStore()
    first = NOW - timedelta(seconds=30 * 30_000)
    whole = [line(n, n - 1, first + timedelta(seconds=30 * n), [[0, n, n + 1]]) for n in range(1, 30_001)]
    store.put_new("history.jsonl", [b"".join(json.dumps(one).encode() + b"\n" for one in whole)])
    assert fold_now(store) == 1
    assert fold_now(store, least_bytes=10**9) is None
    left = history(store)
    assert 2880 <= len(left) < 3300
    assert left[-1] == {name: value for name, value in whole[-1].items() if name != "learner"}
    assert sum(end - begin for one in left for _, begin, end in one["schedule"]) == 30_000
    assert len(list(lines_of(store))) == len(left)
