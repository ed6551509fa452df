"""The serving form of OMKS over maps: block-diagonal, each block symmetric and PSD, its weight folded in.

Blocks of columns, each with a square matrix of its own, kept one after another in one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, Int64s, as_block
from learners.errors import StateError, saved, saved_flag
from learners.forms.quadratic import Pieces, batches, score_pairs, whole
from learners.forms.serving import DEFAULT_POWER
from learners.psd import psd_part
from learners.spectrum import symmetric


@dataclass(frozen=True, slots=True, eq=False)
class BlockLayout:
    """The columns of each block.

    starts: int64 [m + 1], block k is columns starts[k]..starts[k + 1]. places: int64 [m + 1], its matrix
    [D_k, D_k] is entries places[k]..places[k + 1] of the flat array.
    """

    starts: Int64s
    places: Int64s

    @classmethod
    def of(cls, widths: tuple[int, ...]) -> Self:
        """The layout of blocks of these widths D_k."""
        columns = np.array(widths, np.int64)
        return cls(np.concatenate(([0], np.cumsum(columns))), np.concatenate(([0], np.cumsum(columns**2))))

    @property
    def dim(self) -> int:
        """Columns of all blocks."""
        return int(self.starts[-1])

    @property
    def entries(self) -> int:
        """Entries of all matrices."""
        return int(self.places[-1])

    @property
    def columns(self) -> list[slice]:
        """The columns of each block."""
        edges = self.starts.tolist()
        return [slice(*edge) for edge in pairwise(edges)]

    def matrices(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
        """Views [D_k, D_k] of the flat array."""
        edges = self.places.tolist()
        return [
            flat[start:stop].reshape((columns.stop - columns.start,) * 2)
            for (start, stop), columns in zip(pairwise(edges), self.columns, strict=True)
        ]


def dense_part(block: Block, columns: slice) -> Float32s:
    """Some columns of the rows, dense. Raises BlockError on an index out of range."""
    if isinstance(block, DenseBlock):
        return block.values[:, columns]
    return np.asarray(block.checked_csr()[:, columns].toarray(), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class BlocksForm:
    """S = block-diag(theta_k S_k): f(q, p) = q^T S p, found by folding, so an index of items never changes.

    widths: int64 [m], columns D_k of each block. matrices: float32 [sum D_k^2], theta_k S_k one after
    another. normalised: whether `scores` divides by sqrt(S(q, q) S(p, p)). distance: the raw score is
    -(q - p)^T S (q - p), and a query folds to 2 S q; never true where `normalised` is.
    """

    widths: NDArray[np.int64]
    matrices: Float32s
    normalised: bool
    distance: bool = False

    @classmethod
    def from_blocks(
        cls,
        widths: tuple[int, ...],
        W: Float32s,
        theta: NDArray[np.float64],
        normalised: bool = True,
        power: float | None = DEFAULT_POWER,
    ) -> Self:
        """The form of the matrices W (flat, as the learner keeps them) under the weights theta.

        S_k: the PSD part of sym(W_k), its eigenvalues raised to `power` where `normalised`, as in the form
        of one matrix; None leaves sym(W_k) as it is. Raises ConfigError beyond the dimensions that are
        decomposed whole.
        """
        layout = BlockLayout.of(widths)
        matrices = np.empty(layout.entries, np.float32)
        for source, target, weight in zip(
            layout.matrices(W), layout.matrices(matrices), theta.tolist(), strict=True
        ):
            if power is None:
                target[...] = symmetric(source)
            else:
                target[...] = psd_part(source, power if normalised else 1.0)[0]
            target *= np.float32(weight)
        return cls(np.array(widths, np.int64), matrices, normalised)

    @classmethod
    def as_learned(cls, widths: tuple[int, ...], W: Float32s, theta: NDArray[np.float64]) -> Self:
        """f(q, p) = sum_k theta_k q_k^T W_k p_k itself: theta_k W_k in place of the S_k, neither symmetric
        nor positive semi-definite. It folds and scores as others; self scores mean nothing then."""
        layout, matrices = BlockLayout.of(widths), W.copy()
        for matrix, weight in zip(layout.matrices(matrices), theta.tolist(), strict=True):
            matrix *= np.float32(weight)
        return cls(np.array(widths, np.int64), matrices, False)

    @property
    def dim(self) -> int:
        """Dimension of the vectors: all blocks together."""
        return int(self.widths.sum())

    def fold(self, queries: Any) -> Float32s:
        """S q for each query, float32 [n, dim], 2 S q for a distance; search any index of items with it by
        inner product.

        Raises BlockError on another dimension or an index out of range.
        """
        block, layout = as_block(queries, self.dim, "queries"), self._layout()
        folded = np.empty((len(block), self.dim), np.float32)
        for columns, matrix in zip(layout.columns, layout.matrices(self.matrices), strict=True):
            folded[:, columns] = dense_part(block, columns) @ matrix
        if self.distance:
            folded *= np.float32(2)
        return folded

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each item, clipped at 0, float32 [n]; summed in float64. `pieces` changes no bit."""
        block, layout = as_block(items, self.dim, "items"), self._layout()
        products = np.zeros(len(block), np.float64)
        for batch in batches(len(block), layout.entries, pieces):
            part = block.slice(batch.start, batch.stop)
            for columns, matrix in zip(layout.columns, layout.matrices(self.matrices), strict=True):
                rows = dense_part(part, columns)
                products[batch] += np.einsum("nd,nd->n", rows @ matrix, rows, dtype=np.float64)
        return np.maximum(products, 0).astype(np.float32)

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items]."""
        return score_pairs(self, queries, items)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it; `from_arrays` reads it back."""
        return {
            "widths": self.widths,
            "matrices": self.matrices,
            "normalised": np.array(self.normalised, np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The form of these arrays. Raises StateError naming the array that is missing or does not fit."""
        widths = saved(arrays, "widths", np.int64, (None,))
        if not len(widths) or (widths < 1).any():
            raise StateError(f"array widths must be above 0, not {widths}")
        matrices = saved(arrays, "matrices", np.float32, (sum(width**2 for width in widths.tolist()),))
        return cls(widths, matrices, saved_flag(arrays, "normalised"))

    def _layout(self) -> BlockLayout:
        return BlockLayout.of(tuple(self.widths.tolist()))
