"""The feature space: several views of an object, each mapped, joined into one vector of unit length.

A view's map may be made of maps, one after another or side by side. Nothing learned on another space fits: a
fitted space is frozen and has an id, the SHA-256 of everything it computes with of objects, that state,
catalog and events are compared by. Queries of another embedding model have a map of their own in front of it
(`learners.maps.queries`), which changes nothing for anything else, and so not the id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from learners.block import Block, DenseBlock, SparseBlock, as_block
from learners.errors import BlockError, MapError
from learners.kernels.checks import MAX_MAGNITUDE
from learners.kernels.map_rows import append_dense, append_sparse
from learners.maps.approximations import NystroemMap, RffMap
from learners.maps.base import (
    SIMILARITIES,
    CosineMap,
    IdentityMap,
    LinearRows,
    OwnRanking,
    Rows,
    Similarity,
    UnitMap,
    ViewConfig,
    ViewMap,
    ViewMetric,
    read_options,
    to_unit,
)
from learners.maps.histograms import HikeMap, SharesMap, SqrtMap
from learners.maps.order import OrderMap
from learners.maps.queries import QueryMap, load_queries, queries_arrays, queries_spec
from learners.maps.scaling import PcaMap, PreconditionMap, StandardiseMap, TfidfMap, WhitenMap
from learners.maps.separable import AddKpcaMap, PcaLapMap, RpLapMap


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


class MapsMap(ViewMap):
    """Base of maps that are made of maps. maps: in order; their arrays are named `place.array`."""

    maps: Sequence[ViewMap]

    def __init__(self, maps: Sequence[ViewMap]) -> None:
        self.maps = tuple(maps)

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors that the first one reads, or all of them."""
        return self.maps[0].dim_in

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The maps of `spec` and their arrays."""
        if not spec["maps"]:
            raise MapError("the description of a map made of maps names none")
        return cls([load_map(one, own_arrays(str(place), arrays)) for place, one in enumerate(spec["maps"])])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fitted arrays, named `place.array`."""
        named = ((place, one.arrays()) for place, one in enumerate(self.maps))
        return {f"{place}.{name}": array for place, own in named for name, array in own.items()}

    def spec(self) -> dict[str, Any]:
        """The maps in order."""
        return {"maps": [{"kind": one.kind, **one.spec()} for one in self.maps]}


class ChainMap(MapsMap):
    """Maps one after another, each fitted on what the one before gives: whiten, then unit, then rff.

    Options: maps, a list of `ViewConfig`. A zero row stays zero, since it does under every map.
    """

    kind: ClassVar[str] = "chain"

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

    def transform(self, block: Block) -> Block:
        """Mapped rows in new arrays."""
        for step in self.maps:
            block = step.transform(block)
        return block

    def metric(self) -> ViewMetric | None:
        """That of the maps together."""
        found = self.maps[0].metric()
        for step in self.maps[1:]:
            after, columns = step.metric(), step.given_columns()
            if found is not None and columns is not None:
                found = replace(found, weights=found.weights[columns])
            found = None if found is None or after is None else found.then(after)
        return found

    def given_columns(self) -> NDArray[np.int64] | None:
        """That of the maps together; None where one of them is not `by_column`."""
        found: NDArray[np.int64] | None = None
        for step in self.maps:
            if not (step.by_column or isinstance(step, ChainMap)):
                return None
            own = step.given_columns()
            if own is not None:
                found = own if found is None else found[own]
        return found

    def linear(self) -> LinearRows | None:
        """The linear maps one after the other, as one; None where one is not linear."""
        found = self.maps[0].linear()
        for step in self.maps[1:]:
            after = step.linear()
            found = None if found is None or after is None else found.then(after)
        return found


class KernelsMap(MapsMap):
    """Several maps of the same rows side by side, each brought to unit length: one block of columns for each
    kernel of a view, as OMKS over explicit maps learns them.

    Options: maps, a list of `ViewConfig`. The maps give dense rows, or all of them CSR rows.
    """

    kind: ClassVar[str] = "kernels"

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

    def transform(self, block: Block) -> Block:
        """The blocks side by side, in new arrays."""
        block = as_block(block)
        parts: list[tuple[Block | None, int]] = []
        for one in self.maps:
            mapped = one.transform(block)
            to_unit(mapped)
            parts.append((mapped, one.dim))
        return joined(parts, len(block), self.sparse)


KINDS: Mapping[str, type[ViewMap]] = {
    one.kind: one
    for one in (
        *(IdentityMap, UnitMap, StandardiseMap, WhitenMap, PcaMap, PreconditionMap, TfidfMap),
        *(OrderMap, SharesMap, SqrtMap, CosineMap, RffMap, HikeMap, NystroemMap, PcaLapMap),
        *(RpLapMap, AddKpcaMap, ChainMap, KernelsMap),
    )
}
"""The maps by the name a configuration gives them."""


