"""Builders shared by the tests of the feed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from streams.event import Impression, ObjectRef
from streams.feed.items import Placed
from streams.feed.options import ReaderOptions
from streams.source import OutRecord

OPTIONS = ReaderOptions(now_ms=1_700_000_000_000)


class Kept:
    """An outlet which keeps what it is given, call by call."""

    def __init__(self) -> None:
        self.training: list[OutRecord] = []
        self.holdout: list[OutRecord] = []
        self.calls = 0

    def write(self, training: list[OutRecord], holdout: list[OutRecord]) -> None:
        self.training += training
        self.holdout += holdout
        self.calls += 1


def impression(
    name: str, shown: int | Sequence[str] = 4, clicked: Sequence[int] = (2,), query: str = "q"
) -> Impression:
    """An impression of objects by id."""
    ids = [f"p{rank}" for rank in range(shown)] if isinstance(shown, int) else shown
    refs = tuple(ObjectRef(id=one) for one in ids)
    return Impression(name, 1000, ObjectRef(id=query), refs, tuple(clicked))


def placed(items: Iterable[Any]) -> list[Placed]:
    """Items with made-up places."""
    return [(f"log:{number}", item) for number, item in enumerate(items, 1)]


def write_lines(path: Path, lines: Iterable[Any]) -> str:
    """A JSON Lines file; text and bytes are written as they are."""
    encoded = (
        line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    )
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return str(path)
