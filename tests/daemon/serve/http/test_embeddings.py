"""`/v1/embeddings` and `/v1/rerank` over an upstream on loopback: shapes, sides, what goes wrong there."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from daemon.serve.http import texts
from daemon.serve.http.embeddings import asked_model
from daemon.serve.http.errors import Problem
from streams import foreign_http
from streams.foreign_http import ForeignAnswer, ForeignError, ForeignServer
from tests.daemon.serve.http.toy import DIM, HOST, Served, running
from tests.harness.embedder import Embedder, embedding

KEY = "upstream-key"
MODELS = {"shop": "text-large"}


def vector(text: str) -> list[float]:
    """Some numbers of a text, exact as float32."""
    return [float((sum(text.encode()) * (place + 3)) % 17 - 8) / 4 for place in range(DIM)]


def settings(upstream: Embedder) -> ForeignServer:
    headers = {"Authorization": f"Bearer {KEY}"}
    return ForeignServer(upstream.url, headers, timeout_s=30.0, connections=2, body_bytes=32 << 20)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Embedder]:
    with embedding(vector) as one:
        yield one


@pytest.fixture(scope="module")
def server(upstream: Embedder) -> Iterator[Served]:
    with running(embedding=settings(upstream), models=MODELS) as one:
        yield one


@pytest.fixture
def asked(upstream: Embedder) -> Embedder:
    upstream.asked.clear()
    upstream.ports.clear()
    assert not upstream.answers
    return upstream


def ask(served: Served, path: str = "/v1/embeddings", **body: Any) -> tuple[int, Any, Any]:
    return served.ask("POST", path, body)


def test_the_client_of_openai_gets_folded_queries_and_documents_as_they_are(
    server: Served, asked: Embedder
) -> None:
    import openai  # a tenth of what all tests import

    texts = ["a red dress", "a blue dress"]
    with openai.OpenAI(api_key="unused", base_url=f"http://{HOST}:{server.port}/v1") as client:
        for form in ("float", "base64", None):
            given: Any = {} if form is None else {"encoding_format": form}
            documents = client.embeddings.create(model="shop-doc", input=texts, **given)
            queries = client.embeddings.create(model="shop-query@latest", input=texts, user="u1", **given)
            for answer, factor in ((documents, 1), (queries, 2)):
                assert answer.object == "list"
                assert answer.usage.total_tokens == 2
                assert [one.object for one in answer.data] == ["embedding"] * 2
                found = {one.index: _as_numbers(one.embedding) for one in answer.data}
                assert found == {n: [factor * x for x in vector(text)] for n, text in enumerate(texts)}
            assert queries.model == "shop-query@latest"
    body, headers = asked.asked[1]
    assert (body["model"], body["input"], body["user"]) == ("text-large", texts, "u1")
    assert headers["authorization"] == f"Bearer {KEY}"


def _as_numbers(given: Any) -> list[float]:
    """As the client gives them: it leaves base64 as it is where that was asked for."""
    return np.frombuffer(base64.b64decode(given), "<f4").tolist() if isinstance(given, str) else list(given)


def test_one_text_its_tokens_and_unknown_fields_go_to_the_upstream(server: Served, asked: Embedder) -> None:
    for given, count in (("a", 1), (["a"], 1), ([1, 2, 3], 1), ([[1, 2], [3]], 2)):
        status, answer, headers = ask(server, model="shop-query", input=given, dimensions=DIM, task="search")
        assert (status, len(answer["data"])) == (200, count)
        assert headers["Tripletd-Version"] == "12+7"
        assert asked.asked[-1][0] == {
            "model": "text-large",
            "input": given,
            "dimensions": DIM,
            "task": "search",
            "encoding_format": "base64",
        }


def test_an_upstream_that_knows_no_base64_gives_the_same_answers(upstream: Embedder) -> None:
    with running(embedding=settings(upstream), models=MODELS) as served:
        wanted = ask(served, model="shop-query", input="a")[1]
        assert [2 * one for one in vector("a")] == wanted["data"][0]["embedding"]
        upstream.asked.clear()
        refusal = JSONResponse({"error": {"message": "encoding_format?"}}, 422)
        upstream.answers.append(refusal)
        assert ask(served, model="shop-query", input="a")[:2] == (200, wanted)
        assert ask(served, model="shop-query", input="a")[:2] == (200, wanted)
        assert [body.get("encoding_format") for body, _ in upstream.asked] == ["base64", None, None]
        upstream.asked.clear()
        plain = {"object": "embedding", "index": 0, "embedding": vector("a")}
        upstream.answers.append(JSONResponse({**wanted, "data": [plain]}))
        assert ask(served, model="shop-query", input="a")[:2] == (200, wanted)


def test_a_refused_request_is_refused_however_it_is_asked_and_nothing_is_learned_of_it(
    upstream: Embedder,
) -> None:
    with running(embedding=settings(upstream), models=MODELS) as served:
        upstream.asked.clear()
        told = {"error": {"message": "the text is too long"}}
        for second in (400, 429):
            upstream.answers += [JSONResponse(told, 400), JSONResponse(told, second)]
            status, answer, _ = ask(served, model="shop-query", input="a")
            assert (status, answer["error"]["code"]) == (second, "upstream_refused")
        assert ask(served, model="shop-query", input="a")[0] == 200
        forms = [body.get("encoding_format") for body, _ in upstream.asked]
        assert forms == ["base64", None, "base64", None, "base64"]


def test_the_answer_is_counted_as_one_of_its_alias(server: Served, asked: Embedder) -> None:
    before = len(server.watched.answers)
    ask(server, model="shop-query@latest", input="a")
    ask(server, model="shop-doc", input="a")
    assert server.watched.answers[before:] == [("latest", "12+7")]


@pytest.mark.parametrize(
    "model", ["shop", "shop-doc@stable", "text-large-query", "-query", "shop-query@nobody"]
)
def test_models_that_are_not_there_are_refused_without_asking(
    server: Served, asked: Embedder, model: str
) -> None:
    status, answer, _ = ask(server, model=model, input="a")
    assert (status, answer["error"]["field"]) == (404, "model")
    assert not asked.asked


def test_who_asks_for_another_model_is_told_which_there_are(server: Served) -> None:
    for path, there in (("/v1/embeddings", "are shop-query, shop-doc"), ("/v2/rerank", "is shop")):
        body = {"input": "a"} if path == "/v1/embeddings" else {"query": "a", "documents": ["b"]}
        status, answer, _ = ask(server, path, model="gpt", **body)
        assert (status, answer["error"]["code"]) == (404, "unknown_model")
        assert answer["error"]["message"] == f"there is no such model here; there {there}"
    with pytest.raises(Problem, match=r"are a-query, .*, e-doc and those of 2 more"):
        asked_model("x", dict.fromkeys("abcdefg", "m"), None)


def test_without_a_table_of_models_it_is_said_how_names_are_made(upstream: Embedder) -> None:
    with running(embedding=settings(upstream)) as served:
        for path, body, names in (
            ("/v1/embeddings", {"input": "a"}, ("NAME-query", "NAME-doc")),
            ("/v2/rerank", {"query": "a", "documents": ["b"]}, ("NAME",)),
        ):
            error = ask(served, path, model="-doc", **body)[1]["error"]
            assert (error["code"], error["field"]) == ("unknown_model", "model")
            assert error["message"].endswith(f"a model is called {' or '.join(names)}")
            assert "GET /v1/models" not in error["remedy"], "it lists none"


def test_models_are_listed_as_openai_has_it_and_each_can_be_asked_for(server: Served) -> None:
    import openai

    with openai.OpenAI(api_key="unused", base_url=f"http://{HOST}:{server.port}/v1") as client:
        listed = client.models.list().data
        names = [one.id for one in listed]
        assert names == ["shop-query", "shop-query@stable", "shop-query@latest", "shop-doc", "shop"]
        assert [client.models.retrieve(name) for name in names] == listed
        assert {(one.object, one.owned_by) for one in listed} == {("model", "tripletd")}
        for name in names[:-1]:
            assert client.embeddings.create(model=name, input="a").data
        with pytest.raises(openai.NotFoundError, match="there are shop-query, shop-doc"):
            client.models.retrieve("gpt")
    assert server.ask("POST", "/v1/models", b"")[0] == 405


def test_names_of_the_upstream_cannot_be_listed_and_are_known(upstream: Embedder) -> None:
    with running(embedding=settings(upstream)) as served:
        assert served.ask("GET", "/v1/models")[1] == {"object": "list", "data": []}
        assert (
            served.ask("GET", "/v1/models/org/model-v3-query@latest")[1]["id"] == "org/model-v3-query@latest"
        )
        for name in ("org/model-v3", "m-query@nobody"):
            assert served.ask("GET", f"/v1/models/{name}")[0] == 404
    with running(models=MODELS) as served:
        assert served.ask("GET", "/v1/models")[1]["data"] == []
        assert served.ask("GET", "/v1/models/shop-query")[1]["error"]["code"] == "not_configured"


def test_both_versions_of_a_rerank_give_one_order(server: Served, asked: Embedder) -> None:
    body = {"model": "shop@stable", "query": "q", "documents": ["aa", "bb", "cc"], "top_n": 2}
    first, second = ask(server, "/v1/rerank", **body), ask(server, "/v2/rerank", **body, max_tokens_per_doc=4)
    assert (first[0], second[0]) == (200, 200)
    assert first[1]["results"] == second[1]["results"]
    assert [one[1]["meta"]["api_version"]["version"] for one in (first, second)] == ["1", "2"]
    assert [one[1]["meta"]["ordered_by"] for one in (first, second)] == ["form", "form"]


def test_without_a_table_the_names_are_those_of_the_upstream() -> None:
    assert asked_model("text-3-small-query@latest", {}, None).name == "text-3-small"
    assert asked_model("text-3-small", {}, "query").alias is None
    with pytest.raises(Problem, match="no such model"):
        asked_model("text-3-small-doc", {}, "query")


def test_a_vector_of_another_size_is_refused_with_both_sizes(server: Served, asked: Embedder) -> None:
    status, answer, _ = ask(server, model="shop-query", input="a", dimensions=3)
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (422, "wrong_dim", "dimensions")
    assert "text-large has 3 numbers, the view 4" in answer["error"]["message"]


def openai_answer(*rows: Any) -> Response:
    """As an upstream writes it, with what numpy and Python write and JSON has not."""
    data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
    return Response(json.dumps({"object": "list", "data": data, "model": "m"}))


def failures(served: Served, reason: str) -> float:
    name, labels = "tripletd_http_upstream_failures_total", {"reason": reason}
    return served.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize("model", ["shop-query", "shop-doc"])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "credentials"),
        (403, "credentials"),
        (307, "redirect"),
        (500, "status"),
    ],
)
def test_a_refusal_of_ours_is_a_bad_gateway_and_its_words_stay_in_the_log(
    server: Served, asked: Embedder, capsys: pytest.CaptureFixture[str], model: str, status: int, reason: str
) -> None:
    before = failures(server, reason)
    told = {"error": {"message": f"bad key sk-{status}-{model}"}}
    asked.answers.append(
        JSONResponse(told, status, headers={"Location": "http://elsewhere/", "Retry-After": "7"})
    )
    found, answer, headers = ask(server, model=model, input="a")
    assert (found, answer["error"]["code"]) == (502, f"upstream_{reason}")
    assert "sk-" not in json.dumps(answer)
    assert "retry-after" not in headers
    assert failures(server, reason) == before + 1
    assert ask(server, model=model, input="a")[0] == 200


def test_what_concerns_the_request_keeps_its_status_and_when_to_ask_again(
    server: Served, asked: Embedder
) -> None:
    import openai

    told = {"error": {"message": "organisation org-1 is over its limit", "code": "rate_limit"}}
    for status, after, kept in (
        (429, "7", "7"),
        (503, "7", "7"),
        (503, "soon", "1"),
        (503, "0", "1"),
        (404, "soon", None),
        (413, "9" * 9, None),
    ):
        asked.answers.append(JSONResponse(told, status, headers={"Retry-After": after}))
        found, answer, headers = ask(server, model="shop-doc", input="a")
        assert (found, answer["error"]["code"], headers.get("retry-after")) == (
            status,
            "upstream_refused",
            kept,
        )
        assert "org-1" not in json.dumps(answer)
    with openai.OpenAI(api_key="k", base_url=f"http://{HOST}:{server.port}/v1", max_retries=0) as client:
        asked.answers.append(JSONResponse(told, 429))
        with pytest.raises(openai.RateLimitError, match="asked too often"):
            client.embeddings.create(model="shop-query", input="a")


@pytest.mark.parametrize("model", ["shop-query", "shop-doc"])
def test_vectors_of_a_size_that_nobody_asked_for_are_the_upstreams_fault(
    server: Served, asked: Embedder, model: str
) -> None:
    before = failures(server, "size")
    rows: list[Any] = [[1.0] * DIM, [1.0] * (DIM + 1)]
    asked.answers.append(openai_answer(*rows))
    assert ask(server, model=model, input=["a", "b"])[0] == 502
    asked.answers.append(openai_answer(rows[1]))
    assert ask(server, model=model, input="a", dimensions=DIM)[0] == 502
    asked.answers.append(openai_answer(rows[1]))
    status, answer, _ = ask(server, model=model, input="a")
    if model == "shop-query":
        assert (status, answer["error"]["code"]) == (502, "upstream_size")
        assert "has 5 numbers, the view 4" in answer["error"]["message"]
    else:
        assert status == 200, "which size documents have is known to nobody here"
    assert failures(server, "size") == before + (3 if model == "shop-query" else 2)
    asked.answers.append(openai_answer(rows[1], rows[1]))
    assert ask(server, "/v1/rerank", model="shop", query="a", documents=["b"])[0] == 502


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        b'{"data": [{"index": 0}]}',
        b'{"data": [{"index": 0, "embedding": ["a"]}]}',
        b'{"data": [{"index": 0, "embedding": "no base64"}]}',
        b'{"data": [{"index": 0, "embedding": "AAA="}]}',
        b'{"data": []}',
        b'{"data": [{"index": 1, "embedding": [1, 2, 3, 4]}]}',
        b'{"data": [{"embedding": [1, 2, 3, 4]}, {"embedding": [1, 2, 3, 4]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2, 3, %s]}]}' % (b"9" * 4_000),
        b'{"data": [{"index": 0, "embedding": [1, 2, 3, 1e39]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2, 3, NaN]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 2, 3, true]}]}',
        b'{"data": ' + b"[" * 100_000,
        b"[1]",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
@pytest.mark.parametrize("model", ["shop-query", "shop-doc"])
def test_what_is_no_answer_of_openai_is_a_bad_gateway(
    server: Served, asked: Embedder, model: str, body: bytes
) -> None:
    before = failures(server, "malformed")
    asked.answers.append(Response(body))
    status, answer, _ = ask(server, model=model, input="a")
    assert (status, answer["error"]["code"]) == (502, "upstream_malformed")
    assert failures(server, "malformed") == before + 1


def test_other_words_of_an_answer_are_not_told(server: Served, asked: Embedder) -> None:
    data = [{"index": 0, "embedding": [1.0] * DIM, "told": "secret"}]
    usage = {"prompt_tokens": 10**300, "total_tokens": 3, "told": "secret"}
    asked.answers.append(JSONResponse({"data": data, "told": "secret", "usage": usage}))
    status, answer, _ = ask(server, model="shop-query", input="a")
    assert (status, answer["usage"]) == (200, {"prompt_tokens": 0, "total_tokens": 3})
    assert "secret" not in json.dumps(answer)


def test_a_connection_is_kept_and_one_that_was_closed_is_made_anew(server: Served, asked: Embedder) -> None:
    asked.answers.append(JSONResponse({"error": {}}, 500, headers={"Connection": "close"}))
    assert ask(server, model="shop-doc", input="a")[0] == 502
    assert [ask(server, model="shop-query", input="a")[0] for _ in range(5)] == [200] * 5
    closed, *kept = asked.ports
    assert {*kept} == {kept[0]} != {closed}


def test_a_large_answer_is_read_off_the_loop(
    server: Served, asked: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    read = texts.vectors_of
    monkeypatch.setattr(
        texts, "vectors_of", lambda *of: (threads.append(threading.get_ident()), read(*of))[1]
    )
    data = [{"index": 0, "embedding": [0.5] * DIM}]
    for size in (1, 1, texts.MOST_ON_LOOP):
        asked.answers.append(JSONResponse({"data": data, "model": "m", "padding": "x" * size}))
        assert ask(server, model="shop-doc", input="a")[0] == 200
    assert [thread == threads[0] for thread in threads] == [True, True, False]


def test_numbers_of_many_texts_are_never_all_values_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take far more memory than what they are written in, and nobody else a turn meanwhile."""
    monkeypatch.setattr(foreign_http, "LEAST_JSON_MEMORY", 1 << 19)
    row = b'{"index": %d, "object": "embedding", "embedding" : [' + b"1," * 400 + b'0.5\n], "a": [1]}'
    body = b'{"data": [' + b",".join(row % place for place in reversed(range(200))) + b"]}"
    assert foreign_http.json_memory(body) > 4 << 19 > 2 * len(body)
    vectors, _ = texts.vectors_of(ForeignAnswer(200, {}, body), 200)
    assert {(len(one), float(one.sum())) for one in vectors} == {(401, 400.5)}
    wide = b'{"data": [{"embedding": [' + b"1," * 40_000 + b"1]}]}"
    with pytest.raises(ForeignError, match="too many values"):
        texts.vectors_of(ForeignAnswer(200, {}, wide), 1)