def fit_map(config: ViewConfig, sample: Block) -> ViewMap:
    """The map of a configuration, fitted on rows, which are anything that `as_block` reads. Raises MapError
    as the map does, and for an unknown kind."""
    return _kind(config.kind).fit(_block(sample), config.options)


def _block(rows: Any) -> Block:
    """The rows as a block; raises MapError for what is none."""
    try:
        return as_block(rows)
    except BlockError as error:
        raise MapError(str(error)) from error


def load_map(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ViewMap:
    """The map of its description (with its kind) and arrays. Raises MapError as the map does."""
    try:
        return _kind(spec["kind"]).load(spec, arrays)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, MapError):
            raise
        raise MapError(f"the description of the map is incomplete: {error}") from error


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


def _by_name(views: Mapping[str, Any], given: Any) -> Mapping[str, Any]:
    """The rows given for a space, by the names of their views. Raises MapError for rows without a name where
    there are several."""
    if isinstance(given, Mapping) and not issparse(given):  # a dok_array is both
        return given
    name, *others = views
    if others:
        raise MapError(f"the space has several views, name them: {{{name!r}: ..., {others[0]!r}: ...}}")
    return {name: given}


FORMAT = 1
OWN_FORMAT = 2
"""That of a space which knows the user's own similarity; programs that read format 1 alone refuse it."""
QUERIES_FORMAT = 3
"""That of a space with maps of queries."""
PLANS = ("by_block", "effective")
"""What a description names only where it is so."""


@dataclass(frozen=True, slots=True)
class SpaceMap:
    """The plan of a space: view name -> map, joined in the order of the mapping.

    unit: bring each mapped view and then the whole vector to unit length, so that views weigh alike and a
    missing one costs nothing but itself; False joins the mapped views as they are.
    by_block: unit length is that of each block of columns (a view, or each kernel of one) and not of the
    whole: so a learner of one similarity per block wants it.
    effective: bring only the whole vector to unit length. A whitened view then weighs by its effective
    dimension, the sum of v / (v + epsilon * mean v) over its variances v, and one that holds next to nothing
    weighs next to nothing; brought to unit length by itself it would weigh as much as the best one.

    similarity: what the user's own index computes of the given vectors, of several views each with its
    weight in `weights` (1 where it is not named): cosine, the mean of the views' cosines; inner_product or
    euclidean, the sum of theirs. The space then knows that ranking (`FittedSpaceMap.own`), if its maps lose
    nothing of it, and `unit` and `effective` do not matter: under cosine the joined row is brought to unit
    length, unless `by_block`; else rows keep their lengths, times one constant for all. A view that is
    preconditioned weighs by its effective dimension, as one that is whitened does; any other, and each one
    where it is `by_block`, gets a mean length of 1. "" is none.
    """

    views: Mapping[str, ViewConfig]
    unit: bool = True
    by_block: bool = False
    effective: bool = False
    similarity: Similarity | Literal[""] = ""
    weights: Mapping[str, float] = field(default_factory=dict)

    def fit(self, sample: Mapping[str, Any] | Any) -> FittedSpaceMap:
        """Fit every view on its warm-up rows: numpy arrays, scipy CSR or blocks, which may differ in length,
        by the names of their views; those of the only view need no name.

        Raises MapError naming the view that is missing, of unknown kind or cannot be fitted.
        """
        if not self.views:
            raise MapError("a space needs at least one view")
        _check_own(self.similarity, self.weights, self.views)
        fitted, sample = {}, _by_name(self.views, sample)
        for name, config in self.views.items():
            if name not in sample:
                raise MapError(
                    f"view {name}: not in the sample, which has: {', '.join(sorted(sample)) or 'no views'}"
                )
            with _of_view(name):
                fitted[name] = fit_map(config, sample[name])
        if not self.similarity:
            return FittedSpaceMap(fitted, self.unit, self.by_block, self.effective)
        joins = self.similarity == "cosine" and not self.by_block
        sizes = {name: _sizes(one, _block(sample[name])) for name, one in fitted.items()}
        scales = _scales(fitted, {name: mapped for name, (mapped, _) in sizes.items()}, self.by_block, joins)
        weights = {name: float(self.weights.get(name, 1.0)) for name in fitted}
        own = sum(weights[name] * given for name, (_, given) in sizes.items())
        if joins:
            own /= sum(scales[name] ** 2 * mapped for name, (mapped, _) in sizes.items())
        elif self.by_block:
            own /= len(fitted)
        return FittedSpaceMap(
            fitted, joins, self.by_block, True, self.similarity, weights, scales, float(own)
        )


