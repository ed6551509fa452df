"""Maps made of maps: one after another, and several side by side.

Mapped parts of the same objects, joined side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, SparseBlock
from learners.errors import MapError
from learners.kernels.map_rows import append_dense, append_sparse
from learners.maps.approximations import NystroemMap, RffMap
from learners.maps.base import ViewConfig, ViewMap, read_options
from learners.maps.histograms import HikeMap, SharesMap, SqrtMap
from learners.maps.identity import CosineMap, IdentityMap, UnitMap, to_unit
from learners.maps.scaling import StandardiseMap, TfidfMap, WhitenMap


def joined(parts: Sequence[tuple[Block | None, int]], rows: int, sparse: bool) -> Block:
    """The parts side by side, each of its dimension; None is a part that is missing, all zero.

    sparse: whether the rows are CSR, which they must be where a part is. Values are copied, unless the only
    part is sparse. A malformed row stays malformed for the same reason.
    """
    if not sparse:
        return _dense(parts, rows)
    if len(parts) == 1 and isinstance(parts[0][0], SparseBlock):  # nothing to join
        return parts[0][0]
    return _sparse(parts, rows)


def _dense(parts: Sequence[tuple[Block | None, int]], rows: int) -> DenseBlock:
    values, offset = np.zeros((rows, sum(dim for _, dim in parts)), np.float32), 0
    for block, dim in parts:
        if isinstance(block, DenseBlock):
            values[:, offset : offset + dim] = block.values
        offset += dim
    return DenseBlock(values)


def _sparse(parts: Sequence[tuple[Block | None, int]], rows: int) -> SparseBlock:
    lengths = np.zeros(rows, np.int64)
    for block, _ in parts:
        if isinstance(block, DenseBlock):
            lengths += np.count_nonzero(block.values, axis=1)
        elif block is not None:
            lengths += np.diff(block.indptr)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    ends, total, offset = indptr[:-1].copy(), sum(dim for _, dim in parts), 0
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for block, dim in parts:
        if isinstance(block, DenseBlock):
            append_dense(block.values, offset, ends, indices, values)
        elif block is not None:
            append_sparse(block.kernel_rows(), dim, offset, total, ends, indices, values)
        offset += dim
    return SparseBlock(indptr, indices, values, total)


@dataclass(frozen=True, slots=True, eq=False)
class ChainMap:
    """Maps one after another, each fitted on what the one before gives: whiten, then unit, then rff.

    Options: maps, a list of `ViewConfig`. A zero row stays zero, since it does under every map.
    """

    kind: ClassVar[str] = "chain"
    maps: Sequence[ViewMap]

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors the first one reads."""
        return self.maps[0].dim_in

    @property
    def dim(self) -> int:
        """Dimension of the vectors the last one gives."""
        return self.maps[-1].dim

    @property
    def sparse(self) -> bool:
        """Whether the last one gives CSR rows."""
        return self.maps[-1].sparse

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Fit each on the mapped sample. Raises MapError as the maps do."""
        fitted: list[ViewMap] = []
        for config in _configs(cls.kind, options):
            fitted.append(fit_map(config, sample))
            sample = fitted[-1].transform(sample)
        return cls(fitted)

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The maps of `spec` and their arrays."""
        return cls(_load_all(spec, arrays))

    def transform(self, block: Block) -> Block:
        """Mapped rows in new arrays."""
        for step in self.maps:
            block = step.transform(block)
        return block

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fitted arrays, named `place.array`."""
        return _arrays(self.maps)

    def spec(self) -> dict[str, Any]:
        """The maps in order."""
        return _spec(self.maps)


@dataclass(frozen=True, slots=True, eq=False)
class KernelsMap:
    """Several maps of the same rows side by side, each brought to unit length: one block of columns for each
    kernel of a view, as OMKS over explicit maps learns them.

    Options: maps, a list of `ViewConfig`. The maps give dense rows, or all of them CSR rows.
    """

    kind: ClassVar[str] = "kernels"
    maps: Sequence[ViewMap]

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors they read."""
        return self.maps[0].dim_in

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return sum(one.dim for one in self.maps)

    @property
    def sparse(self) -> bool:
        """Whether one gives CSR rows: then all rows are."""
        return any(one.sparse for one in self.maps)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Fit each on the sample. Raises MapError as the maps do."""
        return cls([fit_map(config, sample) for config in _configs(cls.kind, options)])

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The maps of `spec` and their arrays."""
        return cls(_load_all(spec, arrays))

    def transform(self, block: Block) -> Block:
        """The blocks side by side, in new arrays."""
        parts: list[tuple[Block | None, int]] = []
        for one in self.maps:
            mapped = one.transform(block)
            to_unit(mapped)
            parts.append((mapped, one.dim))
        return joined(parts, len(block), self.sparse)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fitted arrays, named `place.array`."""
        return _arrays(self.maps)

    def spec(self) -> dict[str, Any]:
        """The maps in order."""
        return _spec(self.maps)


KINDS: Mapping[str, type[ViewMap]] = {
    "identity": IdentityMap,
    "unit": UnitMap,
    "standardise": StandardiseMap,
    "whiten": WhitenMap,
    "tfidf": TfidfMap,
    "shares": SharesMap,
    "sqrt": SqrtMap,
    "cosine": CosineMap,
    "rff": RffMap,
    "hike": HikeMap,
    "nystroem": NystroemMap,
    "chain": ChainMap,
    "kernels": KernelsMap,
}
"""The maps by the name a configuration gives them."""


def fit_map(config: ViewConfig, sample: Block) -> ViewMap:
    """The map of a configuration, fitted. Raises MapError as the map does, and for an unknown kind."""
    return _kind(config.kind).fit(sample, config.options)


def load_map(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ViewMap:
    """The map of its description (with its kind) and arrays. Raises MapError as the map does."""
    return _kind(spec["kind"]).load(spec, arrays)


def block_widths(fitted: ViewMap) -> tuple[int, ...]:
    """Columns of each kernel's block in what a map gives: one block, unless it ends in several maps side by
    side."""
    if isinstance(fitted, ChainMap):
        return block_widths(fitted.maps[-1])
    if isinstance(fitted, KernelsMap):
        return tuple(width for one in fitted.maps for width in block_widths(one))
    return (fitted.dim,)


def own_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays named `name.array`, without the name."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _kind(name: str) -> type[ViewMap]:
    if name not in KINDS:
        raise MapError(f"unknown kind of map {name!r}; known: {', '.join(KINDS)}")
    return KINDS[name]


def _configs(kind: str, options: Mapping[str, Any]) -> Sequence[ViewConfig]:
    configs: Sequence[ViewConfig] = read_options(kind, options, {"maps": ()})["maps"]
    if not configs:
        raise MapError(f"the map {kind} needs at least one map: give it in the option maps")
    return configs


def _load_all(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[ViewMap]:
    if not spec["maps"]:
        raise MapError("the description of a map made of maps names none")
    return [load_map(one, own_arrays(str(place), arrays)) for place, one in enumerate(spec["maps"])]


def _arrays(maps: Sequence[ViewMap]) -> dict[str, NDArray[Any]]:
    return {
        f"{place}.{name}": array for place, one in enumerate(maps) for name, array in one.arrays().items()
    }


def _spec(maps: Sequence[ViewMap]) -> dict[str, Any]:
    return {"maps": [{"kind": one.kind, **one.spec()} for one in maps]}
