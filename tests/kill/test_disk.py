"""Disks that fail, lose power, stand still or are full: learning goes on, and what stands is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.kill.failing_disk import failing_calls
from tests.harness.kill.forks import Forks
from tests.harness.kill.full_disk import full_disk
from tests.harness.kill.power_loss import power_lost
from tests.harness.kill.site import embedded
from tests.harness.kill.slow_disk import slow_fsync, waits_for_fsync

pytestmark = pytest.mark.kill


def test_failing_filesystem_calls(tmp_path: Path) -> None:
    failing_calls(tmp_path, 16, 1).check()


def test_an_fsync_that_does_not_end(tmp_path: Path) -> None:
    slow_fsync(tmp_path, 2).check()


def test_with_versions_by_count_learning_waits_for_an_fsync_and_leaves_none_out(tmp_path: Path) -> None:
    waits_for_fsync(tmp_path).check()


def test_a_full_disk(tmp_path: Path, forks: Forks) -> None:
    full_disk(tmp_path, embedded, forks, 1).check()


def test_power_losses(tmp_path: Path) -> None:
    power_lost(tmp_path, 150, 8, 1).check()