def _check_own(similarity: str, weights: Mapping[str, float], views: Mapping[str, Any]) -> None:
    if similarity not in ("", *SIMILARITIES):
        raise MapError(f"the similarity must be one of {', '.join(SIMILARITIES)}, not {similarity!r}")
    for name, weight in weights.items():
        if name not in views or not 0 < weight < np.inf:
            raise MapError(f"the weight of view {name} must be a number above 0, of a view of the space")


def _scales(
    fitted: Mapping[str, ViewMap], squares: Mapping[str, float], by_block: bool, joins: bool
) -> dict[str, float]:
    """What each view's rows are multiplied with. squares: the mean squared length of its mapped rows. joins:
    joined rows come to unit length, so that only the sizes of views relative to each other matter."""
    by_dimension = [name for name, one in fitted.items() if _preconditioned(one) and not by_block]
    sizes = dict(squares)
    if by_dimension:
        sizes |= dict.fromkeys(by_dimension, float(np.mean([squares[name] for name in by_dimension])))
    if joins and len({*sizes.values()}) == 1:
        return dict.fromkeys(sizes, 1.0)
    share = 1.0 if by_block or joins else 1 / np.sqrt(len(sizes))
    return {name: float(share / np.sqrt(size)) for name, size in sizes.items()}


def _preconditioned(fitted: ViewMap) -> bool:
    last = fitted.maps[-1] if isinstance(fitted, ChainMap) else fitted
    return isinstance(last, PreconditionMap)


def _sizes(fitted: ViewMap, sample: Block) -> tuple[float, float]:
    """The mean squared length of the mapped rows of a sample and that of the given ones, those of zeros left
    out; 1 where there are none, and where rows come to unit length."""
    known = fitted.metric()
    if known is None or (known.rows == "unit" and (known.weights == 1).all()):
        return 1.0, 1.0
    spread = np.linspace(0, max(0, len(sample) - 1), min(len(sample), SCALE_ROWS)).astype(np.int64)
    mapped = fitted.transform(sample.take(np.unique(spread)))
    if isinstance(mapped, DenseBlock):
        squares = np.square(mapped.values, dtype=np.float64)
    else:
        squares = mapped.checked_csr().astype(np.float64).power(2)
    lengths = np.asarray(squares.sum(axis=1)).reshape(-1), np.asarray(squares @ known.weights).reshape(-1)
    sound = np.isfinite(lengths[0]) & (lengths[0] > 0)
    if not sound.any():
        return 1.0, 1.0
    return float(lengths[0][sound].mean()), float(lengths[1][sound].mean())


SCALE_ROWS = 5_000
"""Rows by which lengths are judged: a mean needs no more."""


