"""From objects as sent to columns of features: catalog rows, or checked inline vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from streams import poison
from streams.catalog import Catalog
from streams.codec import raw_vector
from streams.event import Column, DenseColumn, Int32Array, ObjectRef, SpaceSpec, SparseColumn, ViewSpec
from streams.poison import Poison
from streams.wire import RawVector, read_object

RawParts = tuple[RawVector, ...]
"""One object's inline vectors as bytes, in the order of the space's views."""


@dataclass(frozen=True, slots=True)
class RoleColumns:
    """Where the features of n objects are.

    `rows` int32 [n]: the catalog row, or -1 where the object came with its features. `inline`: by
    view name, a column of n rows whose row i is all zero where `rows[i] >= 0`; None when every
    object came from the catalog.
    """

    rows: Int32Array
    inline: dict[str, Column] | None

    def __len__(self) -> int:
        return len(self.rows)


def build_role(space: SpaceSpec, rows: Sequence[int], parts: Sequence[RawParts | None]) -> RoleColumns:
    """Columns from per-object catalog rows and inline bytes (None where the object is in the catalog)."""
    row_array = np.array(rows, np.int32)
    if not (row_array < 0).any():
        return RoleColumns(row_array, None)
    blank = tuple(_blank(view) for view in space.views)
    filled = [blank if one is None else one for one in parts]
    inline = {view.name: _column(view, [one[j] for one in filled]) for j, view in enumerate(space.views)}
    return RoleColumns(row_array, inline)


def _blank(view: ViewSpec) -> RawVector:
    return bytes(4 * view.dim) if view.kind == "dense" else [b"", b""]


def _column(view: ViewSpec, vectors: Sequence[RawVector]) -> Column:
    """One buffer per array: the bytes of all vectors joined, then read in place."""
    if view.kind == "dense":
        joined = b"".join(cast(Sequence[bytes], vectors))
        return DenseColumn(np.frombuffer(joined, "<f4").reshape(len(vectors), view.dim))
    pairs = cast(Sequence[list[bytes]], vectors)
    indices = [pair[0] for pair in pairs]
    indptr = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, indices), np.int64, len(pairs)) // 4, out=indptr[1:])
    values = np.frombuffer(b"".join([pair[1] for pair in pairs]), "<f4")
    return SparseColumn(indptr, np.frombuffer(b"".join(indices), "<i4"), values, view.dim)


class Resolver:
    """Checks objects against one space and looks ids up in one catalog (None: there is none)."""

    def __init__(self, space: SpaceSpec, catalog: Catalog | None) -> None:
        if catalog is not None and catalog.space != space:
            raise ValueError(f"the catalog's space {catalog.space.id!r} is not the configured {space.id!r}")
        self.space = space
        # per view: its name, and the bytes of its dense vectors or 0 for a sparse view
        self._sizes = [(view.name, 4 * view.dim if view.kind == "dense" else 0) for view in space.views]
        self._row_of = catalog.row_of if catalog is not None else None

    def check_space(self, space: str | None) -> None:
        """Refuse a record that names another space; one that names none is taken to be of this one."""
        if space is not None and space != self.space.id:
            raise Poison(poison.WRONG_SPACE, "sp is not the configured space")

    def locate(self, raw: Any, where: str) -> tuple[int, RawParts | None]:
        """`resolve` for an object as unpacked from the wire."""
        if type(raw) is tuple and len(raw) == 1 and self._row_of is not None:
            ((name, only),) = raw  # the common form, an id and nothing else, first
            if name == "id" and type(only) is str:
                row = self._row_of(only)
                if row is not None:
                    return row, None
        object_id, features = read_object(raw, where)
        return self.resolve(object_id, features, where)

    def resolve(
        self, object_id: str | None, features: Mapping[str, RawVector] | None, where: str
    ) -> tuple[int, RawParts | None]:
        """(catalog row, None), or (-1, vectors in the order of the space's views); raises Poison.

        Inline features win over the catalog. Numbers inside the vectors are not looked at.
        """
        if features is not None:
            return -1, self.inline(features, where)
        if object_id is None:
            raise Poison(poison.BAD_OBJECT, f"{where} has neither id nor features")
        if self._row_of is None:
            raise Poison(poison.NO_FEATURES, f"{where} is by id alone and no catalog is configured")
        row = self._row_of(object_id)
        if row is None:
            raise Poison(poison.UNKNOWN_OBJECT, f"{where}.id is not in the catalog")
        return row, None

    def inline(self, features: Mapping[str, RawVector], where: str) -> RawParts:
        """Vectors in the order of the space's views; raises Poison unless they are these, in their sizes."""
        parts = []
        for name, size in self._sizes:
            raw = features.get(name)
            # a dense vector on the wire is never empty, so that 0 fits sparse ones only
            if raw is None or (len(raw) != size if type(raw) is bytes else size):
                raise _misfit(raw, name, size, where)
            parts.append(raw)
        if len(features) != len(parts):
            raise Poison(poison.WRONG_VIEW, f"{where} has a view that space {self.space.id} does not know")
        return tuple(parts)


def _misfit(raw: RawVector | None, name: str, size: int, where: str) -> Poison:
    if raw is None:
        return Poison(poison.WRONG_VIEW, f"{where} lacks view {name}")
    if isinstance(raw, bytes) != (size > 0):
        return Poison(poison.WRONG_KIND, f"{where}: view {name} is {'dense' if size else 'sparse'}")
    return Poison(poison.WRONG_DIM, f"{where}: view {name} has {size // 4} coordinates")


def gather_objects(refs: Sequence[ObjectRef], space: SpaceSpec, catalog: Catalog | None) -> RoleColumns:
    """Where the features of these objects are, as columns; raises Poison naming the object's place.

    Only structure is checked: objects that came through `decode_impression` have checked numbers,
    except that a sparse index may lie beyond the view's size, which is refused here.
    """
    resolver = Resolver(space, catalog)
    rows: list[int] = []
    parts: list[RawParts | None] = []
    for place, ref in enumerate(refs):
        features = ref.features()
        raw = None if features is None else {name: raw_vector(vector) for name, vector in features.items()}
        where = f"object {place}"
        row, part = resolver.resolve(ref.id, raw, where)
        _check_indices(part, space, where)
        rows.append(row)
        parts.append(part)
    return build_role(space, rows, parts)


def check_features(ref: ObjectRef, space: SpaceSpec, where: str) -> None:
    """Raise Poison where an object brings features that are not of this space, in its views and sizes."""
    features = ref.features()
    if features is not None:
        raw = {name: raw_vector(vector) for name, vector in features.items()}
        _check_indices(Resolver(space, None).inline(raw, where), space, where)


def _check_indices(parts: RawParts | None, space: SpaceSpec, where: str) -> None:
    for view, raw in zip(space.views, parts or (), strict=False):
        # indices increase strictly, so the last one is the largest
        if isinstance(raw, list) and int.from_bytes(raw[0][-4:], "little", signed=True) >= view.dim:
            raise Poison(poison.INDEX_OUT_OF_RANGE, f"{where}: view {view.name} has size {view.dim}")
