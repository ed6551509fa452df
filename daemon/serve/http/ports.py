"""What HTTP needs from the rest of the role: narrow ports, filled by `daemon/serve/start.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from daemon.serve.query import AnsweringModel, Answers, Query


class Searching(Protocol):
    """Finds nearest objects; called from one thread only."""

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        """All answers from one view of the alias' model. Raises Refused when nothing can be answered.

        `between` is called before each scan of the items; what it raises ends the search.
        """
        ...


class Overviews(Protocol):
    """What `GET /v1/versions` tells; may read the store, so it is called in a thread."""

    def versions(self) -> Mapping[str, Any]:
        """{"aliases": [...], "versions": [...]}, the values of `schemas.Versions`."""
        ...


class Administration(Protocol):
    """Changes of what is served, called from a thread; each writes at most one ledger entry.

    Every call gives what was done as plain data, the values of `changes.Moved` or `changes.Collected`, and
    raises UserError for what may not be done. A version is a number or a name.
    """

    def promote(self, version: int | str, alias: str, reason: str, dry_run: bool) -> Mapping[str, Any]:
        """Point `alias` at `version`."""
        ...

    def rollback(self, to: int | str | None, alias: str, reason: str, dry_run: bool) -> Mapping[str, Any]:
        """Point `alias` back: to `to`, or to the version before."""
        ...

    def pin(self, version: int | str | None, alias: str, reason: str, dry_run: bool) -> Mapping[str, Any]:
        """Name `version` so that it is kept and never moved; None takes the name away."""
        ...

    def gc(self, dry_run: bool) -> Mapping[str, Any]:
        """Delete the versions that no rule keeps."""
        ...


class Watching(Protocol):
    """Hears of every answer given (freshness, served versions)."""

    def answered(self, alias: str, model: AnsweringModel) -> None:
        """An answer of `model` is on its way; called often, so it must be quick."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All of them."""

    searcher: Searching
    overviews: Overviews
    administration: Administration
    watching: Watching
