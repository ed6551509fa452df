"""One toy server per module, with the usual limits or with small ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.serve.http.clients import QUESTION, SHORT, soon
from tests.daemon.serve.http.toy import Served, running


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with running() as one:
        yield one


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    """A server with small limits."""
    with running(SHORT) as one:
        yield one


@pytest.fixture
def others(strict: Served) -> Iterator[None]:
    """After each test what it left open is closed by the limits, and others are served."""
    yield
    assert soon(lambda: strict.metric("tripletd_http_connections") == 0, 10), "a connection is left open"
    # Connections that were closed before they were accepted may still have to be.
    assert soon(lambda: strict.post(QUESTION)[0] == 200, 10)
