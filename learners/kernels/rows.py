"""Row-by-row kernels of the maps: identical bits for every batch size, and never out of bounds on malformed
rows.

A row the step would reject keeps its fault: its first refused value (or index) is passed on, so that the step
rejects the mapped row for the same reason.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np

from learners.kernels.checks import NONE, scan_dense, scan_sparse, scan_value
from learners.kernels.compile import (
    CSR,
    FLOATS,
    FLOATS_OUT,
    INDICES,
    INDICES_OUT,
    POINTERS,
    POINTERS_OUT,
    ROWS,
    ROWS_OUT,
    Csr,
    inlined,
    kernel,
)

from numba import types  # isort: skip


@inlined
def refused(values: Any, row: int) -> Any:
    """The first value of a dense row the step would refuse."""
    for column in range(values.shape[1]):
        if scan_value(np.float64(values[row, column])) != NONE:
            return values[row, column]
    return np.float32(np.nan)


@kernel(types.void(ROWS_OUT))
def unit_dense(rows: Any) -> None:
    """Bring each row to unit length in place; norms in float64; zero and malformed rows stay."""
    for row in range(rows.shape[0]):
        reason, squares = scan_dense(rows, row)
        if reason == NONE and squares > 0:
            scale = 1.0 / np.sqrt(squares)
            for column in range(rows.shape[1]):
                rows[row, column] = np.float32(np.float64(rows[row, column]) * scale)


@kernel(types.void(types.int64, POINTERS, INDICES, FLOATS_OUT))
def unit_sparse(dim: int, indptr: Any, indices: Any, values: Any) -> None:
    """Bring each CSR row to unit length in place; norms in float64; zero and malformed rows stay."""
    for row in range(len(indptr) - 1):
        reason, squares = scan_sparse(dim, (indptr, indices, values), row)
        if reason == NONE and squares > 0:
            scale = 1.0 / np.sqrt(squares)
            for place in range(indptr[row], indptr[row + 1]):
                values[place] = np.float32(np.float64(values[place]) * scale)


@kernel(types.void(ROWS, FLOATS, FLOATS, ROWS_OUT))
def standardise_dense(rows: Any, mean: Any, scale: Any, out: Any) -> None:
    """out = (x - mean) scale per column; a zero row (a missing view) stays zero, a malformed one is filled
    with its refused value."""
    for row in range(rows.shape[0]):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
        elif squares == 0:
            out[row, :] = 0
        else:
            for column in range(rows.shape[1]):
                centred = np.float64(rows[row, column]) - np.float64(mean[column])
                out[row, column] = np.float32(centred * np.float64(scale[column]))


@kernel(types.void(ROWS, FLOATS, ROWS, ROWS_OUT))
def project_dense(rows: Any, mean: Any, components: Any, out: Any) -> None:
    """out = (x - mean) components, components float32 [d, k]; summed in float64 in the order of the columns;
    a zero row (a missing view) stays zero, a malformed one is filled with its refused value."""
    width = components.shape[1]
    sums = np.empty(width, np.float64)
    for row in range(rows.shape[0]):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
            continue
        sums[:] = 0.0
        if squares > 0:
            for column in range(rows.shape[1]):
                centred = np.float64(rows[row, column]) - np.float64(mean[column])
                for k in range(width):
                    sums[k] += centred * np.float64(components[column, k])
        for k in range(width):
            out[row, k] = np.float32(sums[k])


@kernel(types.void(CSR, FLOATS, FLOATS_OUT))
def scale_sparse(rows: Csr, factors: Any, out: Any) -> None:
    """out = value times the factor of its column; a refused value or one at an index out of range is kept."""
    indptr, indices, values = rows
    for place in range(indptr[0], indptr[len(indptr) - 1]):
        index, value = indices[place], values[place]
        sound = index >= 0 and index < len(factors) and scan_value(np.float64(value)) == NONE
        out[place - indptr[0]] = value * factors[index] if sound else value


@kernel(types.void(CSR, types.int64, types.int64, types.int64, POINTERS_OUT, INDICES_OUT, FLOATS_OUT))
def append_sparse(
    rows: Csr, dim: int, offset: int, total: int, ends: Any, out_indices: Any, out_values: Any
) -> None:
    """Append the CSR rows of one view to the rows under construction; ends[row] int64 advances.

    Indices move by `offset`; one outside [0, dim) becomes `total`, so it stays out of range in the joined
    space.
    """
    indptr, indices, values = rows
    for row in range(len(indptr) - 1):
        for place in range(indptr[row], indptr[row + 1]):
            index = np.int64(indices[place])
            out_indices[ends[row]] = np.int32(offset + index if 0 <= index < dim else total)
            out_values[ends[row]] = values[place]
            ends[row] += 1


@kernel(types.void(ROWS, types.int64, POINTERS_OUT, INDICES_OUT, FLOATS_OUT))
def append_dense(rows: Any, offset: int, ends: Any, out_indices: Any, out_values: Any) -> None:
    """Append the non-zero entries of dense rows of one view to the rows under construction; ends[row]
    advances."""
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            if rows[row, column] != 0:
                out_indices[ends[row]] = np.int32(offset + column)
                out_values[ends[row]] = rows[row, column]
                ends[row] += 1
