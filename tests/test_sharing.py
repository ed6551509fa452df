"""Tests that share something share a worker, and the longest begin first."""

from __future__ import annotations

import pytest

from tests.harness.sharing import FIRST, rank, unit_of


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/streams/test_codec.py::test_a[x]", "tests/streams/test_codec.py"),
        ("tests/streams/test_codec.py::TestA::test_b", "tests/streams/test_codec.py"),
        ("tests/streams/test_codec.py::test_a[x@y]", "tests/streams/test_codec.py"),
        ("tests/kafka/test_faults.py::test_c[x]@kafka-cluster", "kafka-cluster"),
        ("tests/kill/test_points.py::test_d", "tests/kill/test_points.py::test_d"),
    ],
)
def test_what_is_given_to_a_worker_together(nodeid: str, unit: str) -> None:
    assert unit_of(nodeid) == unit


def test_the_longest_begin_first() -> None:
    last, long, clusters = "tests/streams/test_codec.py", "tests/kill/test_points.py::test_d", "kafka-cluster"
    assert sorted([last, long, clusters], key=rank) == [clusters, long, last]
    assert rank(last) == len(FIRST)


def test_ids_of_tests_are_short(request: pytest.FixtureRequest) -> None:
    """Each worker sends all of them: those of six large values took longer than the tests."""
    assert [item.nodeid[:100] for item in request.session.items if len(item.nodeid) > 12_000] == []
