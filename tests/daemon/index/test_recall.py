"""The recall of a store for learned queries is measured against its own exact search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import structlog

from daemon.config.services import IndexConfig
from daemon.index import IndexHit, StoreAway
from daemon.index.protocol import AskedVector
from daemon.serve.indexed import StoreRecall, found_share
from tests.harness.waiting import until


class Missing:
    """A store whose usual search misses every object but each `keeps`-th."""

    name = "pgvector items"

    def __init__(self, keeps: int) -> None:
        self.keeps, self.away = keeps, False
        self.rows = np.random.default_rng(0).standard_normal((400, 6))

    def search(
        self, vector: AskedVector, k: int, tags: Sequence[str] = (), *, exact: bool = False
    ) -> list[IndexHit]:
        if self.away:
            raise StoreAway("away", "wait")
        assert isinstance(vector, list)
        scores = self.rows @ np.array(vector)
        found = [row for row in np.argsort(-scores).tolist() if exact or row % self.keeps == 0]
        return [IndexHit(f"o{row}", float(scores[row])) for row in found[:k]]

    def close(self) -> None:
        """Nothing is held."""


def config(**more: object) -> IndexConfig:
    return IndexConfig.model_validate({"recall_every": "10ms", **more})


def sample(most: int) -> list[AskedVector]:
    return [row.tolist() for row in np.random.default_rng(1).standard_normal((most, 6))]


@pytest.mark.parametrize(("keeps", "low"), [(1, False), (2, True)])
def test_what_is_missed_is_told(keeps: int, low: bool) -> None:
    heard: list[float] = []
    guard = StoreRecall(Missing(keeps), config(candidates=10), sample, heard.append)
    with structlog.testing.capture_logs() as told:
        share = guard.measure()
    assert share is not None
    assert heard == [share]
    assert (share == 1.0) != low
    assert (0.2 < share < 0.8) == low
    assert [one["log_level"] for one in told] == ["warning" if low else "info"]
    assert ("raise index.width" in told[0]["event"]) == low


def test_it_looks_as_far_as_the_mode_does() -> None:
    far = StoreRecall(Missing(2), config(candidates=400), sample, lambda share: None).measure()
    near = StoreRecall(
        Missing(2), config(candidates=400, mode="folded"), sample, lambda share: None
    ).measure()
    assert far == near  # what is never found is not found further down either
    assert found_share(["a", "b"], ["b", "c"]) == 0.5
    assert found_share([], []) == 1.0


def test_its_thread_goes_on_after_an_outage_and_ends() -> None:
    store, heard = Missing(1), list[float]()
    store.away = True
    ready = False

    def later(most: int) -> list[AskedVector] | None:
        nonlocal ready
        ready = True
        return sample(most)

    guard = StoreRecall(store, config(), later, heard.append)
    guard.start()
    until(lambda: ready)
    store.away = False
    until(lambda: len(heard) > 1)
    guard.close()
    assert not guard._thread.is_alive() or heard  # one question may still be on its way
    off = StoreRecall(store, config(recall_every=""), sample, heard.append)
    off.start()
    assert off._thread.ident is None
    off.close()
