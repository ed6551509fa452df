"""From what a query names (an id, or vectors as JSON gives them) to a row in the learner's space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Query, QueryError
from learners.block import Block, DenseBlock, SparseBlock
from learners.maps import FittedSpaceMap
from streams import poison
from streams.event import UNNAMED_VIEW, SpaceSpec, ViewSpec
from streams.limits import MAX_MAGNITUDE

_NOT_FOUND = 404


def resolve(
    queries: Sequence[Query], snapshot: IndexSnapshot, space: SpaceSpec, fitted: FittedSpaceMap
) -> list[Block | QueryError]:
    """Per query a block of one row, its vector under the map of the snapshot, or a `QueryError` of its own.

    A query by id takes the catalog's vector of that object: 404 `unknown_object` where no living object has
    it. One by features is checked against the space and mapped: 422 with a reason of `streams.poison` as
    code, and the field, such as `views.text.indices`.
    """
    parts, places = snapshot.find_many([query.id or "" for query in queries])
    found: list[Block | QueryError] = []
    for query, part, place in zip(queries, parts, places, strict=True):
        try:
            if query.id is not None:
                found.append(_of_catalog(snapshot, int(part), int(place)))
            else:
                found.append(_of_features(query, space, fitted))
        except QueryError as refused:
            found.append(refused)
    return found


def _of_catalog(snapshot: IndexSnapshot, part: int, row: int) -> Block:
    if row < 0:
        remedy = "use the id of an object of the catalog, or send its features as x or views"
        raise QueryError(poison.UNKNOWN_OBJECT, "no such object in the catalog", "id", remedy, _NOT_FOUND)
    return snapshot.parts[part].vectors.take([row])


def _of_features(query: Query, space: SpaceSpec, fitted: FittedSpaceMap) -> Block:
    given, prefix = _views(query, space)
    block = fitted.transform(
        {view.name: _block(given[view.name], view, prefix + view.name) for view in space.views}
    )
    if not np.isfinite(block.values).all():
        raise _refused(poison.MAGNITUDE, "too large for the space's map", prefix.rstrip(".") or UNNAMED_VIEW)
    return block


def _views(query: Query, space: SpaceSpec) -> tuple[Mapping[str, Any], str]:
    """The given vectors, one for each view of the space and no other, and what precedes a view in a field."""
    names = [view.name for view in space.views]
    if query.views is None:
        if names != [UNNAMED_VIEW]:
            raise _refused(poison.WRONG_VIEW, f"the space has {_listed(names)}; send them in views", "x")
        return {UNNAMED_VIEW: query.x}, ""
    for name in names:
        if name not in query.views:
            raise _refused(
                poison.WRONG_VIEW, f"lacks this view; the space has {_listed(names)}", f"views.{name}"
            )
    if len(query.views) > len(names):
        raise _refused(poison.WRONG_VIEW, f"a view too many; the space has {_listed(names)}", "views")
    return query.views, "views."


def _listed(names: Sequence[str]) -> str:
    return f"the view{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _block(raw: Any, view: ViewSpec, field: str) -> Block:
    """One vector as a block of one row; raises QueryError unless it is a vector of this view."""
    if isinstance(raw, Mapping) != (view.kind == "sparse"):
        wanted = 'sparse: send {"indices": [...], "values": [...]}' if view.kind == "sparse" else "a list"
        raise _refused(poison.WRONG_KIND, f"this view's vectors are {wanted}", field)
    if view.kind == "dense":
        values = _numbers(raw, field)
        if len(values) != view.dim:
            raise _refused(poison.WRONG_DIM, f"has {len(values)} numbers, the view {view.dim}", field)
        return DenseBlock(values[None, :])
    if raw.keys() != {"indices", "values"}:
        raise _refused(poison.BAD_VECTOR, "a sparse vector has indices and values, and nothing else", field)
    indices = _indices(raw["indices"], view, f"{field}.indices")
    values = _numbers(raw["values"], f"{field}.values")
    if len(indices) != len(values):
        raise _refused(poison.BAD_VECTOR, f"{len(indices)} indices for {len(values)} values", field)
    return SparseBlock(np.array([0, len(indices)], np.int64), indices, values, view.dim)


def _numbers(raw: Any, field: str) -> NDArray[np.float32]:
    if not isinstance(raw, list) or not {int, float}.issuperset(map(type, raw)):
        raise _refused(poison.WRONG_TYPE, "is not a list of numbers", field)
    try:
        with np.errstate(over="ignore"):
            values = np.array(raw, np.float64).astype(np.float32)
    except OverflowError:
        raise _refused(poison.MAGNITUDE, "holds a number that is too large", field) from None
    largest = np.abs(values).max(initial=0.0)  # NaN where any value is NaN
    if not largest <= MAX_MAGNITUDE:
        if np.isnan(largest):
            raise _refused(poison.NOT_FINITE, "holds a number that is not finite", field)
        raise _refused(poison.MAGNITUDE, f"holds a number above {MAX_MAGNITUDE:g} in size", field)
    return values


def _indices(raw: Any, view: ViewSpec, field: str) -> NDArray[np.int32]:
    if not isinstance(raw, list) or not {int}.issuperset(map(type, raw)):
        raise _refused(poison.WRONG_TYPE, "is not a list of whole numbers", field)
    if raw and not 0 <= min(raw) <= max(raw) < view.dim:
        raise _refused(poison.INDEX_OUT_OF_RANGE, f"an index is not within 0..{view.dim - 1}", field)
    indices = np.array(raw, np.int32)
    if np.any(indices[1:] <= indices[:-1]):
        raise _refused(poison.INDICES_NOT_INCREASING, "are not strictly increasing", field)
    return indices


def _refused(reason: str, message: str, field: str) -> QueryError:
    return QueryError(reason, message, field, "send the vector as the space's view has it")
