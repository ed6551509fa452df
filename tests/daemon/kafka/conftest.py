"""Shops on the broker of the test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.kafka.shop import Shop
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic


@pytest.fixture
def make_shop(tmp_path: Path, kafka: Cluster) -> Callable[[int], Shop]:
    """Makes shops, each with topics of its own; with 0 partitions their topics are not there yet."""
    made: list[Shop] = []

    def make(partitions: int) -> Shop:
        folder = tmp_path / f"shop{len(made)}"
        folder.mkdir()
        made.append(Shop(folder, kafka, fresh_topic("shop"), partitions))
        return made[-1]

    return make


@pytest.fixture
def shop(make_shop: Callable[[int], Shop]) -> Shop:
    """A shop whose topics have one partition."""
    return make_shop(1)
