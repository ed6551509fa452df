"""Which queries share a scan is a pure decision."""

from __future__ import annotations

from daemon.serve.query import Query
from daemon.serve.retrieve.finding import FEW, Scan, scans_of

NONE: frozenset[str] = frozenset()


def test_queries_share_a_scan_unless_their_filters_differ() -> None:
    few, many = frozenset({"x", "y"}), frozenset(f"x{i}" for i in range(FEW + 1))
    red = frozenset({"red"})
    queries = [
        Query(id="a", k=10),
        Query(x=[1.0], k=12),
        Query(id="b", k=11, exclude=few),
        Query(id="c", k=3, tags=red),
        Query(id="d", k=3, include=few),
        Query(id="e", k=5, exclude=many),
        Query(id="f", k=6, exclude=many),
        Query(id="g", k=7, tags=red),
    ]
    assert scans_of(queries) == [
        Scan((0, 1, 2), NONE, NONE, 11 + 2 + 1),
        Scan((3, 7), red, NONE, 7 + 1),
        Scan((5, 6), NONE, many, 6 + 1),
    ]
    assert scans_of([]) == scans_of([Query(id="d", include=NONE)]) == []
