"""Small segments of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streams.event import Column, DenseColumn, SparseColumn
from streams.steps.codec import Joiner, encode_segment
from streams.steps.segment import GENESIS, Base, Body, Break, ChainPosition, RankOneSteps, Segment, Triplets

DIGEST = "0123456789abcdef0123456789abcdef"
WRITER, EARLIER = "ab" * 16, "cd" * 16


def csr(rows: list[dict[int, float]], dim: int) -> SparseColumn:
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array([column for row in rows for column in row], np.int32)
    values = np.array([value for row in rows for value in row.values()], np.float32)
    return SparseColumn(indptr, indices, values, dim)


def dense(rows: list[list[float]], dim: int) -> DenseColumn:
    return DenseColumn(np.array(rows, np.float32).reshape(len(rows), dim))


def steps(query: Column, error: Column, tau: list[float], times: list[int], **others: Any) -> RankOneSteps:
    counts = {"first": 10, "last": 13, "watermark": 1700, **others}
    return RankOneSteps(
        timestamps=np.array(times, np.int64),
        tau=np.array(tau, np.float32),
        query=query,
        error=error,
        **counts,
    )


SPARSE = steps(csr([{0: 1.0, 4: -2.5}, {}], 5), csr([{1: 0.5}, {0: 3.0, 2: 1.0}], 5), [0.1, 0.25], [5, 6, 7])
DENSE = steps(dense([[1, 0]], 2), dense([[0.5, -1]], 2), [0.125], [5, 6], cut=True, project=True)
EMPTY = steps(csr([], 3), csr([], 3), [], [], first=13, last=13, watermark=None, cut=True)
WEIGHED = Triplets(
    10,
    13,
    1700,
    np.array([5, 6, 7], np.int64),
    np.array([1.0, 0.1]),
    csr([{0: 1.0, 4: -2.5}, {}], 5),
    csr([{1: 0.5}, {0: 3.0}], 5),
    csr([{}, {2: 1.0}], 5),
)
PLAIN = Triplets(
    *(13, 14, 1700, np.array([8], np.int64), None),
    *(dense([row], 2) for row in ([1, 0], [0.5, -1], [0, 2])),
    cut=True,
)
NAMED = replace(
    WEIGHED,
    first=14,
    last=19,
    numbers=np.array([4, 9], np.int64),
    keys=np.array(["é".encode(), b"k" * 64], "S64"),
)
BODIES: dict[str, Body] = {
    "csr": SPARSE,
    "dense": DENSE,
    "empty cut": EMPTY,
    "base": Base(12, 13, bytes(range(32)), DIGEST, EARLIER),
    "break": Break(13, "rate"),
    "triplets, csr": WEIGHED,
    "triplets, dense": PLAIN,
    "triplets by key": NAMED,
}
PLACE = ChainPosition(epoch=3, seq=7, run=11, writer=WRITER)
ROOMY = 1 << 20


def one(records: list[bytes]) -> Segment:
    """The only segment of these records."""
    joiner = Joiner()
    found = [segment for value in records if (segment := joiner.feed(value)) is not None]
    assert len(found) == 1
    return found[0]


def encoded(body: Body, place: ChainPosition = PLACE, before: bytes = GENESIS) -> bytes:
    """The one record of a small segment."""
    (value,) = encode_segment(place, body, before, ROOMY).records
    return value


def plain(body: Body) -> dict[str, Any]:
    """A body as JSON has it."""
    if isinstance(body, RankOneSteps):
        fields = {"first": body.first, "last": body.last, "watermark": body.watermark}
        fields |= {"cut": body.cut, "project": body.project}
        fields |= {"timestamps": body.timestamps.tolist(), "tau": body.tau.tolist()}
        return fields | {"query": _rows(body.query), "error": _rows(body.error)}
    if isinstance(body, Triplets):
        fields = {"first": body.first, "last": body.last, "watermark": body.watermark, "cut": body.cut}
        fields |= {"timestamps": body.timestamps.tolist()}
        fields |= {"weights": None if body.weights is None else body.weights.tolist()}
        if body.numbers is not None and body.keys is not None:
            fields |= {"numbers": body.numbers.tolist(), "keys": [key.decode() for key in body.keys.tolist()]}
        roles = {"query": body.query, "clicked": body.clicked, "skipped": body.skipped}
        return fields | {name: _rows(column) for name, column in roles.items()}
    if isinstance(body, Base):
        at = {"number": body.number, "records": body.records, "at": body.chain.hex()}
        return at | {"digest": body.digest, "by": body.writer}
    return {"records": body.records, "reason": body.reason}


def _rows(column: Column) -> dict[str, Any]:
    if isinstance(column, DenseColumn):
        return {"dim": column.dim, "dense": column.values.tolist()}
    ends = zip(column.indptr[:-1], column.indptr[1:], strict=True)
    pairs = [[column.indices[a:b].tolist(), column.values[a:b].tolist()] for a, b in ends]
    return {"dim": column.dim, "csr": pairs}
