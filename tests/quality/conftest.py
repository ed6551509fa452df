"""Runs over one set's clicks share them: one worker simulates them once for all learners."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One group for the photos, one for the texts."""
    for item in items:
        if item.path.parent.name == "quality" and item.path.stem not in ("test_bench", "test_real_lists"):
            name = "texts" if "texts" in item.name else "photos"
            item.add_marker(pytest.mark.xdist_group(f"clicks on {name}"))
