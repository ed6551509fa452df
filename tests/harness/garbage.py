"""What is there before the first test, half a million objects, is not looked through for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Leave it alone from here on."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
