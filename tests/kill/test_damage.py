"""Bytes that somebody altered are never learned on from; the version before is. `make soak`: every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.kill.damage import altered_bytes, learning_on

pytestmark = pytest.mark.kill


def test_altered_bytes_are_never_accepted(tmp_path: Path) -> None:
    altered_bytes(tmp_path, 60, 1).check()


def test_learning_goes_on_from_the_version_before(tmp_path: Path) -> None:
    learning_on(tmp_path).check()
