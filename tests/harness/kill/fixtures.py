"""What tests with forked learners share; `tests/conftest.py` makes it visible to all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.harness.kill.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Starts learners in milliseconds: one server for all tests of a worker."""
    from tests.harness.kill.forks import Forks

    with Forks() as server:
        yield server
