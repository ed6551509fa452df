"""One browser for all tests of a module, and a small installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.daemon.serve.page.scene import Scene
from tests.harness.chromium import ChromiumMissing, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    try:
        with browser() as started:
            yield started
    except ChromiumMissing as problem:
        pytest.skip(str(problem))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.learn()
    made.run()
    return made
