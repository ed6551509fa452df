"""Maps made of maps: one after another, and several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from learners.block import Block
from learners.errors import MapError
from learners.maps.base import ViewConfig, ViewMap, read_options
from learners.maps.cosine import CosineMap
from learners.maps.fourier import RffMap
from learners.maps.hike import HikeMap
from learners.maps.identity import IdentityMap
from learners.maps.joined import joined
from learners.maps.nystroem import NystroemMap
from learners.maps.roots import SqrtMap
from learners.maps.shares import SharesMap
from learners.maps.standardise import StandardiseMap
from learners.maps.tfidf import TfidfMap
from learners.maps.unit import UnitMap, to_unit
from learners.maps.whiten import WhitenMap


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
