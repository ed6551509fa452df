"""How versions answer that order lists better than they search: who is asked what, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from daemon.client import follow
from daemon.config.services import IndexConfig
from daemon.index.protocol import IndexHit
from daemon.index.verdicts import ModeChoice
from daemon.look.live import ServeStatus
from daemon.serve.indexed import IndexSearch
from daemon.serve.metrics import ServeMetrics
from daemon.serve.query import Query, QueryError
from daemon.serve.start import SignedLists
from daemon.telemetry.server import Health, status_of
from daemon.versions.order import OrderChoice, order_form
from tests.daemon.models.moves import promote
from tests.daemon.serve.ordered import (
    ALIASES,
    DIM,
    ITEMS,
    ORDER,
    TOP,
    OrderedVersions,
    answers,
    opened,
    over_http,
)
from tests.harness.waiting import until

ROW = 7


@pytest.fixture
def shop(tmp_path: Path) -> OrderedVersions:
    """Version 1 orders lists, and does not search."""
    shop = OrderedVersions(tmp_path)
    shop.judged(shop.add(), reach=False)
    return shop


@pytest.fixture
def served(shop: OrderedVersions) -> Iterator[Any]:
    with opened(shop) as live, over_http(shop, live) as http:
        answers(live, "stable", 1, reach=False)
        yield http


def ids(answer: Any) -> list[str]:
    return [hit["id"] for hit in answer["results"]]


def scores(answer: Any) -> list[float]:
    return [hit["score"] for hit in answer["results"]]


def test_the_users_own_first_are_put_in_order_and_the_rest_follows_as_it_was(
    shop: OrderedVersions, served: Any
) -> None:
    wanted = shop.reranked(1, ROW)
    own = [shop.ids[at] for at in np.argsort(-shop.own(ROW)) if at != ROW]
    assert wanted[:TOP] != own[:TOP], "there is something to see"
    for k in (1, 10, TOP, TOP + 1, ITEMS - 1):
        status, answer = served.post({"id": shop.ids[ROW], "k": k})
        assert (status, answer["ordered_by"], answer["exact"]) == (200, "order", True)
        assert ids(answer) == wanted[:k]
        given = scores(answer)
        assert given == sorted(given, reverse=True)
        order, cosine = shop.order(1, ROW), shop.own(ROW)
        known = {one: order[at] for at, one in enumerate(shop.ids)}
        np.testing.assert_allclose(given[:TOP], [known[one] for one in wanted[: min(k, TOP)]], atol=1e-4)
        last = {one: at for at, one in enumerate(shop.ids)}
        edge = cosine[last[own[TOP - 1]]]
        lower = [given[TOP - 1] - (edge - cosine[last[one]]) for one in wanted[TOP:k]]
        np.testing.assert_allclose(given[TOP:], lower, atol=1e-4)
    assert ids(served.post({"x": shop.objects[ROW].tolist(), "k": 3})[1])  # by vector, too
    batch = served.post({"queries": [{"id": "o1", "k": 5}, {"id": "o2"}]}, "/v1/similar/batch")[1]["answers"]
    assert [ids(one) for one in batch] == [shop.reranked(1, 1)[:5], shop.reranked(1, 2)[:10]]
    assert [one["ordered_by"] for one in batch] == ["order", "order"]


@pytest.mark.parametrize("share", [0.0, 3.0])
def test_an_arm_that_has_learned_nothing_orders_as_the_users_own_ranking(
    tmp_path: Path, share: float
) -> None:
    shop = OrderedVersions(tmp_path)  # of which no row has unit length in the user's own geometry
    nothing = {"arms.all.pending_tau": np.zeros(4, np.float32), "arms.all.W": np.eye(DIM, dtype=np.float32)}
    version = shop.versions.load(shop.add(**nothing, **no_pairs(shop)))
    assert shop.space.own is not None
    form = order_form(version, shop.space.own, OrderChoice("all", share, TOP))
    own = np.array([shop.own(row) for row in range(ITEMS)])
    np.testing.assert_allclose(form.scores(shop.mapped, shop.mapped), (1 + share) * own, atol=1e-4)


def no_pairs(shop: OrderedVersions) -> dict[str, np.ndarray]:
    return {"arms.all.pending_pairs": np.zeros_like(shop.versions.load(0).arrays["arms.all.pending_pairs"])}


def test_what_is_left_out_makes_room_for_the_next_of_the_users_own(
    shop: OrderedVersions, served: Any
) -> None:
    gone = shop.reranked(1, ROW)[:30]
    body = {"id": shop.ids[ROW], "k": ITEMS, "filter": {"exclude": gone}}
    assert ids(served.post(body)[1]) == shop.reranked(1, ROW, allowed={*shop.ids} - {*gone})


def test_given_lists_are_ordered_in_full_whether_or_not_the_version_searches(
    shop: OrderedVersions, served: Any
) -> None:
    named = shop.ids[20:100]
    order = shop.order(1, ROW)
    wanted = sorted(named, key=lambda one: -order[shop.ids.index(one)])
    for alias in ("stable", "latest"):
        body = {"id": shop.ids[ROW], "k": 80, "alias": alias, "filter": {"include": named}}
        status, answer = served.post(body)
        assert (status, answer["ordered_by"], ids(answer)) == (200, "order", wanted)
        expected = [order[shop.ids.index(one)] for one in wanted]
        np.testing.assert_allclose(scores(answer), expected, atol=1e-4)


def test_latest_searches_by_what_was_learned(shop: OrderedVersions, served: Any) -> None:
    answer = served.post({"id": shop.ids[ROW], "k": 10, "alias": "latest"})[1]
    best = [shop.ids[at] for at in np.argsort(-shop.form(1, ROW)) if at != ROW]
    assert (answer["ordered_by"], ids(answer)) == ("form", best[:10])
    plain = served.post({"id": shop.ids[ROW], "k": 10, "alias": "own"})[1]
    own = [shop.ids[at] for at in np.argsort(-shop.own(ROW)) if at != ROW]
    assert ids(plain) == own[:10]
    assert "ordered_by" not in plain, "version 0 has no order of its own"


def test_hits_are_explained_by_the_scores_that_they_have(shop: OrderedVersions, served: Any) -> None:
    for named in (None, shop.ids[20:60]):
        body = {"id": shop.ids[ROW], "k": 5, "explain": True}
        answer = served.post(body | ({} if named is None else {"filter": {"include": named}}))[1]
        for hit in answer["results"]:
            total = sum(one["contribution"] for one in hit["why"]["views"])
            assert total == pytest.approx(hit["score"], abs=1e-4)
            own = shop.own(ROW)[shop.ids.index(hit["id"])]
            assert hit["why"]["version_0"]["score"] == pytest.approx(own, abs=1e-5)


def test_who_serves_what_is_said_in_a_sentence(served: Any) -> None:
    _, told, _ = served.ask("GET", "/v1/versions")
    notes = {one["alias"]: one["note"] for one in told["aliases"]}
    assert notes["stable"] == (
        "re-ranks your own top 40: shown to order lists better; not shown to search better"
    )
    assert notes["latest"].startswith("searches by what was learned; orders given lists by arm all with 3 of")
    assert notes["own"] == ""


def test_metrics_and_status_tell_whether_what_answers_searches(shop: OrderedVersions) -> None:
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        metrics = ServeMetrics(ALIASES)
        metrics.follow(live.statuses, lambda: None, dict)
        text = generate_latest(metrics.registry).decode()
        for alias, value in (("stable", "0.0"), ("latest", "1.0"), ("own", "1.0")):
            assert f'tripletd_serve_reach{{alias="{alias}"}} {value}' in text
        found = status_of(metrics.registry, Health())
        assert isinstance(found, ServeStatus)
        told = {alias: one.order[:9] for alias, one in found.aliases.items()}
        assert told == {"stable": "re-ranks ", "latest": "searches ", "own": ""}


def test_vectors_are_the_users_own_and_none_is_exported(shop: OrderedVersions, served: Any) -> None:
    given = shop.objects[ROW]
    body = {"queries": [{"x": given.tolist()}]}
    status, answer = served.post(body | {"mode": "folded"}, "/v1/fold")
    (made,) = answer["vectors"]
    assert (status, answer["rerank"]) == (200, TOP)
    products = shop.objects @ np.array(made["vector"]) / np.linalg.norm(shop.objects, axis=1)
    np.testing.assert_allclose(products, shop.own(ROW), atol=1e-4)
    for path, asked in (
        ("/v1/fold", body | {"mode": "embedded"}),
        ("/v1/embed", {"objects": body["queries"]}),
    ):
        status, answer = served.post(asked, path)
        error = answer["error"] if status != 200 else answer["vectors"][0]["error"]
        assert error["code"] == "order_only"
        assert "filter.include" in error["remedy"]


def test_a_query_is_folded_by_what_answers_now_though_the_version_is_the_same(shop: OrderedVersions) -> None:
    given = [Query(only=shop.objects[ROW])]

    def folded(live: Any) -> np.ndarray:
        """Made by the form for given vectors, once that is there."""
        live.vectors("stable", given, "folded")
        until(lambda: live.fold_few("stable", [shop.objects[ROW]]) is not None)
        return np.array(live.vectors("stable", given, "folded").results[0])

    units = shop.objects / np.linalg.norm(shop.objects, axis=1, keepdims=True)
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        np.testing.assert_allclose(units @ folded(live), shop.own(ROW), atol=1e-4)
        shop.judged(1, reach=True)
        answers(live, "stable", 1, reach=True)
        assert np.abs(units @ folded(live) - shop.own(ROW)).max() > 0.05
        shop.judged(1, reach=False)
        answers(live, "stable", 1, reach=False)
        np.testing.assert_allclose(units @ folded(live), shop.own(ROW), atol=1e-4)


def test_documents_that_are_given_are_scored_by_the_order(shop: OrderedVersions) -> None:
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        query, documents = Query(id=shop.ids[ROW]), [Query(id=one) for one in shop.ids]
        for alias, by, wanted in (
            ("stable", "order", shop.order(1, ROW)),
            ("latest", "order", shop.order(1, ROW)),
            ("own", "form", shop.own(ROW)),
        ):
            found = live.scores(alias, query, documents)
            assert (found.ordered_by, str(found.model)) == (by, "0" if alias == "own" else "1")
            np.testing.assert_allclose(np.array(found.results, np.float64), wanted, atol=1e-4)


class OwnStore:
    """A store of the vectors as they were given, which it searches exactly by the cosine."""

    name = "a store"

    def __init__(self, shop: OrderedVersions) -> None:
        self.ids, self.units = shop.ids, shop.objects / np.linalg.norm(shop.objects, axis=1, keepdims=True)
        self.asked: list[np.ndarray] = []

    def search(self, vector: Any, k: int, tags: Any = (), **how: Any) -> list[IndexHit]:
        self.asked.append(np.array(vector))
        scores = self.units @ self.asked[-1]
        best = np.argsort(-scores, kind="stable")[:k]
        return [IndexHit(self.ids[at], float(scores[at])) for at in best]

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("mode", ["auto", "folded", "rescored", "own"])
def test_a_store_is_asked_with_the_users_own_vector_and_its_first_are_put_in_order(
    shop: OrderedVersions, mode: Any
) -> None:
    config = IndexConfig(
        store="qdrant", address="http://localhost:1", collection="c", mode=mode, candidates=20
    )
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        store = OwnStore(shop)
        search = IndexSearch(store, config, live, lambda version: ModeChoice("folded", "clicks"))
        with over_http(shop, live, index=search) as http:
            for k in (15, TOP + 10):
                status, answer = http.post({"id": shop.ids[ROW], "k": k})
                own = [shop.ids[at] for at in np.argsort(-shop.own(ROW)) if at != ROW]
                if mode == "own":  # named: the store's answer as it is
                    assert (status, ids(answer)) == (200, own[:k])
                    continue
                assert (status, ids(answer)) == (200, shop.reranked(1, ROW)[:k])
                assert (answer["ordered_by"], answer["index"]["mode"]) == ("order", "rescored")
                assert answer["index"]["why"].startswith("version 1 is shown to order lists, not to search")
            np.testing.assert_allclose(store.units @ store.asked[-1], shop.own(ROW), atol=1e-4)
            searched = http.post({"id": shop.ids[ROW], "k": 5, "alias": "latest"})[1]
            assert searched["index"]["mode"] == ("folded" if mode == "auto" else mode)
            assert searched.get("ordered_by") == ("form" if mode == "rescored" else None)


def test_a_store_of_exported_vectors_is_not_asked(shop: OrderedVersions) -> None:
    about = {"store": "qdrant", "address": "http://localhost:1", "collection": "c", "version": 1}
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        store = OwnStore(shop)
        auto = IndexSearch(
            store, IndexConfig(**about, mode="auto"), live, lambda version: ModeChoice("embedded", "clicks")
        )
        with over_http(shop, live, index=auto) as http:
            answer = http.post({"id": shop.ids[ROW], "k": 5})[1]
            assert ids(answer) == shop.reranked(1, ROW)[:5]
            assert answer["index"]["mode"] == "catalog"
        named = IndexSearch(
            store, IndexConfig(**about, mode="embedded"), live, lambda version: ModeChoice("own", "")
        )
        with over_http(shop, live, index=named) as http:
            status, answer = http.post({"id": shop.ids[ROW], "k": 5})
            assert (status, answer["error"]["code"]) == (422, "order_only")
        assert not store.asked


def test_a_random_object_in_a_list_has_a_score_of_the_same_kind(shop: OrderedVersions) -> None:
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        lists = SignedLists(b"k" * 32, live.snapshot, 0)
        with over_http(shop, live, lists=lists) as http:
            for alias, by in (("stable", shop.order(1, ROW)), ("latest", shop.form(1, ROW))):
                body = {"id": shop.ids[ROW], "k": 5, "explore": 1, "alias": alias}
                status, answer = http.post(body)
                assert status == 200
                expected = [by[shop.ids.index(one)] for one in ids(answer)]
                np.testing.assert_allclose(scores(answer), expected, atol=1e-4)
            status, mixed = http.post({"id": shop.ids[ROW], "k": 5, "interleave": "stable,own"})
            assert status == 200
            assert {*ids(mixed)} <= {*shop.reranked(1, ROW)[:5], *shop_own(shop)[:5]}


def shop_own(shop: OrderedVersions) -> list[str]:
    return [shop.ids[at] for at in np.argsort(-shop.own(ROW)) if at != ROW]


def test_a_client_answers_as_the_server_does(shop: OrderedVersions) -> None:
    with follow(shop.folder) as model:
        items = model.items(shop.objects, shop.ids)
        until(lambda: str(model.model) == "1")
        for k in (3, TOP + 5):
            found = model.similar(shop.objects[ROW], items, k + 1)
            assert [one for one in found.ids if one != shop.ids[ROW]][:TOP] == with_itself(shop)[:TOP][:k]
            assert list(found.scores) == sorted(found.scores, reverse=True)
        np.testing.assert_allclose(model.scores(shop.objects[ROW], items)[0], shop.order(1, ROW), atol=1e-4)


def with_itself(shop: OrderedVersions) -> list[str]:
    """The user's own first, the query among them, in order; without the query."""
    own, order = shop.own(ROW), shop.order(1, ROW)
    first = sorted(np.argsort(-own)[:TOP], key=lambda at: -order[at])
    return [shop.ids[at] for at in [*first, *np.argsort(-own)[TOP:]] if at != ROW]


