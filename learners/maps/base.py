"""What a map of one view offers, how its options are read, the maps that fit nothing (identity, unit and
cosine), and the user's own ranking in the columns of a map that loses nothing of it.

What their index computes today: learning steps go better in another geometry than the one a user's vectors
lie in, but nobody wants to begin worse than they were. A map z(x) that is linear and can be undone carries
the inner product of the vectors as they were given, in a metric M of its own columns: x^T y = z(x)^T M z(y).
For every map here M is diagonal: of an uncentred whitening z = D^(-1/2) V^T x it is D. So the cosine, the
inner product and the Euclidean distance of the given vectors are quadratic forms of the mapped ones, exact up
to float32 rounding. That is what version 0 answers with, and what learning may begin from, which is another
matter: see `first_diagonal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, SparseBlock, as_block
from learners.errors import MapError
from learners.forms.quadratic import DiagonalForm
from learners.kernels.kinds import MAP_KERNELS
from learners.kernels.map_rows import cosine_dense, unit_dense, unit_sparse

Similarity: TypeAlias = Literal["cosine", "inner_product", "euclidean"]
SIMILARITIES: tuple[Similarity, ...] = ("cosine", "inner_product", "euclidean")

Rows: TypeAlias = Literal["kept", "unit", "scaled"]
"""What a map does to the length of a row: nothing; brings it to that of a unit vector; or anything else."""

Start: TypeAlias = Literal["auto", "own", "identity", "mean"]


@dataclass(frozen=True, slots=True, eq=False)
class ViewMetric:
    """How one map carries the inner product: x^T y = a(x) a(y) sum_j weights_j z_j(x) z_j(y).

    weights: float64 [dim], > 0. rows: a is 1 where `kept`, ||x|| where `unit`, and depends on the row in
    another way where `scaled`.
    """

    weights: NDArray[np.float64]
    rows: Rows

    def then(self, after: ViewMetric) -> ViewMetric | None:
        """That of a second map behind this one; None where it would not be diagonal."""
        if not self._is_identity and not after._is_identity:
            return None
        if self._is_identity:
            return ViewMetric(after.weights, self.rows if after.rows == "kept" else after.rows)
        # the second one, if it takes lengths, takes them in another metric than the user's
        return ViewMetric(self.weights, self.rows if after.rows == "kept" else "scaled")

    @property
    def _is_identity(self) -> bool:
        return bool((self.weights == 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class LinearRows:
    """What a map does to a row: z(x) = c(x) P(x - shift) matrix.

    matrix: float64 [dim_in, dim], or [dim] where it is diagonal. shift: float64 [dim_in], None for 0. rows: c
    is 1 where `kept`, 1 / ||x|| where `unit`, and any other number above 0 of the row's own where `scaled`.
    order: P puts column j at place order[j], int [dim_in]; None where it leaves it.
    """

    matrix: NDArray[np.float64]
    shift: NDArray[np.float64] | None = None
    rows: Rows = "kept"
    order: NDArray[np.integer] | None = None

    def then(self, after: LinearRows) -> LinearRows | None:
        """That of a second map behind this one; None where it shifts rows that were changed already, or puts
        columns that were mixed into another order."""
        if after.order is not None:
            return self._reordered(after)
        if after.shift is not None and not (self._is_identity and self.rows == "kept"):
            return None
        own = self.matrix if after.matrix.ndim == 1 or self.matrix.ndim == 2 else np.diag(self.matrix)
        matrix = own @ after.matrix if after.matrix.ndim == 2 else own * after.matrix
        if after.rows == "kept":
            rows = self.rows
        else:  # lengths that a map before it has changed are not those of the given rows
            rows = after.rows if self._is_scaled_by_one else "scaled"
        shift = after.shift if self.shift is None else self.shift
        return LinearRows(matrix, shift, rows, self.order)

    def _reordered(self, after: LinearRows) -> LinearRows | None:
        """This one with its columns in the order of a second map, and what else that does behind it."""
        assert after.order is not None
        if self.matrix.ndim == 2:
            return None
        places = np.asarray(after.order)
        order = places if self.order is None else places[self.order]
        matrix = np.empty_like(self.matrix)
        matrix[places] = self.matrix
        return LinearRows(matrix, self.shift, self.rows, order).then(replace(after, order=None))

    @property
    def _is_scaled_by_one(self) -> bool:
        return self.matrix.ndim == 1 and bool((self.matrix == 1).all()) and self.shift is None

    @property
    def _is_identity(self) -> bool:
        return self._is_scaled_by_one and self.order is None

    def back(self, folded: Float32s) -> NDArray[np.float64]:
        """Vectors f in the map's columns, float32 [n, dim], as those whose product with x - shift is that of
        f with P(x - shift) matrix, float64 [n, dim_in]."""
        back = folded * self.matrix if self.matrix.ndim == 1 else folded @ self.matrix.T
        return back if self.order is None else back[:, self.order]


@dataclass(frozen=True, slots=True, eq=False)
class OwnRanking:
    """What the user's index computes, in the columns of a map.

    similarity: of the vectors as they were given, those of several views joined, each by its weight. metric:
    M, float32 [d], > 0: the inner product of two given vectors is sum_j metric_j z_j z'_j, under `cosine` up
    to their lengths. self_score: the mean of z^T M z over mapped rows, of each block of columns where a
    learner has several; > 0. views: how many are joined.
    """

    similarity: Similarity
    metric: Float32s
    self_score: float = 1.0
    views: int = 1

    @property
    def dim(self) -> int:
        """Columns of the mapped vectors."""
        return len(self.metric)

    @property
    def by_distance(self) -> bool:
        """Whether it is minus a squared distance."""
        return self.similarity == "euclidean"

    def form(self) -> DiagonalForm:
        """What version 0 is judged and served as: exactly that ranking."""
        return DiagonalForm(self.metric, self.similarity == "cosine", self.by_distance)

    def scaled(self) -> Float32s:
        """The metric with a mean self score of 1, float32 [d], as that of I is for rows of unit length: so
        steps have the same relative size."""
        return np.asarray(self.metric / self.self_score, np.float32)


def first_diagonal(own: OwnRanking | None, start: Start) -> Float32s | None:
    """The diagonal of W_0, float32 [d]; None for that of I. start: `own` the user's metric, `scaled`,
    `identity` I, `mean` the mean of both, `auto` that for one view and I for several, whose metrics would
    weigh by size what learning should weigh by use. Without a ranking of the user's own W_0 is I."""
    if own is None or start == "identity" or (start == "auto" and own.views > 1):
        return None
    scaled = own.scaled()
    chosen = scaled if start == "own" else (scaled + np.float32(1)) / np.float32(2)
    return None if (chosen == 1).all() else np.asarray(chosen, np.float32)


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """How one view is mapped: `kind` is the name of a map, `options` are those of the map."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a map. check: (kind, options, name), raises MapError where the option is out of bounds."""

    default: Any
    check: Callable[[str, Mapping[str, Any], str], object]


