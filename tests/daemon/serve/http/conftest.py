"""One toy server per module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.serve.http.toy import Served, running


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with running() as one:
        yield one
