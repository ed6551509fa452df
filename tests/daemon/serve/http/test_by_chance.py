"""Interleaved lists and explored places over a real socket, up to the id that feed believes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import Answers, Query, QueryError
from daemon.serve.retrieve.finding import draw
from daemon.serve.start import SignedLists
from streams.event import FIRST, SECOND, Draft, DraftModel, Impression, ObjectRef
from streams.signed_lists import explored_chance, read_signed
from tests.daemon.serve.http.toy import Served, ToyModel, ToySearcher, running
from tests.daemon.serve.retrieve.makers import Items

SECRET = b"0123456789abcdef0123456789abcdef"
NOW_MS = 1_700_000_000_000


@dataclass
class TwoModels(ToySearcher):
    """`latest` turns the order around; `agree` lets both names be one state."""

    agree: bool = False

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        answers = super().search(alias, queries, between)
        if alias == "stable" or self.agree:
            return answers
        whole = super().search(alias, [replace(query, k=10) for query in queries], between)
        turned = [
            one if isinstance(one, QueryError) else list(reversed(one))[: query.k]
            for one, query in zip(whole.results, queries, strict=True)
        ]
        each = [replace(one, result=result) for one, result in zip(whole.each, turned, strict=True)]
        return replace(whole, each=each, model=ToyModel(version=57, total=9000))


def snapshot() -> IndexSnapshot:
    items = Items("dense", 4)
    items.put([f"o{n}" for n in range(10)], ToySearcher().items, [("red",)] * 5 + [()] * 5)
    return items.snapshot()


def made_with(explore: float = 0, secret: bytes = SECRET) -> SignedLists:
    draws = np.random.default_rng(0)
    return SignedLists(
        secret, snapshot, explore, below=lambda n: int(draws.integers(n)), now_ms=lambda: NOW_MS
    )


@pytest.fixture(scope="module")
def two() -> Iterator[Served]:
    with running(searching=TwoModels(), lists=made_with()) as served:
        yield served


def ask(served: Served, **more: Any) -> dict[str, Any]:
    status, answer = served.post({"id": "o1", "k": 4, **more})
    assert status == 200, answer
    return dict(answer)


def logged(answer: dict[str, Any], query: ObjectRef | None = None, key: str | None = None) -> Impression:
    shown = tuple(ObjectRef(hit["id"]) for hit in answer["results"])
    return Impression(answer["impression"], NOW_MS, query or ObjectRef("o1"), shown, (0,), key=key)


def test_the_list_is_a_draft_of_both_and_its_id_says_so(two: Served) -> None:
    stable = [hit["id"] for hit in two.post({"id": "o1", "k": 4, "alias": "stable"})[1]["results"]]
    latest = [hit["id"] for hit in two.post({"id": "o1", "k": 4, "alias": "latest"})[1]["results"]]
    answer = ask(two, interleave="stable,latest")
    teams = [hit["team"] for hit in answer["results"]]
    assert sorted(teams) == ["latest", "latest", "stable", "stable"]
    for name, ranking in (("stable", stable), ("latest", latest)):
        assert [hit["id"] for hit in answer["results"] if hit["team"] == name] == ranking[:2]
    said = read_signed(SECRET, logged(answer))
    numbers = tuple({"stable": FIRST, "latest": SECOND}[team] for team in teams)
    assert said.ts == NOW_MS
    assert said.draft == Draft((DraftModel("stable", 12, 1234), DraftModel("latest", 57, 9000)), numbers)
    assert answer["tie"] is False
    assert [one["alias"] for one in answer["models"]] == ["stable", "latest"]
    assert [one["base"] for one in answer["models"]] == [12, 57]
    assert (answer["alias"], answer["base"]) == ("stable", 12)
    assert "propensity" not in answer["results"][0]


def test_get_and_post_ask_alike(two: Served) -> None:
    status, answer, _ = two.ask("GET", "/v1/similar?id=o1&k=4&interleave=latest,stable&explore=0")
    assert status == 200
    assert [one["alias"] for one in answer["models"]] == ["latest", "stable"]
    assert read_signed(SECRET, logged(answer)).draft.models[0].name == "latest"


def test_chance_changes_from_request_to_request(two: Served) -> None:
    asked = [ask(two, interleave="stable,latest") for _ in range(40)]
    first = Counter(answer["results"][0]["team"] for answer in asked)
    assert min(first["stable"], first["latest"]) > 5
    assert len({answer["impression"] for answer in asked}) == 40


def test_filters_short_lists_vectors_and_keys(two: Served) -> None:
    few = ask(two, interleave="stable,latest", filter={"include": ["o2", "o3", "o4"], "exclude": ["o3"]})
    assert sorted(hit["id"] for hit in few["results"]) == ["o2", "o4"]
    read_signed(SECRET, logged(few))
    nothing = ask(two, interleave="stable,latest", filter={"include": []})
    assert (nothing["results"], nothing["impression"], nothing["tie"]) == ([], None, True)
    dense = [0.1, 0.2, 0.3, 0.7]
    status, by_vector = two.post({"x": dense, "interleave": "stable,latest", "key": "anna"})
    assert status == 200
    read_signed(SECRET, logged(by_vector, ObjectRef(x=np.array(dense, np.float32)), "anna"))
    assert by_vector["key"]["name"] == "anna"


def test_two_names_of_one_state_tie_and_it_says_so() -> None:
    with running(searching=TwoModels(agree=True), lists=made_with()) as served:
        answer = ask(served, interleave="stable,latest")
        plain = served.post({"id": "o1", "k": 4})[1]["results"]
        assert answer["tie"] is True
        assert [{"id": hit["id"], "score": hit["score"]} for hit in answer["results"]] == plain
        assert [hit["team"] for hit in answer["results"]] == [None] * 4
        read_signed(SECRET, logged(answer))


def test_explore_puts_a_random_object_into_a_random_place(two: Served) -> None:
    plain = [hit["id"] for hit in two.post({"id": "o1", "k": 4})[1]["results"]]
    slots, objects = Counter[int](), Counter[str]()
    for _ in range(60):
        answer = ask(two, explore=1)
        (slot,) = [rank for rank, hit in enumerate(answer["results"]) if hit["explored"]]
        hits = answer["results"]
        assert [hit["id"] for rank, hit in enumerate(hits) if rank != slot] == [
            name for rank, name in enumerate(plain) if rank != slot
        ]
        # 10 objects, less the query and the four of the list
        assert [hit["propensity"] for hit in hits] == pytest.approx(
            [explored_chance(4, 5) if rank == slot else 3 / 4 for rank in range(4)]
        )
        draft = read_signed(SECRET, logged(answer)).draft
        assert (draft.explored, draft.chance) == (slot, pytest.approx(1 / 20))
        assert [one.name for one in draft.models] == ["stable"]
        assert "team" not in hits[0]
        slots[slot] += 1
        objects[hits[slot]["id"]] += 1
    assert set(slots) == set(range(4))
    assert set(objects) == {f"o{n}" for n in range(10)} - {"o1", *plain}
    scores = two.post({"id": "o1", "k": 9})[1]["results"]
    assert {"id": hits[slot]["id"], "score": hits[slot]["score"]} in scores


def test_explore_goes_with_interleave_and_may_be_the_default() -> None:
    with running(searching=TwoModels(), lists=made_with(explore=1)) as served:
        answer = ask(served, interleave="stable,latest")
        (explored,) = [hit for hit in answer["results"] if hit["explored"]]
        assert explored["team"] is None
        assert "impression" in ask(served)
        assert "impression" not in ask(served, explore=0)


def test_a_share_of_the_lists_is_explored_by_default() -> None:
    with running(searching=TwoModels(), lists=made_with(explore=0.1)) as served:
        explored = sum("impression" in ask(served) for _ in range(300))
        assert 15 < explored < 50
        assert "impression" in ask(served, explore=1)


def test_where_nothing_is_left_to_explore_the_list_is_as_it_was(two: Served) -> None:
    answer = ask(two, explore=1, k=9)
    assert [hit["explored"] for hit in answer["results"]] == [False] * 9
    assert {hit["propensity"] for hit in answer["results"]} == {1.0}
    assert read_signed(SECRET, logged(answer)).draft.explored is None


BAD: list[tuple[dict[str, Any], int, str, str]] = [
    ({"interleave": "stable,stable"}, 422, "bad_value", "interleave"),
    ({"interleave": "stable"}, 422, "bad_value", "interleave"),
    ({"interleave": "stable,latest,best"}, 422, "bad_value", "interleave"),
    ({"interleave": "stable,nobody"}, 404, "unknown_alias", "interleave"),
    ({"interleave": "stable,latest", "alias": "stable"}, 422, "bad_value", "alias"),
    ({"explore": 2}, 422, "bad_value", "explore"),
    ({"explore": True}, 422, "bad_value", "explore"),
    ({"interleave": "stable,latest", "id": "nobody"}, 404, "unknown_object", "id"),
]


@pytest.mark.parametrize(("body", "status", "code", "field"), BAD)
def test_what_cannot_be_made_is_refused(
    two: Served, body: dict[str, Any], status: int, code: str, field: str
) -> None:
    found, answer = two.post({"id": "o1", **body})
    assert (found, answer["error"]["code"]) == (status, code), answer
    assert answer["error"]["field"] == field


def test_without_a_key_to_sign_with_it_is_off(served: Served) -> None:
    for more, field in (({"interleave": "stable,latest"}, "interleave"), ({"explore": 1}, "explore")):
        status, answer = served.post({"id": "o1", **more})
        assert (status, answer["error"]["code"], answer["error"]["field"]) == (422, "not_signed", field)
    assert served.post({"id": "o1", "explore": 0})[0] == 200


def test_a_batch_has_none_of_it(two: Served) -> None:
    for one in ({"queries": [{"id": "o1", "explore": 1}]}, {"queries": [{"id": "o1"}], "explore": 1}):
        assert two.post(one, "/v1/similar/batch")[0] == 422


def drawn(query: Query, left_out: Sequence[str] = ()) -> tuple[Counter[str], set[int]]:
    """How often each object is drawn where each number comes once, and how many are said to be eligible."""
    found, eligible, number = Counter[str](), set[int](), 0
    while True:
        one = draw(snapshot_of_parts(), query, left_out, lambda n, at=number: min(at, n - 1))  # type: ignore[misc]
        if one is None:
            return found, eligible
        eligible.add(one.eligible)
        found[one.id] += 1
        number += 1
        if number == one.eligible:
            return found, eligible


def snapshot_of_parts() -> IndexSnapshot:
    """Two parts, one object replaced and one removed."""
    items = Items("dense", 2)
    rows = np.ones((6, 2), np.float32)
    items.put([f"a{n}" for n in range(6)], rows, [("red",)] * 3 + [()] * 3)
    items.put(["b0", "b1", "a0"], rows[:3], [("red",), (), ("red",)])
    items.remove(["a1"])
    return items.snapshot()


LIVING = {"a0", "a2", "a3", "a4", "a5", "b0", "b1"}


@pytest.mark.parametrize(
    ("query", "left_out", "expected"),
    [
        (Query(x=[1, 1]), (), LIVING),
        (Query(id="a3"), ("b0", "nobody"), LIVING - {"a3", "b0"}),
        (Query(id="a3", exclude=frozenset({"a0", "a1"})), (), LIVING - {"a3", "a0"}),
        (Query(x=[1, 1], tags=frozenset({"red"})), ("b0",), {"a0", "a2"}),
        (Query(x=[1, 1], include=frozenset({"a0", "a1", "b1"})), ("b1",), {"a0"}),
        (Query(x=[1, 1], include=frozenset({"a0", "b1"}), tags=frozenset({"red"})), (), {"a0"}),
        (Query(x=[1, 1]), tuple(LIVING), set()),
    ],
)
def test_each_object_that_may_be_answered_is_as_likely(
    query: Query, left_out: Sequence[str], expected: set[str]
) -> None:
    found, eligible = drawn(query, left_out)
    assert found == Counter(expected)
    assert eligible == ({len(expected)} if expected else set())