@pytest.mark.parametrize(
    "written",
    [
        '"embedding": [1, 2]',
        '"\\u0065mbedding": [1, 2]',
        '"embedding":\n[1e0,2]',
        '"embedding": "AACAPwAAAEA="',
    ],
)
def test_numbers_are_found_however_they_are_written(written: str) -> None:
    body = '{"data": [{"text": "\\"embedding\\": [3]", "object": "embedding", ' + written + "}]}"
    vectors, _ = texts.vectors_of(ForeignAnswer(200, {}, body.encode()), 1)
    assert vectors[0].tolist() == [1.0, 2.0]


def test_an_answer_that_comes_in_pieces_is_bounded(upstream: Embedder) -> None:
    data = [{"index": 0, "embedding": [0.5, 1.0]}]
    whole = {"object": "list", "data": data, "model": "m", "padding": "x" * 1_000_000}
    raw = json.dumps(whole).encode()

    def streamed() -> StreamingResponse:
        async def body() -> Any:
            for start in range(0, len(raw), 50_000):
                yield raw[start : start + 50_000]

        return StreamingResponse(body(), media_type="application/json")

    with running(embedding=settings(upstream)) as served:
        upstream.answers.append(streamed())
        assert served.ask("POST", "/v1/embeddings", {"model": "m-doc", "input": "a"})[1] == whole
    with running(embedding=replace(settings(upstream), body_bytes=200_000)) as served:
        upstream.answers.append(streamed())
        status, answer, _ = ask(served, model="m-query", input="a")
        assert (status, answer["error"]["code"]) == (502, "upstream_too_large")
        assert ask(served, model="m-query", input="a")[0] == 200  # and its place is free again


