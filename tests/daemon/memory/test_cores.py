"""How many cores there are for a process, of a quota too; what libraries are told of it before they load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.describe import describing
from daemon.describe.describing import DescribeSettings
from daemon.exits import EX_DATAERR, UserError
from daemon.memory import cores
from daemon.memory.cores import limit_pools, usable_cores
from tests.daemon.memory.files import V2_MOUNT, system

V1_MOUNTS = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"


@pytest.fixture(autouse=True)
def sixty_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(64)))


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("max 100000", "max 100000", 64),
        ("max 100000", "100000 100000", 1),
        ("50000 100000", "max 100000", 1),
        ("250000 100000", "800000 100000", 3),
        ("9900000 100000", "nonsense", 64),
    ],
)
def test_a_quota_of_any_group_above_bounds(tmp_path: Path, outer: str, inner: str, expected: int) -> None:
    groups = {f"sys/fs/cgroup/{path}": {"cpu.max": text} for path, text in (("a", outer), ("a/b", inner))}
    assert usable_cores(system(tmp_path, 1 << 30, "0::/a/b\n", V2_MOUNT, groups)) == expected


@pytest.mark.parametrize(("quota", "expected"), [(-1, 64), (200_000, 2), (0, 64)])
def test_a_quota_of_the_first_kind_bounds(tmp_path: Path, quota: int, expected: int) -> None:
    groups = {"sys/fs/cgroup/cpu/a": {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": 100_000}}
    assert usable_cores(system(tmp_path, 1 << 30, "3:cpu,cpuacct:/a\n", V1_MOUNTS, groups)) == expected


def test_describe_has_a_worker_for_each_unless_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def described(objects: object, out: Path, settings: DescribeSettings, *_: object) -> None:
        asked.append(settings.workers)
        raise UserError("enough", "", EX_DATAERR)

    (tmp_path / "a.png").touch()
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(3)))
    monkeypatch.setattr(describing, "describe_to", described)
    for words in ([], ["--workers", "5"]):
        assert main(["describe", str(tmp_path), "--out", str(tmp_path / "items"), *words]) == EX_DATAERR
    assert asked == [usable_cores(), 5]


def test_what_a_user_has_set_stays(tmp_path: Path) -> None:
    environment = {"OMP_NUM_THREADS": "7"}
    limit_pools(environment, tmp_path)
    assert environment["OMP_NUM_THREADS"] == "7"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["RAYON_NUM_THREADS"] == "64"


def test_a_process_of_ours_has_pools_of_that_size() -> None:
    """As the program starts; on two cores BLAS alone would have two threads."""
    program = """
import sys
import daemon.runtime.leaving as leaving
leaving.end = lambda code: None
sys.argv = ["tripletd", "--version"]
from daemon.__main__ import start
start()
import numpy, scipy.linalg
print(open("/proc/self/status").read().split("Threads:")[1].split()[0])
import pyarrow
print(pyarrow.cpu_count(), pyarrow.io_thread_count())
"""
    names = ("OMP_", "OPENBLAS_", "MKL_", "ARROW_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=clean, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines()[1:] == ["1", "1 2"]
