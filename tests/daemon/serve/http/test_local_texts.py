"""`/v1/embeddings` and `/v1/rerank` over a model in this process: shapes, sides, bounds, and a loop that is
not held up."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.serve.http import HttpLimits, LocalModel
from daemon.serve.text_model import TextModel, Tokens
from tests.daemon.serve.http.toy import DIM, Served, running
from tests.harness.text_model import HEADS, LAYERS, tiny_weights, tokens_of, write_folder
from tests.harness.waiting import until
from tests.quality.bench.minilm import Bert

MODELS = {"shop": "tiny"}
PROMPTS = {"query": "for the "}


def vectors(texts: Sequence[str]) -> np.ndarray:
    """By NumPy, one by one."""
    bert, found = Bert(tiny_weights(DIM), LAYERS, HEADS), []
    for text in texts:
        one = bert.vectors([tokens_of(text, 12)])[0][0].mean(axis=0)
        found.append(one / np.linalg.norm(one))
    return np.array(found)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    folder = Path(tmp_path_factory.mktemp("models")) / "tiny"
    return TextModel.open(write_folder(folder, dim=DIM, prompts=PROMPTS), 1)


@pytest.fixture(scope="module")
def server(model: TextModel) -> Iterator[Served]:
    with running(embedding=LocalModel(model, 30.0), models=MODELS, limits=HttpLimits(batch_max=8)) as one:
        yield one


def ask(served: Served, path: str = "/v1/embeddings", **body: Any) -> tuple[int, Any, Any]:
    return served.ask("POST", path, body)


def test_documents_are_as_the_model_makes_them_and_queries_folded(server: Served) -> None:
    texts = ["a red dress for the night", "lamp", "blue shoe"]
    for name, factor, wanted in (
        ("shop-doc", 1, vectors(texts)),
        ("shop-query@latest", 2, vectors([PROMPTS["query"] + one for one in texts])),
    ):
        for encoding in ("float", "base64"):
            status, answer, _ = ask(server, model=name, input=texts, encoding_format=encoding, user="u1")
            assert (status, answer["object"]) == (200, "list")
            assert [one["index"] for one in answer["data"]] == [0, 1, 2]
            found = [one["embedding"] for one in answer["data"]]
            if encoding == "base64":
                found = [np.frombuffer(base64.b64decode(one), "<f4") for one in found]
            np.testing.assert_allclose(found, factor * wanted, atol=2e-5)
        counted = sum(len(tokens_of(one, 12)) for one in texts) + (0 if factor == 1 else 2 * len(texts))
        assert answer["usage"] == {"prompt_tokens": counted, "total_tokens": counted}
    one = ask(server, model="shop-doc", input="lamp")[1]["data"]
    np.testing.assert_allclose([place["embedding"] for place in one], vectors(["lamp"]), atol=2e-5)


def test_the_client_of_openai_is_pleased(server: Served) -> None:
    import openai  # a tenth of what all tests import

    with openai.OpenAI(api_key="unused", base_url=f"http://127.0.0.1:{server.port}/v1") as client:
        answer = client.embeddings.create(model="shop-doc", input=["red", "lamp"])
    np.testing.assert_allclose([one.embedding for one in answer.data], vectors(["red", "lamp"]), atol=2e-5)


def test_a_reranker_embeds_its_query_as_one_and_the_others_as_documents(server: Served) -> None:
    documents = ["blue shoe", {"id": "o3"}, "a red dress"]
    status, answer, headers = ask(server, "/v1/rerank", model="shop", query="red dress", documents=documents)
    assert (status, headers["Tripletd-Version"]) == (200, "12+7")
    query = vectors(["for the red dress"])[0]
    blue, red = vectors(["blue shoe", "a red dress"]) @ query
    scores = {one["index"]: one["relevance_score"] for one in answer["results"]}
    assert [scores[0], scores[2]] == pytest.approx([blue, red], abs=2e-5)
    assert scores[1] == pytest.approx(float(server.searcher.items[3] @ query), abs=2e-5)


@pytest.mark.parametrize(
    ("body", "code", "place"),
    [
        ({"input": [1, 2]}, "no_texts", "input"),
        ({"input": [[1], [2]]}, "no_texts", "input"),
        ({"input": ["a"] * 9}, "too_many", "input"),
        ({"input": "a", "dimensions": 3}, "wrong_dim", "dimensions"),
    ],
)
def test_what_the_model_does_not_take_is_refused(
    server: Served, body: dict[str, Any], code: str, place: str
) -> None:
    for name in ("shop-doc", "shop-query"):
        status, answer, _ = ask(server, model=name, **body)
        assert (status, answer["error"]["code"], answer["error"]["field"]) == (422, code, place)
    assert ask(server, model="shop-doc", input="a", dimensions=DIM)[0] == 200


@dataclass(frozen=True)
class Held:
    """The model, whose runs wait until they are let go."""

    model: TextModel
    go: threading.Event = field(default_factory=threading.Event)
    runs: list[list[int]] = field(default_factory=list)

    @property
    def dim(self) -> int:
        return self.model.dim

    def tokens(self, texts: Sequence[str], side: Any) -> Tokens:
        return self.model.tokens(texts, side)

    def embed(self, tokens: Tokens, rows: Sequence[int]) -> np.ndarray:
        self.runs.append([*rows])
        assert self.go.wait(30)
        return self.model.embed(tokens, rows)


def test_others_are_answered_while_the_model_computes(model: TextModel) -> None:
    held = Held(model)
    with running(embedding=LocalModel(held, 30.0), models=MODELS) as served:
        asked: list[Any] = []
        threads = [
            threading.Thread(target=lambda: asked.append(ask(served, model="shop-doc", input="red")))
            for _ in range(2)
        ]
        for one in threads:
            one.start()
        until(lambda: held.runs, "the model runs")
        assert served.post({"id": "o3", "k": 2})[0] == 200
        assert len(held.runs) == 1, "one at a time"
        held.go.set()
        for one in threads:
            one.join(30)
    assert [status for status, _, _ in asked] == [200, 200]
    assert served.metric("tripletd_http_text_model_seconds_count") == 2


def test_a_model_that_is_too_slow_gives_the_next_a_turn(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the request that was given up is not computed."""
    monkeypatch.setattr("daemon.serve.text_model.MOST_TEXTS", 1)
    held = Held(model)
    with running(embedding=LocalModel(held, 0.3), models=MODELS) as served:
        status, answer, _ = ask(served, model="shop-doc", input=["red", "red lamp", "red lamp shoe"])
        assert (status, answer["error"]["code"]) == (504, "model_slow")
        held.go.set()
        until(lambda: ask(served, model="shop-doc", input="lamp")[0] == 200, "it answers again")
    # Also "lamp" may have been too slow, and asked again: each of these has one text.
    assert {tuple(rows) for rows in held.runs} == {(0,)}