def moved(shop: OrderedVersions) -> list[tuple[bool, dict[str, Any] | None]]:
    """Judgments of version 1, one after the other: other leaders, and what it is shown to do."""
    return [
        (False, ORDER | {"own_share": 10.0}),
        (True, ORDER | {"own_share": 10.0}),
        (False, ORDER | {"top": 5, "own_share": 0.0}),
        (True, None),
        (False, ORDER),
    ]


def test_a_new_judgment_is_followed_at_once_and_no_question_fails(shop: OrderedVersions) -> None:
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        failed: list[Any] = []
        seen: set[tuple[str, ...]] = set()
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                try:
                    (found,) = live.search("stable", [Query(id=shop.ids[ROW], k=8)], lambda: None).each
                    assert not isinstance(found.result, QueryError)
                    seen.add((str(found.ordered_by), *(hit.id for hit in found.result)))
                except Exception as error:
                    failed.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        possible: set[tuple[str, ...]] = {("order", *shop.reranked(1, ROW)[:8])}
        searched = [shop.ids[at] for at in np.argsort(-shop.form(1, ROW)) if at != ROW][:8]
        try:
            for reach, order in moved(shop):
                shop.judged(1, reach=reach, order=order)
                share = None if order is None else order["own_share"]
                until(lambda: told(live) == (reach, share, order and order["top"]))
                if reach:
                    possible.add((str(None if order is None else "form"), *searched))
                else:
                    assert order is not None
                    ranked = [at for at in np.argsort(-shop.own(ROW)) if at != ROW]
                    by = shop.order(1, ROW, order["own_share"])
                    first = sorted(ranked[: order["top"]], key=lambda at: -by[at])
                    whole = [shop.ids[at] for at in [*first, *ranked[order["top"] :]]]
                    possible.add(("order", *whole[:8]))
                last = seen.copy()
                until(lambda: seen - last or seen == possible)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not failed
        assert seen == possible, "no answer is half of one judgment and half of another"


