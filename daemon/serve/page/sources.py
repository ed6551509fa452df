"""What the page is told from: narrow ports, so that it knows neither the replica nor the index.

The role fills them in (`daemon/serve/start.py`); the page asks them from the server's threads, never from its
event loop, so an implementation may block for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoints import Ledger, VersionStore
from daemon.look.overview import KeyRow
from daemon.look.series import Series
from daemon.models.diff import Diff


@dataclass(frozen=True, slots=True)
class AliasAnswers:
    """What one alias answers with. `model`: "12" or "12+3400", None while it answers nothing, `why` says why.

    `since`: Unix seconds of the flip that brought it; `watermark`: newest event time in it, ms.
    """

    alias: str
    model: str | None
    base: int | None
    records: int | None
    watermark: int | None
    since: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ShownObject:
    """What people see of an object: any of a title or text, a picture by `has_image`, tags."""

    id: str
    text: str = ""
    has_image: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeysShown:
    """The models of single keys in `model`: `used` of `slots`, those with most events first."""

    model: str
    slots: int
    used: int
    rows: tuple[KeyRow, ...]


@dataclass(frozen=True, slots=True)
class NearestObjects:
    """Nearest objects of one query under one model, best first; `model` is what answered."""

    model: str
    hits: tuple[tuple[str, float], ...]


class CannotAnswer(Exception):
    """A side of the explorer has no answer: `code` for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Explorer(Protocol):
    """Nearest objects under an alias or any kept version."""

    def neighbours(self, side: str, query: str, k: int, key: str | None) -> NearestObjects:
        """Top `k` of the object `query` under `side`, an alias or a version number written out; by the
        model of `key`, where one is learned per key.

        The query itself is left out. Raises CannotAnswer: unknown object, unknown version, not serving yet.
        """
        ...


class Comparer(Protocol):
    """What changed between two kept versions, made in the background."""

    def difference(self, before: int, after: int) -> Diff | None:
        """The same as `tripletd models diff` tells, of the objects that are served; None while it is made.

        Raises CannotAnswer: `busy` while two others are compared, or what went wrong.
        """
        ...


class Objects(Protocol):
    """The objects that are served, as people see them."""

    def count(self) -> int:
        """Objects that are served now."""
        ...

    def some(self, text: str, most: int) -> Sequence[ShownObject]:
        """At most `most` objects whose id or text contains `text` (any case); drawn at random for "".

        Raises CannotAnswer `busy`.
        """
        ...

    def shown(self, ids: Sequence[str]) -> Sequence[ShownObject]:
        """One per id, in order; an unknown id has nothing but itself."""
        ...

    def image(self, object_id: str) -> bytes | None:
        """The picture's bytes (JPEG, PNG, WebP or GIF); None for one without, or that may not be shown."""
        ...


@dataclass(frozen=True)
class PageSources:
    """Everything the page shows.

    `series` is the ring of live numbers, `served` says what each alias answers with, `aliases` are the names
    that the explorer offers beside version numbers. `keys`: None where one model answers all.
    """

    versions: VersionStore
    ledger: Ledger
    series: Series
    served: Callable[[], Sequence[AliasAnswers]]
    explorer: Explorer
    comparer: Comparer
    objects: Objects
    aliases: Sequence[str]
    keys: Callable[[], KeysShown | None] = lambda: None
