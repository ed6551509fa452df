"""A running `tripletd serve` with an upstream, or a model of its own, that embeds texts: it folds and ranks
by what it serves."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.client.asking import AskClient, NotAnsweredError
from daemon.exits import EX_CONFIG, EX_OK
from daemon.serve.text_model import TextModel
from tests.daemon.serve.test_role import PATIENCE_S, Place, Role
from tests.harness.embedder import embedding
from tests.harness.text_model import write_folder
from tests.harness.waiting import until

VARIABLE = "TEXTS_KEY"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(Path(tmp_path_factory.mktemp("embedding")))
    place.feed(40, seed=1)
    place.learn()
    yield place
    place.end()


@pytest.fixture(scope="module")
def role(place: Place) -> Iterator[Role]:
    """Its upstream knows the objects of the catalog by their ids."""

    def vector(text: str) -> list[float]:
        rows: list[float] = place.rows[int(text[1:])].tolist()
        return [0.0 * one for one in rows] if text.startswith("z") else rows

    with embedding(vector) as upstream:
        settings = (
            f'[embeddings]\nupstream = "{upstream.url}"\nkey_env = "{VARIABLE}"\nmodels.shop = "texts"\n'
        )
        place.file.write_text(place.file.read_text() + settings)
        role = place.start("serve", env={VARIABLE: "the key"})
        for alias in ("latest", "stable"):
            until(lambda: role.get(f"/v1/similar?id=o3&alias={alias}")[0] == 200, role.said)
        yield role
        assert {headers["authorization"] for _, headers in upstream.asked} == {"Bearer the key"}
        assert "the key" not in role.said()


def ask(role: Role, path: str, **body: Any) -> tuple[int, Any, Any]:
    question = urllib.request.Request(role.url() + path, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(question, timeout=30) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def test_a_query_is_folded_as_v1_fold_folds_its_vector(place: Place, role: Role) -> None:
    for alias in ("stable", "latest"):
        given = [{"x": place.rows[n].astype(np.float32).tolist()} for n in (3, 5)]
        _, folded, _ = ask(role, "/v1/fold", queries=given, mode="folded", alias=alias)
        status, answer, headers = ask(role, "/v1/embeddings", model=f"shop-query@{alias}", input=["o3", "o5"])
        assert status == 200
        found = [one["embedding"] for one in answer["data"]]
        np.testing.assert_allclose(found, [one["vector"] for one in folded["vectors"]], atol=1e-6)
        assert headers["Tripletd-Version"] == folded["version"]
    plain = ask(role, "/v1/embeddings", model="shop-doc", input=["o3"])[1]["data"][0]["embedding"]
    assert plain == place.rows[3].astype(np.float32).tolist()
    assert plain != answer["data"][0]["embedding"]


def test_documents_have_the_scores_of_v1_similar(role: Role) -> None:
    ids = ["o7", "o1", "o9", "o30"]
    served = ask(role, "/v1/similar", id="o3", k=4, filter={"include": ids}, alias="latest")[1]["results"]
    for documents in ([{"id": one} for one in ids], ids):  # of the catalog, and embedded by the upstream
        status, answer, _ = ask(role, "/v1/rerank", model="shop@latest", query="o3", documents=documents)
        assert status == 200
        assert [ids[one["index"]] for one in answer["results"]] == [one["id"] for one in served]
        scores = [one["relevance_score"] for one in answer["results"]]
        assert scores == pytest.approx([one["score"] for one in served], abs=1e-5)


def test_nobody_asks_with_zeros(role: Role) -> None:
    zero: list[float] = [0.0] * 6
    refused = [
        ask(role, "/v1/similar", x=zero),
        ask(role, "/v1/similar", x=zero, filter={"include": ["o1"]}),
        ask(role, "/v1/embeddings", model="shop-query", input=["o3", "z3"]),
        ask(role, "/v1/rerank", model="shop", query="z3", documents=["o1"]),
        ask(role, "/v2/rerank", model="shop", query="z3", documents=[{"id": "o1"}]),
    ]
    for status, answer, _ in refused:
        assert (status, answer["error"]["code"]) == (422, "zero_query"), answer
    for path, more in (("/v1/similar/batch", {}), ("/v1/fold", {"mode": "folded"})):
        status, answer, _ = ask(role, path, queries=[{"x": zero}, {"id": "o3"}], **more)
        entries = answer["answers" if not more else "vectors"]
        assert (status, entries[0]["error"]["code"]) == (200, "zero_query")
        assert entries[1].get("error") is None
    with closing(AskClient(role.url())) as client, pytest.raises(NotAnsweredError, match="is zero"):
        client.similar(zero)
    assert ask(role, "/v1/embed", objects=[{"x": zero}])[1]["vectors"][0].get("error") is None
    assert ask(role, "/v1/embeddings", model="shop-doc", input="z3")[0] == 200
    ranked = ask(role, "/v1/rerank", model="shop", query="o3", documents=["z1", "o3"])[1]["results"]
    assert [(one["index"], one["relevance_score"]) for one in ranked][1] == (0, 0.0)


def test_a_vector_of_another_size_names_the_view_and_the_model(role: Role) -> None:
    status, answer, _ = ask(role, "/v1/embeddings", model="shop-query", input="o3", dimensions=4)
    assert (status, answer["error"]["code"]) == (422, "wrong_dim")
    assert "texts has 4 numbers, the view 6" in answer["error"]["message"]


def test_without_its_key_it_does_not_start(place: Place, role: Role) -> None:
    other = place.start("serve", env={VARIABLE: ""})
    assert other.process.wait(PATIENCE_S) == EX_CONFIG
    assert f"{VARIABLE}, which is not set" in other.said()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.feed(40, seed=1)
    place.learn()
    write_folder(tmp_path / "models" / "tiny", dim=6)
    place.file.write_text(place.file.read_text() + '[embeddings]\nfolder = "models/tiny"\nthreads = 1\n')
    yield place
    place.end()


def test_texts_go_to_a_model_of_its_own(local: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--config", str(local.file)]) == EX_OK
    assert "tiny: 6 dimensions, texts of up to 12 tokens" in capsys.readouterr().out
    role = local.start("serve")
    until(lambda: role.get("/v1/similar?id=o3&alias=latest")[0] == 200, role.said)
    texts = ["red dress", "lamp for the night"]
    model = TextModel.open(local.folder / "models" / "tiny", 1)
    vectors = model.embed(model.tokens(texts, "query"), [0, 1])
    asked = [{"x": one.tolist()} for one in vectors]
    _, folded, _ = ask(role, "/v1/fold", queries=asked, mode="folded", alias="latest")
    status, answer, headers = ask(role, "/v1/embeddings", model="tiny-query@latest", input=texts)
    assert (status, headers["Tripletd-Version"]) == (200, folded["version"])
    wanted = [one["vector"] for one in folded["vectors"]]
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], wanted, atol=1e-5)
    plain = ask(role, "/v1/embeddings", model="tiny-doc", input=texts)[1]["data"]
    np.testing.assert_allclose([one["embedding"] for one in plain], vectors, atol=1e-5)
    (local.folder / "models" / "tiny" / "tokenizer.json").unlink()
    other = local.start("serve")
    assert other.process.wait(PATIENCE_S) == EX_CONFIG
    assert "has no tokenizer.json" in other.said()
