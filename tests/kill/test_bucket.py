"""Learners whose versions are in a bucket: killed at random, and in each other's way. `make soak`: by the
hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.kill.buckets import (
    PLANS,
    Buckets,
    bucket_kills,
    buckets,
    deaths_at_requests,
    rivals,
    sharded_kills,
)
from tests.harness.s3_server import server_program

pytestmark = pytest.mark.kill


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buckets]:
    if server_program() is None:
        pytest.skip("there is no S3 server (make buckets)")
    with buckets(tmp_path_factory.mktemp("s3") / "server") as made:
        yield made


@pytest.mark.parametrize("plan", PLANS[:2], ids=str)
def test_killed_at_random(tmp_path: Path, at: Buckets, plan: object) -> None:
    bucket_kills(tmp_path / str(plan), at, replace(plan, kills=3), 1).check()  # type: ignore[type-var]


def test_killed_at_its_requests(tmp_path: Path, at: Buckets) -> None:
    deaths_at_requests(tmp_path, at, every=50).check()


def test_shards_and_merge_killed_at_random(tmp_path: Path, at: Buckets) -> None:
    sharded_kills(tmp_path, at, kills=3, seed=1).check()


def test_two_learners_do_not_both_write(tmp_path: Path, at: Buckets) -> None:
    rivals(tmp_path, at, times=1).check()
