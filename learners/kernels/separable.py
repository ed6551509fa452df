"""Kernels of the maps that work along one direction, or one column, at a time: eigenfunctions read off their
tables, and kernel PCA of each column.

Identical bits for every batch size; malformed rows keep their fault, as in `learners.kernels.map_rows`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import NONE, scan_dense, scan_sparse
from learners.kernels.compile import (
    CSR,
    FLOATS,
    FLOATS_OUT,
    INDICES_OUT,
    ROWS,
    ROWS_OUT,
    Csr,
    inlined,
    kernel,
)
from learners.kernels.map_rows import GAUSSIAN, INTERSECTION, refused

# ruff: noqa: PLR0917  (kernels take plain arrays)


@kernel(types.void(ROWS, FLOATS, ROWS, ROWS, ROWS, ROWS_OUT))
def interpolate_dense(rows: Any, mean: Any, directions: Any, bins: Any, functions: Any, out: Any) -> None:
    """out = the functions of each direction at s = (x - mean) directions, read off their tables by linear
    interpolation; beyond the first and the last bin a function keeps its value there.

    directions: float32 [d, m]. bins: float32 [m, 2], the centre of the first bin and the distance of two.
    functions: float32 [m e, q], e of each direction one after another. Sums in float64; a zero row stays
    zero.
    """
    count, last = directions.shape[1], functions.shape[1] - 1
    each = len(functions) // count
    sums = np.empty(count, np.float64)
    for row in range(len(rows)):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
            continue
        if squares == 0:
            out[row, :] = 0
            continue
        sums[:] = 0.0
        for column in range(rows.shape[1]):
            centred = np.float64(rows[row, column]) - np.float64(mean[column])
            for m in range(count):
                sums[m] += centred * np.float64(directions[column, m])
        for m in range(count):
            place = (sums[m] - np.float64(bins[m, 0])) / np.float64(bins[m, 1])
            place = min(max(place, 0.0), np.float64(last))
            low = min(int(place), last - 1)
            share = place - low
            for e in range(m * each, (m + 1) * each):
                below, above = np.float64(functions[e, low]), np.float64(functions[e, low + 1])
                out[row, e] = np.float32(below + share * (above - below))


@inlined
def _column_values(
    kind: int, value: float, column: int, rates: Any, landmarks: Any, projection: Any, out: Any
) -> None:
    """out = k(x, landmarks of the column) times each of its eigenvectors, which are len(out)."""
    each = len(out)
    for e in range(each):
        total = 0.0
        for n in range(landmarks.shape[1]):
            weight = np.float64(projection[column * each + e, n])
            if weight != 0:
                other = np.float64(landmarks[column, n])
                if kind == INTERSECTION:
                    total += weight * min(value, other)
                else:
                    total += weight * np.exp(-0.5 * np.float64(rates[column]) * (value - other) ** 2)
        out[e] = np.float32(total)


@kernel(types.void(types.int64, ROWS, FLOATS, ROWS, ROWS, ROWS_OUT))
def additive_dense(kind: int, rows: Any, rates: Any, landmarks: Any, projection: Any, out: Any) -> None:
    """out = k(x_j, landmarks_j) projection_j of each column j, side by side.

    kind: GAUSSIAN exp(-rate_j (x - z)^2 / 2) or INTERSECTION min(x, z), under which a row with a value below
    0 becomes NaN. rates: float32 [d]. landmarks: float32 [d, L]. projection: float32 [d e, L]. A zero row
    stays zero.
    """
    each = len(projection) // len(landmarks)
    for row in range(len(rows)):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
        elif squares == 0:
            out[row, :] = 0
        elif kind == INTERSECTION and np.min(rows[row]) < 0:
            out[row, :] = np.nan
        else:
            for column in range(rows.shape[1]):
                part = out[row, column * each : (column + 1) * each]
                _column_values(
                    kind, np.float64(rows[row, column]), column, rates, landmarks, projection, part
                )


@kernel(types.void(CSR, FLOATS, ROWS, ROWS, INDICES_OUT, FLOATS_OUT))
def additive_sparse(
    rows: Csr, rates: Any, landmarks: Any, projection: Any, out_indices: Any, out_values: Any
) -> None:
    """`additive_dense` of CSR rows under INTERSECTION, where a column that is 0 stays 0: e entries for each.

    A value below 0 becomes NaN. A malformed row keeps its values; its indices move to the columns of the map,
    those out of range beyond them.
    """
    indptr, indices, values = rows
    dim, each = len(landmarks), len(projection) // len(landmarks)
    for row in range(len(indptr) - 1):
        reason, _ = scan_sparse(dim, rows, row)
        for place in range(indptr[row], indptr[row + 1]):
            index, value = np.int64(indices[place]), np.float64(values[place])
            column = index if 0 <= index < dim else np.int64(dim)
            start = (place - indptr[0]) * each
            part = out_values[start : start + each]
            if reason != NONE:
                part[:] = values[place]
            elif value < 0:
                part[:] = np.nan
            else:
                _column_values(INTERSECTION, value, column, rates, landmarks, projection, part)
            for e in range(each):
                out_indices[start + e] = np.int32(column * each + e)


__all__ = ["GAUSSIAN", "INTERSECTION", "additive_dense", "additive_sparse", "interpolate_dense"]
