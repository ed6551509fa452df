"""`explain=true` over a real socket: what is told of each hit, and of nothing where nobody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from daemon.serve.query import Answers, ExplainedId, HitClicks, Query, QueryError, ViewShare
from tests.daemon.serve.http.test_by_chance import made_with
from tests.daemon.serve.http.toy import Served, ToySearcher, running

CLICKS = {"o1": HitClicks(2, 1, 30, 4, 9_000), "o2": None}
SHARES = (ViewShare(("text",), 0.25), ViewShare(("text", "image"), -0.5))


@dataclass
class Explaining(ToySearcher):
    """Explains hits that are asked for; those of o2 without shares."""

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        answers = super().search(alias, queries, between)
        told = [
            result
            if isinstance(result, QueryError) or not query.explain
            else [
                ExplainedId(hit.id, -0.2, None if query.id == "o2" else SHARES, 0.7, rank, CLICKS[query.id])
                for rank, hit in enumerate(result, 5)
            ]
            for query, result in zip(queries, answers.results, strict=True)
        ]
        each = [replace(one, result=result) for one, result in zip(answers.each, told, strict=True)]
        return replace(answers, each=each)


@pytest.fixture(scope="module")
def explaining() -> Iterator[Served]:
    with running(searching=Explaining(), lists=made_with()) as served:
        yield served


WHY = {
    "views": [
        {"views": ["text"], "contribution": 0.25},
        {"views": ["text", "image"], "contribution": -0.5},
    ],
    "rest": pytest.approx(0.05),
    "version_0": {"score": 0.7, "rank": 5},
    "clicks": {"clicked": 2, "passed_over": 1, "near_clicked": 30, "near_passed_over": 4, "records": 9_000},
}


def test_each_hit_tells_its_views_and_version_0(explaining: Served) -> None:
    status, answer, _ = explaining.ask("GET", "/v1/similar?id=o1&k=3&explain=true")
    assert status == 200
    assert answer["results"][0]["why"] == WHY
    assert [hit["why"]["version_0"]["rank"] for hit in answer["results"]] == [5, 6, 7]
    assert explaining.post({"id": "o1", "k": 3, "explain": True})[1]["results"] == answer["results"]


def test_a_score_that_is_no_sum_says_so(explaining: Served) -> None:
    hit = explaining.post({"id": "o2", "explain": True})[1]["results"][0]
    assert hit["why"] == {"views": None, "rest": None, "version_0": {"score": 0.7, "rank": 5}, "clicks": None}


def test_an_interleaved_list_is_explained_too(explaining: Served) -> None:
    answer = explaining.post({"id": "o1", "k": 3, "explain": True, "interleave": "stable,latest"})[1]
    assert answer["results"][0]["why"] == WHY


def test_nothing_is_told_where_nobody_asked(explaining: Served) -> None:
    for more in ({}, {"explain": False}):
        assert set(explaining.post({"id": "o1", **more})[1]["results"][0]) == {"id", "score"}


def test_how_many_are_explained_is_limited(explaining: Served) -> None:
    status, answer = explaining.post({"id": "o1", "k": 101, "explain": True})
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (422, "too_many", "k")
    assert explaining.post({"id": "o1", "k": 101})[0] == 200
    assert explaining.post({"id": "o1", "explain": "yes"})[0] == 422