def told(live: Any) -> tuple[bool, float | None, int | None]:
    (one,) = [one for one in live.statuses() if one.alias == "stable"]
    order = one.answers.order
    return one.answers.reach, order and order.own_share, order and order.top


def test_stable_moves_to_a_version_that_searches_and_back(shop: OrderedVersions) -> None:
    second = shop.add()
    with opened(shop) as live:
        for version, reach in ((1, False), (second, True), (1, False), (second, False)):
            shop.judged(version, reach=reach)
            answers(live, "stable", version, reach=reach)
            (found,) = live.search("stable", [Query(id=shop.ids[ROW], k=10)], lambda: None).each
            assert not isinstance(found.result, QueryError)
            searched = [shop.ids[at] for at in np.argsort(-shop.form(version, ROW)) if at != ROW]
            wanted = searched if reach else shop.reranked(version, ROW)
            assert [hit.id for hit in found.result] == wanted[:10]


def test_the_order_of_a_version_before_its_judgment_is_that_of_the_last_judged_one(
    shop: OrderedVersions,
) -> None:
    second = shop.add()
    third = shop.add(arms=())
    for name, number in (("second", second), ("third", third)):
        promote(shop.versions, shop.ledger, number, name, by="test")
    with opened(shop, **{"serve.aliases": ["stable", "second", "third"]}) as live:
        answers(live, "second", second, reach=True)
        answers(live, "third", third, reach=True)
        named = frozenset(shop.ids[20:60])
        for number, by in ((second, shop.order(second, ROW)), (third, shop.form(third, ROW))):
            query = Query(id=shop.ids[ROW], k=40, include=named)
            (found,) = live.search("second" if number == second else "third", [query], lambda: None).each
            assert not isinstance(found.result, QueryError)
            wanted = sorted(named, key=lambda one: -by[shop.ids.index(one)])
            assert [hit.id for hit in found.result] == wanted
            assert found.ordered_by == ("order" if number == second else None)