def silent(*answers: bytes) -> tuple[socket.socket, threading.Thread]:
    """A listener that answers each connection with these bytes and closes it; with none it stays silent."""
    listening = socket.create_server((HOST, 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listening, thread


def of(listening: socket.socket, timeout_s: float = 30.0) -> ForeignServer:
    return ForeignServer(f"http://{HOST}:{listening.getsockname()[1]}", timeout_s=timeout_s)


def test_an_upstream_that_is_silent_or_gone_is_said_so() -> None:
    listening, _ = silent()
    with listening, running(embedding=of(listening, 0.2)) as served:
        for _ in range(2):  # its only place is given back
            status, answer, _ = ask(served, model="m-query", input="a")
            assert (status, answer["error"]["code"]) == (504, "upstream_slow")
        status, answer, _ = ask(served, model="m-doc", input="a")
        assert (status, answer["error"]["code"]) == (504, "upstream_slow")
        gone = of(listening)
    with running(embedding=gone) as served:
        status, answer, headers = ask(served, model="m-query", input="a")
        assert (status, answer["error"]["code"], headers["retry-after"]) == (502, "upstream_unreachable", "1")


def test_answers_beyond_their_bounds_or_of_no_known_status() -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    answers = {
        b"HTTP/1.1 600 Own\r\nContent-Length: 0\r\n\r\n": "upstream_status",
        b"HTTP/1.1 999 Own\r\nContent-Length: 0\r\n\r\n": "upstream_status",
        b"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n": "upstream_malformed",
        head + b"X: 1\r\n" * 20_000: "upstream_malformed",
        head + b"X: " + b"1" * 100_000: "upstream_malformed",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000: "upstream_malformed",
        head + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\n": "upstream_malformed",
        head
        + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
        + b"X: 1\r\n" * 20_000: "upstream_malformed",
    }
    listening, thread = silent(*answers)
    with listening, running(embedding=of(listening)) as served:
        found = [ask(served, model="m-query", input="a")[:2] for _ in answers]
        thread.join(30)
        assert failures(served, "header") == 4
        assert failures(served, "encoded") == 1
    assert [(status, answer["error"]["code"]) for status, answer in found] == [
        (502, one) for one in answers.values()
    ]


def test_answers_that_end_early_or_without_a_length_or_are_no_http() -> None:
    row = json.dumps({"data": [{"index": 0, "embedding": [1.0] * DIM}]}).encode()
    early = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + row
    to_end = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + row
    listening, thread = silent(early, to_end, b"SSH-2.0-x\r\n\r\n")
    with listening, running(embedding=of(listening)) as served:
        found = [ask(served, model="m-query", input="a")[:2] for _ in range(3)]
        thread.join(30)
    assert [status for status, _ in found] == [502, 200, 502]
    assert found[1][1]["data"][0]["embedding"] == [2.0] * DIM


def test_documents_are_ranked_as_cohere_answers(server: Served, asked: Embedder) -> None:
    texts: list[Any] = ["one", {"text": "two"}, {"id": "o3"}, "four"]
    query = np.array(vector("q"))
    wanted = [np.array(vector(text)) @ query for text in ("one", "two")]
    wanted += [float(server.searcher.items[3] @ query.astype(np.float32)), np.array(vector("four")) @ query]
    order = np.argsort(-np.array(wanted), kind="stable").tolist()
    body = {"model": "shop@latest", "query": "q", "documents": texts}
    status, answer, headers = ask(server, "/v1/rerank", **body, return_documents=True)
    assert (status, headers["Tripletd-Version"]) == (200, "12+7")
    assert [one["index"] for one in answer["results"]] == order
    assert [one["relevance_score"] for one in answer["results"]] == pytest.approx([wanted[n] for n in order])
    documents = [{"text": "one"}, {"text": "two"}, {"id": "o3"}, {"text": "four"}]
    assert [one["document"] for one in answer["results"]] == [documents[n] for n in order]
    told = {"model": "text-large", "input": ["q", "one", "two", "four"], "encoding_format": "base64"}
    assert asked.asked[-1][0] == told
    few = ask(server, "/v1/rerank", **body, top_n=2)[1]["results"]
    assert [(one["index"], one.get("document")) for one in few] == [(order[0], None), (order[1], None)]


@pytest.mark.parametrize(
    ("documents", "status", "field"),
    [
        ([{"id": "nobody"}], 404, "documents[0].id"),
        ([], 422, "documents"),
        (["a", {}], 422, "documents[1]"),
        (["a"] * 1001, 422, "documents"),
    ],
)
def test_documents_that_cannot_be_ranked_are_named(
    server: Served, asked: Embedder, documents: Any, status: int, field: str
) -> None:
    found, answer, _ = ask(server, "/v1/rerank", model="shop", query="q", documents=documents)
    assert found == status
    assert answer["error"]["field"].startswith(field)


def test_both_are_off_where_nothing_is_configured() -> None:
    with running() as served:
        for path, rest in (
            ("/v1/embeddings", {"input": "a"}),
            ("/v1/rerank", {"query": "a", "documents": ["b"]}),
        ):
            status, answer, _ = ask(served, path, model="m-query", **rest)
            assert (status, answer["error"]["code"]) == (404, "not_configured")
            assert "embeddings.upstream" in answer["error"]["remedy"]