@dataclass(frozen=True)
class FittedSpaceMap:
    """A frozen space. `views` in order of their columns; all dense gives dense rows, else the rows are
    CSR. scales: what each view's mapped rows are multiplied with, where there is a `similarity`; self_score:
    as in `OwnRanking`. queries: by name, what takes queries of another model to the given vectors of a view.
    """

    views: Mapping[str, ViewMap]
    unit: bool = True
    by_block: bool = False
    effective: bool = False
    similarity: Similarity | Literal[""] = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    scales: Mapping[str, float] = field(default_factory=dict)
    self_score: float = 1.0
    queries: Mapping[str, QueryMap] = field(default_factory=dict)

    @cached_property
    def own(self) -> OwnRanking | None:
        """The user's own ranking in these columns: of x = given vectors of unit length each (`cosine`) or as
        they are, joined by the roots of their weights. None where no similarity was named, or a map loses
        something of it.
        """
        if not self.similarity:
            return None
        wanted: tuple[Rows, ...] = ("kept",) if self.similarity != "cosine" else ("unit",)
        if self.similarity == "cosine" and len(self.views) == 1:
            wanted = ("kept", "unit", "scaled")  # the lengths of rows cancel
        parts = []
        for name, view in self.views.items():
            found = view.metric()
            if found is None or found.rows not in wanted:
                return None
            parts.append(found.weights * self.weights[name] / self.scales[name] ** 2)
        return OwnRanking(
            self.similarity, np.concatenate(parts).astype(np.float32), self.self_score, len(parts)
        )

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

    @cached_property
    def given_columns(self) -> NDArray[np.int64] | None:
        """For each joined column the one that it would be had no map put columns into another order, int64
        [dim]; None where none did."""
        parts, start, moved = [], 0, False
        for view in self.views.values():
            own = view.given_columns()
            moved = moved or own is not None
            parts.append(start + (np.arange(view.dim) if own is None else own))
            start += view.dim
        return np.concatenate(parts) if moved else None

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
        """Hex SHA-256 over kinds, parameters and arrays: two spaces of one id map objects alike."""
        digest = hashlib.sha256(json.dumps(self._spec(), sort_keys=True, separators=(",", ":")).encode())
        for name, array in sorted(self._arrays().items()):
            digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def transform(self, views: Mapping[str, Any] | Any) -> Block:
        """Map and join views of the same objects, row by row; the same bits for every batch size. views:
        numpy arrays, scipy CSR or blocks, by name; the only view needs none.

        A view that is absent, or zero in a row, contributes zeros; a row of zeros stays zero (and is
        degenerate for a learner). Views the space does not know are left out. A malformed row stays malformed
        for the same reason. Raises MapError on none of its views, unequal lengths, or a view that does not
        fit its map.
        """
        given = _by_name(self.views, views)
        present = {}
        for name in self.views:
            if name in given:
                with _of_view(name):
                    present[name] = _block(given[name])
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
        with _of_view(name):
            mapped = self.views[name].transform(block)
        several = len(block_widths(self.views[name])) > 1  # brought to unit length one by one already
        if self.unit and not self.effective and not (self.by_block and several):
            to_unit(mapped)
        if self.scales.get(name, 1.0) != 1:
            sound = np.abs(mapped.values) <= MAX_MAGNITUDE  # what a step refuses stays what it refuses
            np.multiply(mapped.values, np.float32(self.scales[name]), out=mapped.values, where=sound)
        return mapped

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fitted arrays, named `view.array`, and those of `queries`."""
        return self._arrays() | queries_arrays(self.queries)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{view}.{name}": a for view, fitted in self.views.items() for name, a in fitted.arrays().items()
        }

    def spec(self) -> dict[str, Any]:
        """JSON-able description; with the arrays it is the whole map."""
        if not self.queries:
            return self._spec()
        return self._spec() | {"format": QUERIES_FORMAT, "queries": queries_spec(self.queries)}

    def _spec(self) -> dict[str, Any]:
        views = [{"name": name, "kind": view.kind, **view.spec()} for name, view in self.views.items()]
        plan = {"format": FORMAT, "unit": self.unit, "views": views}
        plan |= {name: True for name in PLANS if getattr(self, name)}
        if not self.similarity:
            return plan
        own = {"similarity": self.similarity, "weights": dict(self.weights), "scales": dict(self.scales)}
        return {**plan, **own, "self_score": self.self_score, "format": OWN_FORMAT}

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec()` and `arrays()`. Raises MapError naming what is missing or does not fit."""
        try:
            if spec["format"] not in range(FORMAT, QUERIES_FORMAT + 1):
                raise MapError(
                    f"the map has format {spec['format']}, this program reads {FORMAT} to {QUERIES_FORMAT}"
                )
            views = {}
            for view in spec["views"]:
                with _of_view(view["name"]):
                    views[str(view["name"])] = load_map(view, own_arrays(str(view["name"]), arrays))
            plan: dict[str, Any] = {name: bool(spec.get(name, False)) for name in PLANS}
            if spec["format"] == OWN_FORMAT or "similarity" in spec:
                plan |= _own_of(spec, views)
            queries = load_queries(spec["queries"], arrays) if spec["format"] == QUERIES_FORMAT else {}
            for name, one in queries.items():
                if one.view not in views or one.matrix.shape[1] != views[one.view].dim_in:
                    raise MapError(f"the map of queries {name} leads to no view of the space")
            return cls(views, bool(spec["unit"]), **plan, queries=queries)
        except (KeyError, TypeError) as error:
            raise MapError(f"the description of the map is incomplete: {error}") from error


def _own_of(spec: Mapping[str, Any], views: Mapping[str, ViewMap]) -> dict[str, Any]:
    """What a description says of the user's own similarity. Raises MapError."""
    own = {name: {key: float(spec[name][key]) for key in views} for name in ("weights", "scales")}
    if not spec["similarity"]:
        raise MapError("the description of the map names no similarity")
    for numbers in own.values():
        _check_own(spec["similarity"], numbers, views)
    if not 0 < (self_score := float(spec["self_score"])) < np.inf:
        raise MapError(f"the self score of the map must be a number above 0, not {self_score}")
    return {"similarity": spec["similarity"], **own, "self_score": self_score}


@contextmanager
def _of_view(name: str) -> Iterator[None]:
    """Errors of a map name the view."""
    try:
        yield
    except MapError as error:
        raise MapError(f"view {name}: {error}") from error
