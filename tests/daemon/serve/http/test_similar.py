"""Questions and answers over a real socket."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from checkpoints import Damaged
from tests.daemon.serve.http.toy import Served, ToyStore, running
from tests.harness.waiting import until

ORIGIN = {"version": "12+7", "base": 12, "records": 1234, "formed": 1230, "watermark": 1_700_000_000_000}
ORIGIN |= {"line": "0123456789abcdef"}


def test_by_id_the_nearest_come_first_and_the_object_itself_is_left_out(served: Served) -> None:
    status, answer = served.post({"id": "o3", "k": 4})
    assert status == 200
    scores = served.searcher.items @ served.searcher.items[3]
    order = [n for n in np.argsort(-scores, kind="stable") if n != 3][:4]
    assert answer["results"] == [{"id": f"o{n}", "score": float(scores[n])} for n in order]


def test_a_score_is_the_exact_float32(served: Served) -> None:
    _, answer = served.post({"x": [0.1, 0.2, 0.3, 0.4]})
    scores = served.searcher.items @ np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    assert [np.float32(hit["score"]) for hit in answer["results"]] == sorted(scores, reverse=True)


@pytest.mark.parametrize("alias", ["stable", "latest"])
def test_every_answer_names_version_form_watermark_and_alias(served: Served, alias: str) -> None:
    single = served.post({"id": "o1", "alias": alias})[1]
    batch = served.post({"queries": [{"id": "o1"}], "alias": alias}, "/v1/similar/batch")[1]
    get = served.ask("GET", f"/v1/similar?id=o1&alias={alias}")[1]
    for answer in (single, batch, get):
        assert {key: answer[key] for key in ORIGIN} == ORIGIN
        assert answer["alias"] == alias
        assert answer["took_ms"] >= 0


def test_the_first_alias_answers_where_none_is_named(served: Served) -> None:
    assert served.post({"id": "o1"})[1]["alias"] == "stable"


def test_get_and_post_give_the_same(served: Served) -> None:
    get = served.ask("GET", "/v1/similar?id=o2&k=3&alias=latest")[1]
    post = served.post({"id": "o2", "k": 3, "alias": "latest"})[1]
    assert get["results"] == post["results"]
    assert len(get["results"]) == 3


def test_sparse_and_dense_vectors_and_views_mean_the_same(served: Served) -> None:
    dense, sparse = [0.0, 1.5, 0.0, -2.0], {"indices": [1, 3], "values": [1.5, -2]}
    found = [
        served.post({"x": dense})[1]["results"],
        served.post({"x": sparse})[1]["results"],
        served.post({"views": {"x": dense}})[1]["results"],
        served.post({"views": {"x": sparse}})[1]["results"],
    ]
    assert found[0]
    assert all(one == found[0] for one in found)


def test_a_filter_reaches_the_search(served: Served) -> None:
    wanted = {"include": ["o1", "o2", "o4"], "exclude": ["o2"], "tags": ["red", "red"]}
    answer = served.post({"id": "o0", "filter": wanted})[1]
    assert sorted(hit["id"] for hit in answer["results"]) == ["o1", "o4"]
    query = served.searcher.passes[-1][0]
    assert (query.tags, query.exclude, query.include) == ({"red"}, {"o2"}, {"o1", "o2", "o4"})
    assert served.post({"id": "o0", "filter": {"include": []}})[1]["results"] == []


def test_a_batch_is_answered_in_order_and_a_bad_query_spoils_only_itself(served: Served) -> None:
    queries = [{"id": "o1", "k": 2}, {"id": "nobody"}, {"x": [1, 2]}, {"x": [1, 2, 3, 4], "k": 1}]
    status, answer = served.post({"queries": queries, "alias": "latest"}, "/v1/similar/batch")
    assert status == 200
    first, unknown, short, last = answer["answers"]
    assert first == {"results": served.post({"id": "o1", "k": 2})[1]["results"], "exact": True}
    assert unknown["error"]["code"] == "unknown_object"
    assert unknown["error"]["field"] == "queries[1].id"
    assert short["error"]["field"] == "queries[2].x"
    assert len(last["results"]) == 1
    assert last["exact"] is False


def test_an_answer_says_whether_it_is_exact(served: Served) -> None:
    for k in (3, 4):
        single = served.post({"id": "o1", "k": k})[1]
        get = served.ask("GET", f"/v1/similar?id=o1&k={k}")[1]
        assert single["exact"] is get["exact"] is (k % 2 == 0)  # as the toy says


def test_an_unknown_object_is_404_with_the_field(served: Served) -> None:
    status, answer = served.post({"id": "nobody"})
    assert status == 404
    assert answer == {
        "error": {"code": "unknown_object", "message": "no such object", "field": "id", "remedy": "add it"}
    }


def test_every_answer_is_told_to_whoever_watches_and_no_error_is(served: Served) -> None:
    before = len(served.watched.answers)
    served.post({"id": "o1", "alias": "latest"})
    served.post({"id": "", "alias": "latest"})
    served.post({"id": "nobody", "alias": "latest"})
    served.post({"queries": [{"id": "nobody"}], "alias": "latest"}, "/v1/similar/batch")
    assert served.watched.answers[before:] == [("latest", "12+7")]


def test_versions_are_listed(served: Served) -> None:
    status, answer, _ = served.ask("GET", "/v1/versions")
    assert status == 200
    assert answer["aliases"][0]["version"] == "12+7"
    assert answer["versions"] == [{"version": 12, "names": []}]


def test_versions_that_cannot_be_listed_are_503(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: ToyStore) -> dict[str, Any]:
        raise Damaged("unreadable", "checkpoints/versions", "cannot be read: Input/output error", "the disk")

    monkeypatch.setattr(ToyStore, "overview", unreadable)
    with running() as served:
        status, answer, headers = served.ask("GET", "/v1/versions")
        assert (status, answer["error"]["code"], answer["error"]["remedy"]) == (
            503,
            "store_unavailable",
            "the disk",
        )
        assert headers["retry-after"] == "1"
        assert served.metric("tripletd_http_bugs_total") == 0


def test_health_and_metrics_are_on_the_same_port(served: Served) -> None:
    assert served.ask("GET", "/readyz")[:2] == (503, "starting\n")
    assert served.ask("GET", "/livez")[:2] == (200, "ok\n")
    served.health.started()
    assert served.ask("GET", "/startupz")[:2] == (200, "ok\n")
    served.health.set_ready("no version is loaded yet")
    assert served.ask("GET", "/readyz")[:2] == (503, "no version is loaded yet\n")
    served.health.set_ready(None)
    assert served.ask("GET", "/readyz")[:2] == (200, "ok\n")
    status, text, headers = served.ask("GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=")
    assert "tripletd_http_requests_total{" in text


def test_requests_are_counted_by_route_and_unknown_paths_share_one_label(served: Served) -> None:
    def count(**labels: str) -> float:
        return served.metric("tripletd_http_requests_total", **labels)

    asked, other = count(route="/v1/similar", status="200"), count(route="other", status="404")
    served.post({"id": "o1"})
    served.ask("GET", "/nowhere")
    served.ask("GET", "/somewhere/else")
    # A request is counted once its answer has left, so its asker may be quicker.
    until(lambda: count(route="/v1/similar", status="200") == asked + 1)
    until(lambda: count(route="other", status="404") == other + 2)


def test_an_answer_says_which_model_a_key_was_answered_by(served: Served) -> None:
    told = {"name": "anna", "model": "own", "why": None, "formed": 1230}
    assert served.post({"id": "o1", "key": "anna"})[1]["key"] == told
    assert served.ask("GET", "/v1/similar?id=o1&key=anna")[1]["key"] == told
    batch = served.post({"queries": [{"id": "o1"}, {"id": "o1", "key": "anna"}]}, "/v1/similar/batch")[1]
    assert ["key" in one for one in batch["answers"]] == [False, True]
    assert batch["answers"][1]["key"] == told
    assert "key" not in served.post({"id": "o1"})[1]
