"""A follower that dies at any step, or at any moment, writes what one that never died writes, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.kill.forks import Forks
from tests.harness.kill.joins import kill_joins
from tests.harness.kill.site import embedded
from tests.kill.conftest import StreamIn

pytestmark = pytest.mark.kill

STEPS = 24
"""At least so many named steps there are: each is died at once."""


def test_a_join_dies_at_every_step_and_at_random_moments(tmp_path: Path, forks: Forks) -> None:
    tally = kill_joins(tmp_path / "shop", embedded, forks, STEPS + 6, seed=1)
    tally.check()
    assert int(tally.worst.split()[0]) >= STEPS


def test_a_join_into_kafka_dies(tmp_path: Path, forks: Forks, kafka_in: StreamIn) -> None:
    kill_joins(tmp_path / "shop", kafka_in, forks, 6, seed=2).check()
