"""The feature space: several views of an object, each mapped, joined into one vector of unit length.

Nothing learned on another space fits: a fitted space is frozen and has an id, the SHA-256 of everything it
computes with, that state, catalog and events are compared by.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, as_block
from learners.errors import MapError
from learners.maps.base import ViewConfig, ViewMap
from learners.maps.compose import block_widths, fit_map, joined, load_map, own_arrays
from learners.maps.identity import to_unit

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SpaceMap:
    """The plan of a space: view name -> map, joined in the order of the mapping.

    unit: bring each mapped view and then the whole vector to unit length, so that views weigh alike and a
    missing one costs nothing but itself; False joins the mapped views as they are.
    by_block: unit length is that of each block of columns (a view, or each kernel of one) and not of the
    whole: so a learner of one similarity per block wants it.
    """

    views: Mapping[str, ViewConfig]
    unit: bool = True
    by_block: bool = False

    def fit(self, sample: Mapping[str, Any]) -> FittedSpaceMap:
        """Fit every view on its warm-up rows: numpy arrays, scipy CSR or blocks, which may differ in length.

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
                fitted[name] = fit_map(config, as_block(sample[name]))
            except MapError as error:
                raise MapError(f"view {name}: {error}") from error
        return FittedSpaceMap(fitted, self.unit, self.by_block)


@dataclass(frozen=True)
class FittedSpaceMap:
    """A frozen space. `views` in order of their columns; all dense gives dense rows, else the rows are
    CSR."""

    views: Mapping[str, ViewMap]
    unit: bool = True
    by_block: bool = False

    @property
    def blocks(self) -> dict[str, range]:
        """The columns of each block: of a view by its name, of its kernels by `view/0`, `view/1`, ..."""
        columns: dict[str, range] = {}
        start = 0
        for name, view in self.views.items():
            widths = block_widths(view)
            for place, width in enumerate(widths):
                columns[name if len(widths) == 1 else f"{name}/{place}"] = range(start, start + width)
                start += width
        return columns

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

    def transform(self, views: Mapping[str, Any]) -> Block:
        """Map and join views of the same objects, row by row; the same bits for every batch size. views:
        numpy arrays, scipy CSR or blocks, by name.

        A view that is absent, or zero in a row, contributes zeros; a row of zeros stays zero (and is
        degenerate for a learner). Views the space does not know are left out. A malformed row stays malformed
        for the same reason. Raises MapError on none of its views, unequal lengths, or a view that does not
        fit its map.
        """
        present = {name: as_block(views[name]) for name in self.views if name in views}
        lengths = {len(block) for block in present.values()}
        if len(lengths) != 1:
            problem = (
                f"views of unequal lengths {sorted(lengths)}" if lengths else "none of its views was given"
            )
            raise MapError(f"the space of {', '.join(self.views)}: {problem}")
        mapped = {name: self._map(name, block) for name, block in present.items()}
        parts = [(mapped.get(name), view.dim) for name, view in self.views.items()]
        rows = joined(parts, lengths.pop(), self.sparse)
        if self.unit and not self.by_block:
            to_unit(rows)
        return rows

    def _map(self, name: str, block: Block) -> Block:
        try:
            mapped = self.views[name].transform(block)
        except MapError as error:
            raise MapError(f"view {name}: {error}") from error
        several = len(block_widths(self.views[name])) > 1  # brought to unit length one by one already
        if self.unit and not (self.by_block and several):
            to_unit(mapped)
        return mapped

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fitted arrays, named `view.array`."""
        return {
            f"{view}.{name}": a for view, fitted in self.views.items() for name, a in fitted.arrays().items()
        }

    def spec(self) -> dict[str, Any]:
        """JSON-able description; with the arrays it is the whole map."""
        views = [{"name": name, "kind": view.kind, **view.spec()} for name, view in self.views.items()]
        plan = {"format": FORMAT, "unit": self.unit, "views": views}
        return {**plan, "by_block": True} if self.by_block else plan

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec()` and `arrays()`. Raises MapError naming what is missing or does not fit."""
        try:
            if spec["format"] != FORMAT:
                raise MapError(f"the map has format {spec['format']}, this program reads {FORMAT}")
            views = {str(view["name"]): _load_view(view, arrays) for view in spec["views"]}
            return cls(views, bool(spec["unit"]), bool(spec.get("by_block", False)))
        except (KeyError, TypeError) as error:
            raise MapError(f"the description of the map is incomplete: {error}") from error


def _load_view(view: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ViewMap:
    try:
        return load_map(view, own_arrays(str(view["name"]), arrays))
    except MapError as error:
        raise MapError(f"view {view['name']}: {error}") from error
