"""The feature space: several views of an object, each mapped, joined into one vector of unit length.

Nothing learned on another space fits: a fitted space is frozen and has an id, the SHA-256 of everything it
computes with, that state, catalog and events are compared by.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, SparseBlock
from learners.errors import MapError
from learners.kernels.rows import append_dense, append_sparse
from learners.maps.base import ViewMap
from learners.maps.identity import IdentityMap
from learners.maps.standardise import StandardiseMap
from learners.maps.tfidf import TfidfMap
from learners.maps.unit import UnitMap, to_unit
from learners.maps.whiten import WhitenMap

FORMAT = 1

KINDS: Mapping[str, type[ViewMap]] = {
    "identity": IdentityMap,
    "unit": UnitMap,
    "standardise": StandardiseMap,
    "whiten": WhitenMap,
    "tfidf": TfidfMap,
}
"""The maps by the name a configuration gives them."""


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """How one view is mapped: `kind` is a key of KINDS, `options` those of the map."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpaceMap:
    """The plan of a space: view name -> map, joined in the order of the mapping.

    unit: bring each mapped view and then the whole vector to unit length, so that views weigh alike and a
    missing one costs nothing but itself; False joins the mapped views as they are.
    """

    views: Mapping[str, ViewConfig]
    unit: bool = True

    def fit(self, sample: Mapping[str, Block]) -> FittedSpaceMap:
        """Fit every view on its warm-up rows (blocks may differ in length).

        Raises MapError naming the view that is missing, of unknown kind or cannot be fitted.
        """
        if not self.views:
            raise MapError("a space needs at least one view")
        fitted = {}
        for name, config in self.views.items():
            if name not in sample:
                raise MapError(
                    f"view {name}: not in the sample, which has: {', '.join(sorted(sample)) or 'no views'}"
                )
            try:
                fitted[name] = _kind(config.kind).fit(sample[name], config.options)
            except MapError as error:
                raise MapError(f"view {name}: {error}") from error
        return FittedSpaceMap(fitted, self.unit)


@dataclass(frozen=True)
class FittedSpaceMap:
    """A frozen space. `views` in order of their columns; all dense gives dense rows, else the rows are
    CSR."""

    views: Mapping[str, ViewMap]
    unit: bool = True

    @property
    def dim(self) -> int:
        """Dimension of the joined vector."""
        return sum(view.dim for view in self.views.values())

    @property
    def sparse(self) -> bool:
        """Whether the joined rows are CSR."""
        return any(view.sparse for view in self.views.values())

    @cached_property
    def id(self) -> str:
        """Hex SHA-256 over kinds, parameters and arrays: two spaces of one id map alike."""
        digest = hashlib.sha256(json.dumps(self.spec(), sort_keys=True, separators=(",", ":")).encode())
        for name, array in sorted(self.arrays().items()):
            digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def transform(self, views: Mapping[str, Block]) -> Block:
        """Map and join views of the same objects, row by row; the same bits for every batch size.

        A view that is absent, or zero in a row, contributes zeros; a row of zeros stays zero (and is
        degenerate for a learner). Views the space does not know are left out. A malformed row stays malformed
        for the same reason. Raises MapError on none of its views, unequal lengths, or a view that does not
        fit its map.
        """
        present = {name: views[name] for name in self.views if name in views}
        lengths = {len(block) for block in present.values()}
        if len(lengths) != 1:
            problem = (
                f"views of unequal lengths {sorted(lengths)}" if lengths else "none of its views was given"
            )
            raise MapError(f"the space of {', '.join(self.views)}: {problem}")
        mapped = {name: self._map(name, block) for name, block in present.items()}
        joined = self._join_sparse(mapped, *lengths) if self.sparse else self._join_dense(mapped, *lengths)
        if self.unit:
            to_unit(joined)
        return joined

    def _map(self, name: str, block: Block) -> Block:
        try:
            mapped = self.views[name].transform(block)
        except MapError as error:
            raise MapError(f"view {name}: {error}") from error
        if self.unit:
            to_unit(mapped)
        return mapped

    def _join_dense(self, mapped: Mapping[str, Block], rows: int) -> DenseBlock:
        joined, offset = np.zeros((rows, self.dim), np.float32), 0
        for name, view in self.views.items():
            block = mapped.get(name)
            if isinstance(block, DenseBlock):
                joined[:, offset : offset + view.dim] = block.values
            offset += view.dim
        return DenseBlock(joined)

    def _join_sparse(self, mapped: Mapping[str, Block], rows: int) -> SparseBlock:
        if len(self.views) == 1:  # nothing to join: the map has made the values new
            (only,) = mapped.values()
            assert isinstance(only, SparseBlock)
            return only
        lengths = np.zeros(rows, np.int64)
        for block in mapped.values():
            if isinstance(block, DenseBlock):
                lengths += np.count_nonzero(block.values, axis=1)
            else:
                lengths += np.diff(block.indptr)
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        ends, total, offset = indptr[:-1].copy(), self.dim, 0
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        for name, view in self.views.items():
            part = mapped.get(name)
            if isinstance(part, DenseBlock):
                append_dense(part.values, offset, ends, indices, values)
            elif part is not None:
                append_sparse(part.kernel_rows(), part.dim, offset, total, ends, indices, values)
            offset += view.dim
        return SparseBlock(indptr, indices, values, total)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fitted arrays, named `view.array`."""
        return {
            f"{view}.{name}": a for view, fitted in self.views.items() for name, a in fitted.arrays().items()
        }

    def spec(self) -> dict[str, Any]:
        """JSON-able description; with the arrays it is the whole map."""
        views = [{"name": name, "kind": view.kind, **view.spec()} for name, view in self.views.items()]
        return {"format": FORMAT, "unit": self.unit, "views": views}

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec()` and `arrays()`. Raises MapError naming what is missing or does not fit."""
        try:
            if spec["format"] != FORMAT:
                raise MapError(f"the map has format {spec['format']}, this program reads {FORMAT}")
            views = {str(view["name"]): _load_view(view, arrays) for view in spec["views"]}
            return cls(views, bool(spec["unit"]))
        except (KeyError, TypeError) as error:
            raise MapError(f"the description of the map is incomplete: {error}") from error


def _kind(name: str) -> type[ViewMap]:
    if name not in KINDS:
        raise MapError(f"unknown kind of map {name!r}; known: {', '.join(KINDS)}")
    return KINDS[name]


def _load_view(view: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ViewMap:
    prefix = f"{view['name']}."
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    try:
        return _kind(view["kind"]).load(view, own)
    except MapError as error:
        raise MapError(f"view {view['name']}: {error}") from error
