"""The square root of each entry.

Histograms of sum 1.

HIKE: the histogram intersection kernel as an explicit map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from learners.block import MAX_DIM, Block, DenseBlock, Float32s, SparseBlock, as_block
from learners.errors import BlockError, MapError
from learners.kernels import map_rows
from learners.maps import base


class SqrtMap(base.IdentityMap):
    """x_j -> sqrt(x_j), dense or sparse: the dot product is then Bhattacharyya's kernel sum_j sqrt(x_j z_j),
    for histograms (Gong and Lazebnik, CVPR 2011, section 3.2.2).

    A row with a value below 0 is no histogram: it becomes NaN there, and the step rejects it. No options.
    """

    __slots__ = ()
    kind = "sqrt"

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take dimension and kind of the sample. Raises MapError when it holds a value below 0."""
        sample = as_block(sample)
        refuse_negative(cls.kind, sample)
        return super().fit(sample, options)

    def transform(self, block: Block) -> Block:
        """Roots in new arrays."""
        rows = base.IdentityMap.transform(self, block)
        values = np.empty_like(rows.values)
        map_rows.roots(rows.values.reshape(-1), values.reshape(-1))
        return rows.with_values(values)

    def metric(self) -> base.ViewMetric | None:
        """None: it is not linear."""
        return None


def refuse_negative(kind: str, sample: Block) -> None:
    """Raises MapError when the sample of a map of histograms holds a value below 0."""
    values = sample.values[sample.entries] if isinstance(sample, SparseBlock) else sample.values
    if (values < 0).any():
        raise MapError(f"the map {kind} is for histograms, the sample holds values below 0: use another map")


class SharesMap(base.IdentityMap):
    """x -> x / sum_j |x_j|, dense or sparse; a zero vector stays zero: what histogram intersection and
    Bhattacharyya's kernel compare. No options."""

    __slots__ = ()
    kind = "shares"

    def transform(self, block: Block) -> Block:
        """Rows of sum 1 in new arrays."""
        rows = base.IdentityMap.transform(self, block)
        if isinstance(rows, SparseBlock):
            map_rows.shares_sparse(rows.dim, rows.kernel_rows(), rows.values)
        else:
            map_rows.shares_dense(rows.values)
        return rows

    def metric(self) -> base.ViewMetric | None:
        """None: it is not linear."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class HikeMap(base.ViewMap):
    """Unary code of each column: the first round(x_j / step_j) of its B columns are sqrt(step_j), step_j =
    range_j / B, so that the dot product approximates sum_j min(x_j, z_j) (Maji and Berg, ICCV 2009; Gong and
    Lazebnik, CVPR 2011, section 3.2.2).

    The error is at most the sum of step_j / 2 over the columns where both are not zero; values above the
    range 0..range_j of the sample count as range_j. step: float32 [d]. Options: levels, B (8). Dense or
    sparse. A value below 0 makes its row NaN: the step rejects it.
    """

    kind: ClassVar[str] = "hike"
    takes: ClassVar[base.Options] = {"levels": base.Option(8, base.option_whole)}
    fitted: ClassVar[base.Shapes] = {"step": ("dim_in",)}
    sizes = ("levels",)
    step: Float32s
    levels: int
    sparse: bool = field()

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: B per column."""
        return len(self.step) * self.levels

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Take the range of each column. Raises MapError when a value is below 0 or none is above."""
        levels = int(cls.chosen(options)["levels"])
        sample = as_block(sample)
        _require_columns(sample.dim * levels)
        refuse_negative(cls.kind, sample)
        if isinstance(sample, SparseBlock):
            try:
                rows = sample.checked_csr()
            except BlockError as error:
                raise MapError(f"the sample of the map hike cannot be used: {error}") from error
            if not len(sample) or not np.isfinite(rows.data).all():
                raise MapError("the map hike needs sample rows, all of finite numbers: drop the others")
            highest = np.asarray(rows.max(axis=0).toarray(), np.float64).reshape(-1)
        else:
            highest = base.require_sample(cls.kind, sample).max(axis=0)
        return cls((highest / levels).astype(np.float32), levels, isinstance(sample, SparseBlock))

    def __post_init__(self) -> None:
        _require_columns(self.dim)

    def transform(self, block: Block) -> Block:
        """Codes in new arrays."""
        block = as_block(block)
        if not self.sparse:
            rows = base.require_dense(self.kind, block, self.dim_in).values
            out = np.empty((len(rows), self.dim), np.float32)
            map_rows.unary_dense(rows, self.step, self.levels, out)
            return DenseBlock(out)
        entries = base.require_sparse(self.kind, block, self.dim_in).kernel_rows()
        lengths = np.zeros(len(block), np.int64)
        map_rows.unary_lengths(entries, self.step, self.levels, lengths)
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        map_rows.unary_sparse(entries, self.step, self.levels, indptr[:-1].copy(), indices, values)
        return SparseBlock(indptr, indices, values, self.dim)


def _require_columns(columns: int) -> None:
    """Raises MapError for more levels than vectors can have columns."""
    if columns > MAX_DIM:
        raise MapError(f"the map hike would give {columns} columns of its levels, at most {MAX_DIM} are read")
