"""The arrays that the compiled functions read and fill."""

from __future__ import annotations

from numba import types

from streams.compiled.compile import BYTES, LONGS

SPACE = types.Tuple((BYTES, BYTES, LONGS, LONGS, types.int64))
"""id uint8; names uint8: the views' names one after another; bounds int64 [views + 1]: where each begins;
sizes int64 [views]: bytes of a dense vector, 0 for a sparse view; unnamed: the view that `x` fills, or -1."""

TABLE = types.Tuple(
    (
        types.int64[::1],
        types.int64[::1],
        types.float32[::1],
        types.uint64[::1],
        types.int32[:, ::1],
        types.int64[:, :, :, ::1],
        types.uint64[::1],
        types.uint8[:, ::1],
    )
)
"""Per event: record int64, its place in the batch; ts int64; weight float32; hash uint64 of its id; rows
int32 [3]: per role the catalog's row or -1; spans int64 [3, views, 3]: per role and view where its indices
begin (or its dense values), where its values begin, and how many bytes each of them has; source uint64: hash
of its `src`, 0 without one; key uint8 [64]: its `key`, filled up with zeros; no rows at all where keys are
not wanted."""
