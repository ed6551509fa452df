"""Row-by-row kernels of the maps: identical bits for every batch size, never out of bounds on malformed rows.

A row the step would reject keeps its fault: its first refused value (or index) is passed on, so that the step
rejects the mapped row for the same reason. All sums are in float64, in the order of the columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from learners.kernels.checks import MAX_MAGNITUDE, NONE, scan_dense, scan_sparse, scan_value
from learners.kernels.compile import (
    CSR,
    DOUBLES,
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
    reassociated,
)

# ruff: noqa: PLR0917  (kernels take plain arrays)


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


@reassociated
def _scale_row(row: Any, by: Any, out: Any) -> tuple[int, float]:
    """out = row by; (how many of its values no step takes, ||out||^2 in float64)."""
    wrong, squares = 0, 0.0
    for column in range(len(row)):
        value = row[column] * by[column]
        out[column] = value
        wrong += not abs(value) <= np.float32(MAX_MAGNITUDE)
        squares += np.float64(value) * np.float64(value)
    return wrong, squares


@kernel(types.void(ROWS, FLOATS, ROWS_OUT))
def unit_scaled(rows: Any, by: Any, out: Any) -> None:
    """out = each row times `by` per column, at unit length; zero and malformed ones have their lengths."""
    for row in range(rows.shape[0]):
        wrong, squares = _scale_row(rows[row], by, out[row])
        if not wrong and squares > 0:
            scale = 1.0 / np.sqrt(squares)
            for column in range(out.shape[1]):
                out[row, column] = np.float32(np.float64(out[row, column]) * scale)


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


ROOT_HALF = float(np.sqrt(0.5))


@inlined
def _root(value: Any) -> Any:
    """sqrt of a value; one below 0 is no number, one the step refuses stays."""
    return value if abs(value) > MAX_MAGNITUDE else np.sqrt(value)


@kernel(types.void(FLOATS, FLOATS_OUT))
def roots(values: Any, out: Any) -> None:
    """out = sqrt(x) per entry, NaN for x < 0: the step then rejects the row. Refused values stay so."""
    for place in range(len(values)):
        out[place] = _root(values[place])


@inlined
def _share_sum(values: Any) -> None:
    """Divide by the sum of magnitudes, in place."""
    total = 0.0
    for place in range(len(values)):
        total += abs(np.float64(values[place]))
    if total > 0 and np.isfinite(total):
        for place in range(len(values)):
            values[place] = np.float32(np.float64(values[place]) / total)


@kernel(types.void(ROWS_OUT))
def shares_dense(rows: Any) -> None:
    """Divide each row by the sum of its magnitudes, in place; zero and malformed rows stay."""
    for row in range(len(rows)):
        reason, _ = scan_dense(rows, row)
        if reason == NONE:
            _share_sum(rows[row])


@kernel(types.void(types.int64, CSR, FLOATS_OUT))
def shares_sparse(dim: int, rows: Csr, values: Any) -> None:
    """`shares_dense` of CSR rows; `values` are those of the rows, writable."""
    indptr = rows[0]
    for row in range(len(indptr) - 1):
        reason, _ = scan_sparse(dim, rows, row)
        if reason == NONE:
            _share_sum(values[indptr[row] : indptr[row + 1]])


@kernel(types.void(ROWS, ROWS_OUT))
def cosine_dense(rows: Any, out: Any) -> None:
    """out = (x / ||x||, 1) / sqrt(2), one column more; a zero row stays zero, a malformed one is filled with
    its refused value."""
    dim = rows.shape[1]
    for row in range(len(rows)):
        reason, squares = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
        elif squares == 0:
            out[row, :] = 0
        else:
            scale = ROOT_HALF / np.sqrt(squares)
            for column in range(dim):
                out[row, column] = np.float32(np.float64(rows[row, column]) * scale)
            out[row, dim] = np.float32(ROOT_HALF)


@inlined
def _level(value: float, step: float, levels: int) -> int:
    """How many steps a value is high, rounded, between 0 and `levels`."""
    if step <= 0:
        return 0
    return int(min(np.floor(value / step + 0.5), np.float64(levels)))


@kernel(types.void(ROWS, FLOATS, types.int64, ROWS_OUT))
def unary_dense(rows: Any, step: Any, levels: int, out: Any) -> None:
    """out = the unary code of each column: sqrt(step) in the first round(x / step) of its `levels` columns.

    A row with a value below 0 becomes NaN, a malformed one is filled with its refused value.
    """
    for row in range(len(rows)):
        reason, _ = scan_dense(rows, row)
        if reason != NONE:
            out[row, :] = refused(rows, row)
            continue
        out[row, :] = 0
        for column in range(rows.shape[1]):
            value = np.float64(rows[row, column])
            if value < 0:
                out[row, :] = np.nan
                break
            height = np.float32(np.sqrt(np.float64(step[column])))
            for n in range(_level(value, np.float64(step[column]), levels)):
                out[row, column * levels + n] = height


@kernel(types.void(CSR, FLOATS, types.int64, POINTERS_OUT))
def unary_lengths(rows: Csr, step: Any, levels: int, lengths: Any) -> None:
    """Entries of each row's code, int64 [n]; a malformed row keeps its own."""
    indptr, indices, values = rows
    for row in range(len(lengths)):
        reason, _ = scan_sparse(len(step), rows, row)
        lengths[row] = indptr[row + 1] - indptr[row] if reason != NONE else 0
        if reason == NONE:
            for place in range(indptr[row], indptr[row + 1]):
                value = np.float64(values[place])
                height = _level(value, np.float64(step[indices[place]]), levels) if value >= 0 else 1
                lengths[row] += height


@kernel(types.void(CSR, FLOATS, types.int64, POINTERS_OUT, INDICES_OUT, FLOATS_OUT))
def unary_sparse(rows: Csr, step: Any, levels: int, ends: Any, out_indices: Any, out_values: Any) -> None:
    """`unary_dense` of CSR rows, written from ends[row], which advances as `unary_lengths` says.

    A value below 0 becomes NaN. A malformed row keeps its values; its indices move to the code's columns,
    those out of range beyond them.
    """
    indptr, indices, values = rows
    for row in range(len(indptr) - 1):
        reason, _ = scan_sparse(len(step), rows, row)
        for place in range(indptr[row], indptr[row + 1]):
            index, value = np.int64(indices[place]), np.float64(values[place])
            known = 0 <= index < len(step)
            first = index * levels if known else len(step) * levels
            plain = reason != NONE or value < 0
            height = 1 if plain else _level(value, np.float64(step[index]), levels)
            for n in range(height):
                out_indices[ends[row]] = np.int32(first + n)
                if reason != NONE:
                    out_values[ends[row]] = values[place]
                else:
                    out_values[ends[row]] = np.nan if value < 0 else np.float32(np.sqrt(step[index]))
                ends[row] += 1


# ruff: noqa: PLR0917  (kernels take plain arrays)


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
