"""Query vectors of another embedding model, brought to the views of the space as they are read.

By name, a map takes such vectors to one view. A query says the name of the map where it else says that of a
view; under the view's own name a dense vector of another size than the view's is taken by the one map that
has it. Objects are never mapped: those that are clicked and skipped lie in the space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from streams import poison
from streams.codec import raw_vector, vector_of
from streams.event import UNNAMED_VIEW, Float32Array, ObjectRef, SpaceSpec
from streams.poison import Poison
from streams.wire import RawVector


class VectorMap(Protocol):
    """Takes vectors of another model to a view."""

    @property
    def view(self) -> str:
        """The view's name."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors it takes."""

    def given(self, vector: Float32Array) -> Float32Array:
        """One vector as the view has it, float32."""


VectorMaps: TypeAlias = Mapping[str, VectorMap]


def map_for(name: str, dim: int, own: int | None, maps: VectorMaps) -> str | None:
    """The name of the map that a dense vector of a query comes through, None for a vector of the space.

    name: under which it was given; own: the dimension of the view of that name, None where there is none.
    Raises Poison where several maps take it.
    """
    if own is None:
        return name if name in maps else None
    if dim == own:
        return None
    found = [known for known, one in maps.items() if one.view == name and one.dim == dim]
    if len(found) > 1:
        raise Poison(poison.WRONG_VIEW, f"several models have vectors of {dim}: name one in views")
    return found[0] if found else None


def in_views(
    features: Mapping[str, RawVector], space: SpaceSpec, maps: VectorMaps, where: str
) -> Mapping[str, RawVector]:
    """The vectors of a query, those of other models mapped; the same mapping where none is. Raises Poison."""
    own = {view.name: view.dim for view in space.views}
    chosen = {
        name: map_for(name, len(raw) // 4, own.get(name), maps)
        for name, raw in features.items()
        if isinstance(raw, bytes)
    }
    if not any(chosen.values()):
        return features
    found: dict[str, RawVector] = {}
    for name, raw in features.items():
        known, view, vector = chosen.get(name), name, raw
        if known is not None:
            one = maps[known]
            if len(raw) != 4 * one.dim:
                raise Poison(poison.WRONG_DIM, f"{where}: a vector of {known} has {one.dim} coordinates")
            assert isinstance(raw, bytes)
            view, vector = one.view, one.given(np.frombuffer(raw, "<f4")).astype("<f4").tobytes()
        if view in found:
            raise Poison(poison.WRONG_VIEW, f"{where} gives view {view} by two models")
        found[view] = vector
    return found


def query_in_views(query: ObjectRef, space: SpaceSpec, maps: VectorMaps, where: str = "q") -> ObjectRef:
    """The query with vectors of the space; the same one where none is mapped. Raises Poison."""
    features = query.features()
    if features is None or not maps:
        return query
    raw = {name: raw_vector(vector) for name, vector in features.items()}
    found = in_views(raw, space, maps, where)
    if found is raw:
        return query
    views = {name: vector_of(vector) for name, vector in found.items()}
    return (
        replace(query, x=views[UNNAMED_VIEW], views=None)
        if [*views] == [UNNAMED_VIEW]
        else replace(query, x=None, views=views)
    )
