"""What HTTP needs from the rest of the role: narrow ports, filled by `daemon/serve/build.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from daemon.serve.query import Answers, Model, Query


class Searching(Protocol):
    """Finds nearest objects; called from one thread only."""

    def search(self, alias: str, queries: Sequence[Query]) -> Answers:
        """All answers from one view of the alias' model. Raises Refused when nothing can be answered."""
        ...


class Overviews(Protocol):
    """What `GET /v1/versions` tells; may read the store, so it is called in a thread."""

    def versions(self) -> Mapping[str, Any]:
        """{"aliases": [...], "versions": [...]}, the values of `schemas.Versions`."""
        ...


class Administration(Protocol):
    """Changes of what is served; each writes at most one ledger entry, from a thread.

    Every call returns what was done as plain data for `schemas.Done` and raises UserError for what
    may not be done.
    """

    def promote(self, version: int, alias: str, by: str) -> Mapping[str, Any]:
        """Point `alias` at `version`."""
        ...

    def rollback(self, version: int | None, alias: str, by: str) -> Mapping[str, Any]:
        """Point `alias` back at `version`, None: at the one before."""
        ...

    def pin(self, version: int | None, alias: str, by: str) -> Mapping[str, Any]:
        """Name `version` for good, so that it is kept; None takes the name away."""
        ...

    def gc(self, dry_run: bool, by: str) -> Mapping[str, Any]:
        """Remove what retention no longer keeps."""
        ...


class Watching(Protocol):
    """Hears of every answer given (freshness, served versions)."""

    def answered(self, alias: str, model: Model) -> None:
        """An answer of `model` is on its way; called often, so it must be quick."""
        ...
