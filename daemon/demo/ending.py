"""SIGTERM ends the demo as it ends a role: with 0, and all that it started is ended first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from daemon.exits import EX_OK

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """For the length of the context a SIGTERM raises SystemExit, so that every context inside is left."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def unbroken() -> Iterator[None]:
    """For the length of the block SIGTERM and Ctrl-C wait: what it starts is noted before they end it."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda sent, frame: came.append(sent)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for sent in came:
        signal.raise_signal(sent)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(EX_OK)