def test_a_version_whose_arm_cannot_be_used_is_refused_and_the_last_one_answers_on(
    shop: OrderedVersions,
) -> None:
    bad = shop.add(**{"arms.all.W": np.full((DIM, DIM), np.nan, np.float32)})
    gone = shop.add(arms=())
    with opened(shop) as live:
        answers(live, "stable", 1, reach=False)
        for number, why in ((bad, "not finite"), (gone, "no arm all")):
            shop.judged(number, reach=False)
            until(lambda: why in status(live).why_not_newer)
            assert str(status(live).model) == "1"
        assert status(live).refusals == {"order": 2}


def status(live: Any) -> Any:
    return next(one for one in live.statuses() if one.alias == "stable")


def test_with_a_top_of_1_a_search_is_the_users_own_and_says_so(tmp_path: Path) -> None:
    """Where the lists say nothing of the first objects of that ranking."""
    shop = OrderedVersions(tmp_path)
    shop.judged(shop.add(), reach=False, order=ORDER | {"top": 1})
    cosine, order = shop.own(ROW), shop.order(1, ROW)
    with opened(shop) as live, over_http(shop, live, lists=SignedLists(b"k" * 32, live.snapshot, 0)) as http:
        answers(live, "stable", 1, reach=False)
        for more in ({}, {"explain": True}, {"explore": 1}):
            status, answer = http.post({"id": shop.ids[ROW], "k": 10, **more})
            assert (status, answer["ordered_by"]) == (200, "form")
            if "explore" not in more:
                assert ids(answer) == shop_own(shop)[:10]
            np.testing.assert_allclose(
                scores(answer), [cosine[shop.ids.index(one)] for one in ids(answer)], atol=1e-5
            )
        named = shop.ids[20:60]
        answer = http.post({"id": shop.ids[ROW], "k": 40, "filter": {"include": named}})[1]
        wanted = sorted(named, key=lambda one: -order[shop.ids.index(one)])
        assert (answer["ordered_by"], ids(answer)) == ("order", wanted)
        body = {"queries": [{"x": shop.objects[ROW].tolist()}], "mode": "folded"}
        status, folded = http.post(body, "/v1/fold")
        assert (status, "rerank" in folded) == (200, False), "nothing is to be asked again"
        notes = {one["alias"]: one["note"] for one in http.ask("GET", "/v1/versions")[1]["aliases"]}
        assert notes["stable"] == (
            "orders given lists by arm all with 3 of your own ranking; your own ranking searches, as it is: "
            "not shown to search better"
        )
    with follow(shop.folder) as model:
        items = model.items(shop.objects, shop.ids)
        until(lambda: str(model.model) == "1")
        found = model.similar(shop.objects[ROW], items, 10)
        assert found.ids[1:] == tuple(shop_own(shop)[:9])
        np.testing.assert_allclose(found.scores, np.sort(-cosine)[:10] * -1, atol=1e-5)
        np.testing.assert_allclose(model.scores(shop.objects[ROW], items)[0], order, atol=1e-4)
