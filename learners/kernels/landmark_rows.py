"""Row-by-row kernels of the maps that look at a row from many sides: random frequencies and landmarks.

All sums in float64 in the order of the columns, so a row has identical bits in every batch. A malformed
row is filled with its refused value, or with NaN where the fault is an index.
"""

# ruff: noqa: PLR0917  (kernels take plain arrays)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import NONE, scan_dense, scan_sparse
from learners.kernels.compile import CSR, DOUBLES, FLOATS, ROWS, ROWS_OUT, Csr, inlined, kernel
from learners.kernels.map_rows import refused

GAUSSIAN, INTERSECTION = 0, 1


@inlined
def _refused_entry(rows: Csr, row: int) -> Any:
    """The first value of a CSR row that is no number or too large; NaN where the fault is an index."""
    indptr, _, values = rows
    for place in range(indptr[row], indptr[row + 1]):
        if not abs(values[place]) <= 1e18:
            return values[place]
    return np.float32(np.nan)


@inlined
def _cosine_of_turns(turns: float) -> Any:
    """cos(2 pi turns), within 1e-11, without the machine's mathematical library: the same bits everywhere.

    With r the distance to the nearest whole number, cos(2 pi r) = sin(pi/2 - 2 pi r), by its series in a
    quarter turn on each side.
    """
    angle = 2.0 * np.pi * (0.25 - abs(turns - np.rint(turns)))
    square = angle * angle
    series = 1.0 - square / (16 * 17)
    for n in (14, 12, 10, 8, 6, 4, 2):
        series = 1.0 - square / (n * (n + 1)) * series
    return angle * series


@inlined
def _write_cosines(sums: Any, offsets: Any, out: Any) -> None:
    """out = sqrt(2 / D) cos(2 pi (sums + offsets))."""
    scale = np.sqrt(2.0 / len(sums))
    for r in range(len(sums)):
        out[r] = np.float32(scale * _cosine_of_turns(sums[r] + np.float64(offsets[r])))


@kernel(types.void(ROWS, ROWS, FLOATS, ROWS_OUT))
def fourier_dense(rows: Any, frequencies: Any, offsets: Any, out: Any) -> None:
    """out[n, r] = sqrt(2 / D) cos(2 pi (w_r x_n + b_r)); frequencies float32 [d, D] and offsets float32 [D]
    in turns. A zero row (a missing view) stays zero."""
    sums = np.empty(len(offsets), np.float64)
    for row in range(len(rows)):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
        elif squares == 0:
            out[row, :] = 0
        else:
            sums[:] = 0.0
            for column in range(rows.shape[1]):
                value = np.float64(rows[row, column])
                for r in range(len(sums)):
                    sums[r] += value * np.float64(frequencies[column, r])
            _write_cosines(sums, offsets, out[row])


@kernel(types.void(CSR, ROWS, FLOATS, ROWS_OUT))
def fourier_sparse(rows: Csr, frequencies: Any, offsets: Any, out: Any) -> None:
    """`fourier_dense` of CSR rows."""
    indptr, indices, values = rows
    sums = np.empty(len(offsets), np.float64)
    for row in range(len(out)):
        reason, squares = scan_sparse(len(frequencies), rows, row)
        if reason != NONE:
            out[row, :] = _refused_entry(rows, row)
        elif squares == 0:
            out[row, :] = 0
        else:
            sums[:] = 0.0
            for place in range(indptr[row], indptr[row + 1]):
                value = np.float64(values[place])
                for r in range(len(sums)):
                    sums[r] += value * np.float64(frequencies[indices[place], r])
            _write_cosines(sums, offsets, out[row])


@inlined
def _add_column(kind: int, value: float, landmarks: Any, column: int, sums: Any, sparse: bool) -> None:
    """Add what one column of a row tells of its distance to, or overlap with, each landmark."""
    for n in range(len(sums)):
        other = np.float64(landmarks[column, n])
        if kind == INTERSECTION:
            sums[n] += min(value, other)
        elif sparse:
            sums[n] += value * (value - 2.0 * other)
        else:
            sums[n] += (value - other) * (value - other)


@inlined
def _project(kind: int, gamma: float, by_degree: bool, sums: Any, projection: Any, out: Any) -> None:
    """out = k(x, landmarks) projection, divided by sqrt(sum of k) where `by_degree`; 0 where x is far from
    all."""
    degree = 0.0
    for n in range(len(sums)):
        if kind == GAUSSIAN:
            sums[n] = np.exp(-0.5 * gamma * max(sums[n], 0.0))
        degree += sums[n]
    scale = 1.0
    if by_degree:
        scale = 1.0 / np.sqrt(degree) if degree > 0 else 0.0
    totals = np.zeros(len(out), np.float64)
    for n in range(len(sums)):
        if sums[n] != 0:
            for k in range(len(out)):
                totals[k] += sums[n] * np.float64(projection[n, k])
    for k in range(len(out)):
        out[k] = np.float32(scale * totals[k])


_KERNEL = types.Tuple((types.int64, types.float64, types.boolean))


@kernel(types.void(_KERNEL, ROWS, ROWS, ROWS, ROWS_OUT))
def landmarks_dense(
    which: tuple[int, float, bool], rows: Any, landmarks: Any, projection: Any, out: Any
) -> None:
    """out = k(x, landmarks) projection for dense rows x.

    which: (GAUSSIAN exp(-gamma ||x - z||^2 / 2) or INTERSECTION sum_j min(x_j, z_j), gamma, whether to divide
    by sqrt(sum of k)). landmarks: float32 [d, L]. projection: float32 [L, k]. A zero row stays zero; under
    INTERSECTION a row with a value below 0 becomes NaN.
    """
    kind, gamma, by_degree = which
    sums = np.empty(len(projection), np.float64)
    for row in range(len(rows)):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
        elif squares == 0:
            out[row, :] = 0
        elif kind == INTERSECTION and np.min(rows[row]) < 0:
            out[row, :] = np.nan
        else:
            sums[:] = 0.0
            for column in range(rows.shape[1]):
                _add_column(kind, np.float64(rows[row, column]), landmarks, column, sums, False)
            _project(kind, gamma, by_degree, sums, projection, out[row])


@kernel(types.void(_KERNEL, CSR, ROWS, DOUBLES, ROWS, ROWS_OUT))
def landmarks_sparse(
    which: tuple[int, float, bool], rows: Csr, landmarks: Any, squares: Any, projection: Any, out: Any
) -> None:
    """`landmarks_dense` of CSR rows; squares: float64 [L], the squared lengths of the landmarks."""
    kind, gamma, by_degree = which
    indptr, indices, values = rows
    sums = np.empty(len(projection), np.float64)
    for row in range(len(out)):
        reason, length = scan_sparse(len(landmarks), rows, row)
        out[row, :] = 0
        if reason != NONE:
            out[row, :] = _refused_entry(rows, row)
        elif length > 0:
            lowest = np.float32(0.0)
            sums[:] = squares if kind == GAUSSIAN else 0.0 * squares
            for place in range(indptr[row], indptr[row + 1]):
                lowest = min(lowest, values[place])
                _add_column(kind, np.float64(values[place]), landmarks, indices[place], sums, True)
            if kind == INTERSECTION and lowest < 0:
                out[row, :] = np.nan
            else:
                _project(kind, gamma, by_degree, sums, projection, out[row])