Options: TypeAlias = Mapping[str, Option]
Shapes: TypeAlias = Mapping[str, tuple[str | int, ...]]


class ViewMap:
    """A fitted, frozen map of one view. Transforming has the same bits for every batch size. Rows are given
    as a block, or as anything that `as_block` reads.

    kind: its name in a configuration. sparse: whether it gives CSR rows. takes: its options. fitted: its
    arrays and their shapes, in numbers, names of sizes and options, or products of these ("a*b"); the first
    has a row for each dimension that it reads. sizes: those that `spec` tells besides `dim_in`. by_column:
    whether each column that it gives is made of one that it reads, and lengths of rows alone.

    A map is a dataclass of its arrays, then as it has them its sizes, `sparse` or `reads_sparse` (whether it
    reads CSR rows but gives none), and `options`: `spec` and `load` go by these fields.
    """

    __slots__ = ()
    kind: ClassVar[str]
    by_column: ClassVar[bool] = False
    takes: ClassVar[Options] = {}
    fitted: ClassVar[Shapes] = {}
    sizes: ClassVar[tuple[str, ...]] = ()

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors it reads."""
        return len(getattr(self, next(iter(self.fitted))))

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return self.dim_in

    @property
    def sparse(self) -> bool:
        """Whether it gives CSR rows."""
        return False

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Learn the map from warm-up rows. Raises MapError on an unknown option or an unfit sample."""
        raise NotImplementedError

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec` and `arrays`. Raises MapError naming what does not fit."""
        names = [one.name for one in fields(cast(Any, cls))]
        options = cls.checked(dict(spec["options"])) if "options" in names else {}
        sizes = {name: option_whole(cls.kind, spec, name) for name in ("dim_in", *cls.sizes)}
        known, kept = options | sizes, {"options": options, **sizes}
        for name, shape in cls.fitted.items():
            numbers = (math.prod(known.get(one, one) for one in _factors(side)) for side in shape)
            kept[name] = fitted_array(cls.kind, arrays, name, tuple(numbers))
        kept |= {name: bool(spec["sparse"]) for name in ("sparse", "reads_sparse") if name in names}
        return cls(**{name: kept[name] for name in names})

    @classmethod
    def chosen(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options over their defaults. Raises MapError for an unknown one, or one out of bounds."""
        defaults = {name: one.default for name, one in cls.takes.items()}
        return cls.checked(read_options(cls.kind, options, defaults))

    @classmethod
    def checked(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The options themselves. Raises MapError for one out of bounds."""
        for name, one in cls.takes.items():
            one.check(cls.kind, options, name)
        return options

    def transform(self, block: Block) -> Block:
        """Map rows into new arrays. Malformed rows stay malformed, for the same reason."""
        raise NotImplementedError

    def metric(self) -> ViewMetric | None:
        """How it carries the inner product of the vectors that it reads; None where it loses something of
        it."""
        return None

    def linear(self) -> LinearRows | None:
        """What it does to a row, where that is linear; None where it is not."""
        return None

    def given_columns(self) -> NDArray[np.int64] | None:
        """Of a map `by_column` the column that it reads for each that it gives, int64 [dim]; None where that
        is the same one."""
        return None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fitted arrays by name."""
        return {name: getattr(self, name) for name in self.fitted}

    def spec(self) -> dict[str, Any]:
        """JSON-able: what `load` needs besides the arrays."""
        spec: dict[str, Any] = {name: self._size(name) for name in ("dim_in", *self.sizes)}
        for one in fields(cast(Any, self)):
            if one.name in ("sparse", "reads_sparse"):
                spec["sparse"] = getattr(self, one.name)
            elif one.name == "options":
                spec["options"] = dict(getattr(self, one.name))
        return spec

    def _size(self, name: str) -> int:
        for array, shape in self.fitted.items():
            if name in shape:
                return int(getattr(self, array).shape[shape.index(name)])
        return int(getattr(self, name))


def _factors(side: str | int) -> Sequence[Any]:
    return side.split("*") if isinstance(side, str) else (side,)


def require_dense(kind: str, rows: Any, dim: int | None = None) -> DenseBlock:
    """What `as_block` reads as a block, dense and of dimension `dim`; raises MapError with the remedy
    otherwise."""
    block = as_block(rows)
    if not isinstance(block, DenseBlock):
        raise MapError(f"the map {kind} reads dense vectors, the view is sparse: use a map of sparse views")
    _require_dim(kind, block, dim)
    return block


def require_sparse(kind: str, rows: Any, dim: int | None = None) -> SparseBlock:
    """What `as_block` reads as a block, sparse and of dimension `dim`; raises MapError with the remedy
    otherwise."""
    block = as_block(rows)
    if not isinstance(block, SparseBlock):
        raise MapError(f"the map {kind} reads sparse vectors, the view is dense: use a map of dense views")
    _require_dim(kind, block, dim)
    return block


def _require_dim(kind: str, block: Block, dim: int | None) -> None:
    if dim is not None and block.dim != dim:
        raise MapError(f"the map {kind} was fitted on {dim} dimensions, the view has {block.dim}")


def read_options(kind: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`options` over `defaults`; raises MapError naming an unknown option and the known ones."""
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        known = ", ".join(sorted(defaults)) or "none"
        raise MapError(f"the map {kind} has no option {unknown[0]!r}; it has: {known}")
    return {**defaults, **options}


def option_whole(kind: str, options: Mapping[str, Any], name: str, least: int = 1) -> int:
    """An option that is a whole number >= `least`; raises MapError naming it."""
    value = options[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise MapError(
            f"the option {name} of {kind} must be a whole number of at least {least}, not {value!r}"
        )
    return value


def option_number(kind: str, options: Mapping[str, Any], name: str, positive: bool = True) -> float:
    """An option that is a finite number above 0 (or >= 0); raises MapError naming it."""
    value = options[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise MapError(f"the option {name} of {kind} must be a number >= 0, not {value!r}")
    if positive and value == 0:
        raise MapError(f"the option {name} of {kind} must be above 0")
    return float(value)


def option_flag(kind: str, options: Mapping[str, Any], name: str) -> bool:
    """An option that is true or false; raises MapError naming it."""
    value = options[name]
    if not isinstance(value, bool):
        raise MapError(f"the option {name} of {kind} must be true or false, not {value!r}")
    return value


def option_choice(kind: str, options: Mapping[str, Any], name: str, choices: Sequence[str]) -> str:
    """An option that is one of some words; raises MapError naming them."""
    value = options[name]
    if value not in choices:
        raise MapError(f"the option {name} of {kind} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


SIGMA = Option(1.0, option_number)
BANDWIDTH = Option(0.0, partial(option_number, positive=False))
SEED = Option(0, partial(option_whole, least=0))


def kernel_option(kind: str) -> Option:
    """The kernels of a map, the first by default."""
    return Option(MAP_KERNELS[kind][0], partial(option_choice, choices=MAP_KERNELS[kind]))


def require_sample(kind: str, sample: DenseBlock) -> NDArray[np.float64]:
    """The non-zero rows of a sample in float64 (a zero row is a missing view); raises MapError when none are
    left or a value is not finite."""
    rows = sample.values[sample.values.any(axis=1)].astype(np.float64)
    if len(rows) == 0:
        raise MapError(f"the map {kind} needs at least one sample row that is not zero")
    if not np.isfinite(rows).all():
        raise MapError(f"the sample of the map {kind} holds values that are not finite: drop those rows")
    return rows


def fitted_array(
    kind: str, arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]
) -> Float32s:
    """A finite float32 array of a saved map; raises MapError naming it when it does not fit."""
    array = arrays.get(name)
    if not isinstance(array, np.ndarray):
        raise MapError(f"array {name} of the map {kind} is missing")
    if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
        raise MapError(
            f"array {name} of the map {kind} must be finite float32 {shape}, not {array.dtype} {array.shape}"
        )
    return np.require(array, np.float32, ["C", "A"])


@dataclass(frozen=True, slots=True, eq=False)
class IdentityMap(ViewMap):
    """x -> x, dense or sparse. Only dimension and kind are taken from the sample; no options."""

    kind: ClassVar[str] = "identity"
    by_column: ClassVar[bool] = True
    dim_in: int = field()
    sparse: bool = field()

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take dimension and kind of the sample."""
        cls.chosen(options)
        sample = as_block(sample)
        return cls(sample.dim, isinstance(sample, SparseBlock))

    def transform(self, block: Block) -> Block:
        """Copy the rows."""
        require: Callable[..., Block] = require_sparse if self.sparse else require_dense
        rows = require(self.kind, block, self.dim_in)
        return rows.with_values(rows.values.copy())

    def metric(self) -> ViewMetric | None:
        """The identity."""
        return ViewMetric(np.ones(self.dim_in), "kept")

    def linear(self) -> LinearRows | None:
        """The identity."""
        return LinearRows(np.ones(self.dim_in))


def to_unit(block: Block) -> None:
    """Bring rows to unit length in place (values must be writable); zero and malformed rows stay."""
    if isinstance(block, SparseBlock):
        unit_sparse(block.dim, block.indptr, block.indices, block.values)
    else:
        unit_dense(block.values)


class UnitMap(IdentityMap):
    """x -> x / ||x||, dense or sparse; a zero vector stays zero. No options."""

    __slots__ = ()
    kind = "unit"

    def transform(self, block: Block) -> Block:
        """Unit rows in new arrays."""
        rows: SparseBlock | DenseBlock = IdentityMap.transform(self, block)
        to_unit(rows)
        return rows

    def metric(self) -> ViewMetric | None:
        """I, of unit vectors."""
        return ViewMetric(np.ones(self.dim_in), "unit")

    def linear(self) -> LinearRows | None:
        """I, of unit vectors."""
        return LinearRows(np.ones(self.dim_in), rows="unit")


@dataclass(frozen=True, slots=True, eq=False)
class CosineMap(ViewMap):
    """x -> (x / ||x||, 1) / sqrt(2), one column more: the dot product is exactly 0.5 cos + 0.5 (Xia, Hoi,
    Jin, Zhao, TPAMI 36 (2014), section 5). Dense; a zero row stays zero: that view is missing. No options."""

    kind: ClassVar[str] = "cosine"
    dim_in: int = field()

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return self.dim_in + 1

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take the dimension of the sample."""
        cls.chosen(options)
        return cls(require_dense(cls.kind, sample).dim)

    def transform(self, block: Block) -> DenseBlock:
        """Mapped rows in new arrays."""
        rows = require_dense(self.kind, block, self.dim_in).values
        out = np.empty((len(rows), self.dim), np.float32)
        cosine_dense(rows, out)
        return DenseBlock(out)
