"""What changed between two versions, for the page: in the background, one at a time, kept, on a budget."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from daemon.models.diff import Diff
from daemon.serve.http.offload import Busy, TimeBudget
from daemon.serve.live import Live
from daemon.serve.page.answers import CannotAnswer
from daemon.serve.page.sources import KEPT, PageComparer
from tests.daemon.client.test_client import DIM, Shop
from tests.daemon.serve.test_live import serving
from tests.harness.waiting import until

PATIENCE_S = 30.0


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Versions that stretch one direction more and more."""
    shop = Shop(tmp_path)
    for number in range(KEPT + 2):
        shop.add(np.diag([1.0 + number, *[1.0] * (DIM - 1)]).astype(np.float32), attach=True)
    with serving(shop) as live:
        yield live


def made(comparer: PageComparer, before: int, after: int) -> Diff:
    found = until(lambda: comparer.difference(before, after))
    assert found is not None
    return found


def test_it_is_made_in_the_background_and_kept(live: Live) -> None:
    comparer = PageComparer(live, TimeBudget())
    assert comparer.difference(0, 3) is None
    found = made(comparer, 0, 3)
    (step,) = found.steps
    assert step.after - step.before == pytest.approx(2.0)
    assert comparer.difference(0, 3) is found
    for before in range(1, KEPT + 1):
        made(comparer, before, before + 1)
    assert comparer.difference(0, 3) is None, "the oldest one was let go"


def test_one_at_a_time_and_the_rest_is_told_to_come_again(live: Live) -> None:
    go_on = threading.Event()

    class Slow(TimeBudget):
        @contextmanager
        def spending(self) -> Iterator[None]:
            go_on.wait(PATIENCE_S)
            yield

    comparer = PageComparer(live, Slow())
    assert comparer.difference(0, 1) is None
    assert comparer.difference(0, 1) is None
    with pytest.raises(CannotAnswer, match="two other versions") as refused:
        comparer.difference(0, 2)
    assert refused.value.code == "busy"
    go_on.set()
    made(comparer, 0, 1)
    made(comparer, 0, 2)


def test_what_went_wrong_is_told_once_to_who_asked_for_it(live: Live) -> None:
    comparer = PageComparer(live, TimeBudget())
    with pytest.raises(CannotAnswer, match="999 cannot be opened"):
        made(comparer, 0, 999)
    assert comparer.difference(0, 999) is None, "it is tried again"
    with pytest.raises(CannotAnswer, match="999"):
        made(comparer, 0, 999)
    with pytest.raises(Busy, match="limited") as refused:
        made(PageComparer(live, TimeBudget(most=0.0)), 0, 1)
    assert refused.value.code == "busy"
