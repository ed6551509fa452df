"""SIGTERM ends the demo as it ends a role: with 0, and what it started is ended first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from daemon.exits import EX_OK


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """For the length of the context a SIGTERM raises SystemExit, so that every context inside is left."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(EX_OK)
