"""One writer: a learner frozen while another took over writes nothing more; of two at once one leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.kill.forks import Forks
from tests.harness.kill.frozen import PLACES, Frozen, frozen_and_succeeded, started_together
from tests.harness.kill.site import embedded
from tests.kill.conftest import StreamIn

pytestmark = pytest.mark.kill


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.step)
def test_thawed_after_a_takeover(tmp_path: Path, forks: Forks, place: Frozen) -> None:
    frozen_and_succeeded(tmp_path, embedded, forks, [place]).check()


def test_thawed_while_sending_dead_letters_to_kafka(tmp_path: Path, forks: Forks, kafka_in: StreamIn) -> None:
    places = [place for place in PLACES if "send" in place.step]
    frozen_and_succeeded(tmp_path, kafka_in, forks, places).check()


def test_two_starts_at_once(tmp_path: Path, stream_in: StreamIn, forks: Forks) -> None:
    started_together(tmp_path, stream_in, forks, 1).check()
