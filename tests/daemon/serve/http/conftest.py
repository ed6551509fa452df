"""One toy server per module and kind of limits: the usual ones, small sizes, or one short time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPException

import pytest

from tests.daemon.serve.http.clients import QUESTION, SMALL
from tests.daemon.serve.http.toy import Served, running
from tests.harness.waiting import until

LIMITED = ("strict", "no_time_for_heads", "no_time_for_bodies")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with running() as one:
        yield one


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    """A server with small limits of size, and time for everything."""
    with running(SMALL) as one:
        yield one


@pytest.fixture(scope="module")
def no_time_for_heads() -> Iterator[Served]:
    """The same, but a header, and a client between two requests, has a second."""
    with running(replace(SMALL, head_s=1.0, idle_s=1.0)) as one:
        yield one


@pytest.fixture(scope="module")
def no_time_for_bodies() -> Iterator[Served]:
    """The same, but a body has a second."""
    with running(replace(SMALL, body_s=1.0)) as one:
        yield one


@pytest.fixture
def others(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test what it left open is closed, and others are served."""
    yield
    for name in set(LIMITED) & set(request.fixturenames):
        served: Served = request.getfixturevalue(name)
        connections = "tripletd_http_connections"
        until(lambda: served.metric(connections) == 0, "a connection is left open")
        # Connections that were closed before they were accepted may still have to be.
        until(lambda: answers(served))


def answers(served: Served) -> bool:
    """Whether a question is answered."""
    try:
        return served.post(QUESTION)[0] == 200
    except (OSError, HTTPException):
        return False
