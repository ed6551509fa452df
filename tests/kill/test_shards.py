"""Shards and what merges them die at any moment: nothing is lost or merged twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.kill.shards import random_kills_of_shards
from tests.harness.kill.site import KEYED, OTHERS, SPARSE, Case, embedded

pytestmark = pytest.mark.kill

SOFTMAX = next(case for case in OTHERS if case.name == "oasis-softmax")
OMKS = next(case for case in OTHERS if case.name == "omks")


@pytest.mark.parametrize("case", [SPARSE, KEYED, SOFTMAX, OMKS], ids=str)
def test_shards_and_merge_killed_at_random(tmp_path: Path, case: Case) -> None:
    random_kills_of_shards(tmp_path, embedded(tmp_path), case, kills=3, seed=1).check()
