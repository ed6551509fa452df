"""A run that leaves tests out says so, and fails where nothing may be left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_CONFTEST = """
from tests.harness.nothing_skipped import pytest_make_collect_report, pytest_runtest_makereport
from tests.harness.nothing_skipped import pytest_terminal_summary
"""
_TESTS = """
import pytest

@pytest.fixture(scope="session")
def kafka():
    pytest.skip("no Kafka: install it")

def test_one(kafka): ...
def test_two(kafka): ...
def test_three(): ...

@pytest.mark.xfail(strict=True)
def test_known(): assert False
"""


def run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_some.py").write_text(_TESTS)
    bare = {
        name: value for name, value in os.environ.items() if name not in ("CI", "TRIPLETD_NOTHING_SKIPPED")
    }
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            *options,
            str(folder),
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**bare, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_what_did_not_run_is_told_at_the_end(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, *options)
    assert done.returncode == 0, done.stdout
    assert "THIS RUN WAS NOT COMPLETE" in done.stdout
    assert "2 tests did not run: no Kafka: install it" in done.stdout


@pytest.mark.parametrize("name", ["CI", "TRIPLETD_NOTHING_SKIPPED"])
def test_where_nothing_may_be_skipped_a_skip_fails(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, **{name: "1"})
    assert done.returncode == 1, done.stdout
    assert "nothing may be skipped here: no Kafka: install it" in done.stdout
    assert "1 passed, 1 xfailed, 2 errors" in done.stdout or "2 failed, 1 passed, 1 xfailed" in done.stdout
