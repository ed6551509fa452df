"""From what a request names (an id, or vectors) to rows in the learner's space, with errors by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemon.serve.items.snapshot import IndexSnapshot
from learners.block import Block
from learners.maps import FittedSpaceMap
from streams.space import SpaceSpec


class QueryError(Exception):
    """A request object that cannot be looked up or mapped.

    code: `unknown_object` (no such id: 404) or another key of `streams.poison.REASONS` (400). field: where in
    the request, such as `x`, `views.image` or `queries[3].x.indices`. The message repeats no value of it.
    """

    def __init__(self, code: str, field: str, message: str, remedy: str) -> None:
        super().__init__(f"{field}: {message}")
        self.code, self.field, self.message, self.remedy = code, field, message, remedy


@dataclass(frozen=True, slots=True)
class RequestObject:
    """An object as a request names it: exactly one of id, x (the view called "x") and views.

    A vector is a list of numbers (dense) or `{"indices": [...], "values": [...]}` (sparse), as JSON gives it.
    prefix: put before field names in errors, such as `queries[3].`.
    """

    id: str | None = None
    x: Any = None
    views: Mapping[str, Any] | None = None
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """vectors: one mapped row per request object, in order. ids: the id of those given by id, else None."""

    vectors: Block
    ids: tuple[str | None, ...]


def resolve(
    objects: Sequence[RequestObject], snapshot: IndexSnapshot, space: SpaceSpec, fitted: FittedSpaceMap
) -> Resolved:
    """The mapped vectors of at least one request object; raises QueryError for the first that has none."""
    raise NotImplementedError
