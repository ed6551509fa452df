"""Whether two decoded batches are the same, in every field, type and bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from streams.catalog import RoleColumns
from streams.decode import DecodedBatch
from streams.event import Column, SparseColumn
from streams.source import RecordBatch
from tests.fuzz.cases import Case

COLUMNS = ("offsets", "timestamps", "weights", "ids", "sources", "pairs", "keys")


def batch_of(values: Sequence[bytes | None], first: int = 10) -> RecordBatch:
    """Records of one partition at consecutive offsets."""
    n = len(values)
    return RecordBatch(2, list(range(first, first + n)), [0] * n, list(values), [None] * n, [()] * n)


def assert_same(case: Case, values: Sequence[bytes | None]) -> DecodedBatch:
    """Both decoders make the same of the batch; returns it."""
    batch = batch_of(values)
    ours, expected = case.compiled.decode(batch), case.plain.decode(batch)
    assert facts(ours) == facts(expected)
    return ours


def taken(case: Case, values: Sequence[bytes | None]) -> int:
    """How many of the records the compiled code takes itself."""
    return len(case.compiled._reading.find([value or b"" for value in values], case.limit))


def facts(decoded: DecodedBatch) -> dict[str, Any]:
    """All of a decoded batch in a form that `==` compares bit by bit."""
    return {
        "partition": decoded.partition,
        "length": len(decoded),
        **{name: _array(getattr(decoded, name)) for name in COLUMNS},
        **{name: role_facts(getattr(decoded, name)) for name in ("query", "clicked", "skipped")},
        "poison": decoded.poison,
        "next_offset": decoded.next_offset,
        "last_digest": decoded.last_digest,
    }


def hash_of(text: str) -> int:
    """The id's hash by another implementation."""
    return int(xxhash.xxh64(text.encode()).intdigest())


def _array(array: np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def role_facts(role: RoleColumns) -> tuple[Any, Any]:
    inline = None if role.inline is None else {name: _column(one) for name, one in role.inline.items()}
    return _array(role.rows), None if inline is None else list(inline.items())


def _column(column: Column) -> tuple[Any, ...]:
    if isinstance(column, SparseColumn):
        return column.dim, _array(column.indptr), _array(column.indices), _array(column.values)
    return column.dim, _array(column.values)
