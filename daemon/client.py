"""Similarity in a user's own Python service: follow an alias, score, and never notice a swap.

    from daemon.client import follow

    model = follow("checkpoints", alias="stable")
    print(model.similar(query, items))

`follow` needs nothing but the checkpoint folder: no log, no server, no configuration. A thread looks for new
versions and verdicts, loads and verifies what the alias means, and swaps it in; a call that is under way ends
with the version it began with, and every answer names its version and watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from daemon.replica.model import ModelId
from learners.block import Float32s

Vectors: TypeAlias = Any
"""Objects in the user's space: numbers in one axis (one object) or two, a scipy sparse array, or a mapping
from view names to those; a space of a single view needs no name."""


@dataclass(frozen=True, slots=True)
class Similar:
    """The most similar items, best first; ties by row. `rows` in the items given, `ids` where they have some.

    model: what the scores were computed with, `str(model)` is "12" or "12+3400"; watermark: newest event time
    learned by it, ms since the epoch, None before any.
    """

    rows: tuple[int, ...]
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    model: ModelId

    @property
    def watermark(self) -> int | None:
        """Newest event time learned by `model`, ms since the epoch."""
        return self.model.watermark


class Items:
    """Objects mapped once, to be searched again and again; norms are made anew, off the path, at every
    swap."""

    def __init__(self, mapped: Any, ids: Sequence[str]) -> None:
        raise NotImplementedError


class Model:
    """A followed alias. Safe to call from any number of threads."""

    def similar(self, query: Vectors, items: Items | Vectors, k: int = 10) -> Similar:
        """The k items most similar to one query."""
        raise NotImplementedError

    def scores(self, queries: Vectors, items: Items | Vectors) -> Float32s:
        """Scores of all pairs, float32 [queries, items]."""
        raise NotImplementedError

    def items(self, vectors: Vectors, ids: Sequence[str] = ()) -> Items:
        """Objects to be searched many times, mapped now."""
        raise NotImplementedError

    @property
    def model(self) -> ModelId:
        """What answers now."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop following."""
        raise NotImplementedError


def follow(
    folder: str | Path,
    alias: str = "stable",
    *,
    settings: Mapping[str, Any] | None = None,
    wait_s: float = 30.0,
) -> Model:
    """Follow `alias` in the checkpoint folder; returns once something is served, at the latest after
    wait_s."""
    raise NotImplementedError
