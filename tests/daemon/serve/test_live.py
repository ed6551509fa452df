"""What serve says of a version whose objects are mapped otherwise, which it cannot take over as it runs; and
vectors that it makes for other indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from daemon.config import load_config
from daemon.replica.view import ReplicaStatus
from daemon.serve.live import FreshnessWatcher, Live
from daemon.serve.query import Query, QueryError
from daemon.versions.storage import open_store
from learners.block import DenseBlock
from learners.maps import SpaceMap
from learners.maps.space import ViewConfig
from tests.daemon.client.test_client import DIM, Shop, vectors
from tests.harness.waiting import until

ALIASES = ["stable", "latest"]


@contextmanager
def serving(shop: Shop) -> Iterator[Live]:
    """What serves this folder; it is open."""
    settings = {
        "stream.address": f"log:{shop.folder.parent}/clicks.log",
        "space.views.x.dim": DIM,
        "checkpoints.path": str(shop.folder),
        "serve.aliases": ["stable", "latest"],
        "serve.look_every": "20ms",
        "steps.enabled": False,
    }
    config = load_config(None, settings, {})
    watcher = FreshnessWatcher(ALIASES, lambda *told: None, 60.0)
    live = Live(config, shop.versions, shop.ledger, watcher, lambda guarded: None)
    with closing(live):
        live.open_when_there()
        until(lambda: live.opened is not None and live.items() is not None)
        yield live


def status(live: Live, alias: str) -> ReplicaStatus:
    (found,) = [one for one in live.statuses() if one.alias == alias]
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Version 1 with the old map, version 2 with another one."""
    shop = Shop(tmp_path)
    shop.add(attach=True)
    return shop


def remapped(shop: Shop) -> None:
    """From now on versions map objects otherwise."""
    shop.space = SpaceMap({"x": ViewConfig("standardise")}).fit({"x": DenseBlock(vectors(50, seed=3))})


def test_the_old_map_answers_on_and_it_says_what_to_do(shop: Shop) -> None:
    with serving(shop) as live:
        until(lambda: live.not_ready() is None and status(live, "latest").model is not None)
        remapped(shop)
        number = shop.add(np.eye(DIM))
        until(lambda: "start it again" in status(live, "latest").why_not_newer)
        assert f"version {number}" in status(live, "latest").why_not_newer
        assert status(live, "latest").refusals == {"other_map": 1}
        assert live.not_ready() is None, "it answers as before"
        assert status(live, "latest").model is not None
    with serving(shop) as live:
        until(lambda: str(status(live, "latest").model) == str(number))


def test_where_nothing_can_answer_readiness_says_why(shop: Shop) -> None:
    shop.promote(1)
    remapped(shop)
    shop.add(np.eye(DIM))
    with serving(shop) as live:
        until(lambda: "another map" in (live.not_ready() or ""))
        assert (live.not_ready() or "").startswith("stable: version 1: ")
        until(lambda: status(live, "latest").model is not None)


def test_vectors_are_made_for_each_object_or_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(shop) as live:
        until(lambda: live.not_ready() is None)
        given = vectors(2, seed=5)
        asked = [Query(x=given[0].tolist()), Query(id="nobody"), Query(x=given[1].tolist())]
        made = live.vectors("stable", asked, "document")
        first, unknown, last = made.results
        assert isinstance(unknown, QueryError)
        assert (unknown.status, unknown.field) == (404, "id")
        units = given / np.linalg.norm(given, axis=1, keepdims=True)  # version 0: the cosine
        np.testing.assert_allclose([first, last], units, atol=1e-6)
        assert (made.similarity, made.symmetric, made.dim, made.views) == ("inner_product", True, DIM, [])
        assert [one.name for one in live.vectors("stable", asked, "folded").views] == ["x"]
        only_wrong = live.vectors("stable", asked[1:2], "folded")
        assert isinstance(only_wrong.results[0], QueryError)
        monkeypatch.setattr("daemon.serve.live.MOST_NUMBERS", 2 * DIM - 1)
        with pytest.raises(QueryError, match="too many for one answer"):
            live.vectors("stable", asked, "folded")
        assert len(live.vectors("stable", asked[:1], "folded").results) == 1


def test_a_few_queries_are_folded_at_once_to_what_a_thread_makes_of_them(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.promote(1)
    with serving(shop) as live:
        until(lambda: live.not_ready() is None)
        given = list(vectors(2, seed=5))
        assert live.fold_few("stable", given) is None  # nothing is there until a first request had it made
        through_map = live.vectors("stable", [Query(x=one.tolist()) for one in given], "folded")
        live.vectors("stable", [Query(only=one) for one in given], "folded")
        until(lambda: live.fold_few("stable", given) is not None)
        few = live.fold_few("stable", given)
        assert few is not None
        assert few[0] == through_map.model
        np.testing.assert_allclose(few[1], through_map.results, atol=1e-6)
        again = live.vectors("stable", [Query(only=one) for one in given], "folded")
        np.testing.assert_array_equal(few[1], again.results)
        for wrong in (given[0][1:], np.full(DIM, np.nan, np.float32)):
            assert live.fold_few("stable", [given[1], wrong]) is None  # `vectors` says what is wrong with it
        monkeypatch.setattr("daemon.serve.live.MOST_PRODUCTS", 2 * DIM**2 - 1)
        assert live.fold_few("stable", given) is None
        assert live.fold_few("stable", given[:1]) is not None


def test_before_there_is_a_version_no_vectors_are_made(tmp_path: Path) -> None:
    config = load_config(None, {"checkpoints.path": str(tmp_path), "space.views.x.dim": DIM}, {})
    watcher = FreshnessWatcher(ALIASES, lambda *told: None, 60.0)
    stored = open_store(tmp_path)
    live = Live(config, stored.versions, stored.ledger, watcher, lambda guarded: None)
    with pytest.raises(QueryError) as told:
        live.vectors("stable", [Query(x=[1.0] * DIM)], "folded")
    assert told.value.status == 503
    assert live.fold_few("stable", [np.ones(DIM, np.float32)]) is None
