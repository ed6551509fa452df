"""The Python in the pages works: a catalog written as shown loads, an event sent as shown is one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kafka
import numpy as np
import pyarrow.parquet
import pytest

from daemon.catalogs import learner_catalog
from daemon.config import load_config
from learners import ServingForm
from learners.block import DenseBlock
from learners.forms.embedding import Embedding
from learners.forms.serving import BackoffForm
from streams.codec import decode_event
from streams.foreign_http import ForeignServer
from streams.items import Display, unpack_display
from tests.daemon.serve.http.toy import running
from tests.harness.embedder import embedding

ROOT = Path(__file__).parents[2]


def snippet(page: str, containing: str) -> str:
    """The one Python block of a page that has these words."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def run(page: str, containing: str, **names: Any) -> dict[str, Any]:
    """Run it with these names known; the names it leaves."""
    exec(compile(snippet(page, containing), page, "exec"), names)
    return names


def test_a_catalog_from_a_table(tmp_path: Path) -> None:
    page = (ROOT / "docs/your-own-data.md").read_text()
    (block,) = re.findall(
        r"^```toml\n(\[space.*?\[catalog.columns\].*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    (tmp_path / "tripletd.toml").write_text(block)
    vectors = np.eye(3, 384, dtype=np.float32)
    rows = {"sku": ["a", "zoë", "c"], "name": ["A", "Z", "C"], "embedding": vectors.tolist()}
    rows |= {"category": ["lamps"] * 3, "colours": [["red"], [], ["blue", "red"]]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "products.parquet")
    catalog = learner_catalog(load_config(tmp_path / "tripletd.toml", environ={}))
    assert catalog is not None
    assert catalog.ids == ["a", "zoë", "c"]
    np.testing.assert_array_equal(catalog.views["text"].values, vectors)
    assert catalog.shown is not None
    assert unpack_display(catalog.shown[2]) == Display("C", tags=("lamps", "blue", "red"))
    assert list((tmp_path / "checkpoints" / "catalogs").glob("*.safetensors"))


class _Producer:
    """Stands in for the client: keeps what is sent."""

    sent: list[tuple[str, bytes, bytes]]

    def __init__(self, **settings: Any) -> None:
        self.sent = []

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self.sent.append((topic, key, value))

    def flush(self) -> None:
        pass


def test_an_event_sent_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "KafkaProducer", _Producer)
    ((topic, _, value),) = run("docs/kafka.md", "KafkaProducer")["producer"].sent
    event = decode_event(value)
    assert topic == "clicks"
    assert (event.query.id, event.clicked.id, event.skipped.id) == ("thing-7", "thing-209", "thing-20")


def test_an_export_ranks_as_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(1)
    items = chance.standard_normal((40, 6)).astype(np.float32)
    learned = ServingForm.from_matrix((np.eye(6) + 0.4 * chance.standard_normal((6, 6))).astype(np.float32))
    judged = BackoffForm.beside(learned, np.ones(6, np.float32), 0.3, 3.0)  # gives way to all
    for form in (learned, judged):
        embedding = Embedding.of(form)
        documents, queries = embedding.documents(items), embedding.queries(items)
        assert isinstance(documents, DenseBlock)
        assert isinstance(queries, DenseBlock)
        np.save("items.npy", documents.values)
        np.save("queries.npy", queries.values)
        about = {"ids": [f"o{n}" for n in range(40)], "symmetric": embedding.symmetric}
        Path("items.npy.json").write_text(json.dumps(about))
        best = run("docs/your-own-index.md", "items.npy.json")["best"]
        served = form.scores(items[3:4], items)[0]
        assert best == [f"o{row}" for row in np.argsort(-served) if row != 3][:10]


def test_an_index_of_ones_own_is_asked_with_folded_queries() -> None:
    with running() as served:
        known = {"server": f"http://127.0.0.1:{served.port}", "features": [1.0, 2.0, 3.0, 4.0]}
        known |= run("docs/your-own-index.md", "def vectors", **known)
        assert known["document"] == known["query"] == known["features"]
        toy = served.searcher
        known = run("docs/your-own-index.md", "faiss", **known, yours=toy.items, ids=toy.ids)
        assert known["folded"] == [2.0, 4.0, 6.0, 8.0]
        assert known["version"] == str(toy.model)
        assert known["include"][0] == toy.ids[known["rows"][0][0]]
        assert {hit["id"] for hit in known["hits"]} <= set(known["include"])


def test_texts_go_in_through_one_base_url() -> None:
    def embed(text: str) -> list[float]:
        return [1.0, 0.5, len(text) / 4, 2.0]

    with (
        embedding(embed) as upstream,
        running(embedding=ForeignServer(upstream.url), models={"shop": "texts"}) as served,
    ):
        known = {"server": f"http://127.0.0.1:{served.port}"}
        left = run("docs/one-base-url.md", "OpenAI", **known)
        left["client"].close()
        assert left["document"] == [1.0, 0.5, 2.75, 2.0]
        assert left["query"] == [2.0, 1.0, 8.5, 4.0]
        left = run("docs/one-base-url.md", "rerank", **known)
        assert sorted(map(str, left["best"])) == sorted(map(str, left["documents"]))


def test_pairs_of_both_models_are_written_for_a_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = np.ones((3, 12)), np.ones((3, 8))
    run("docs/another-embedding-model.md", "savez", pairs_new=pairs[0], pairs_old=pairs[1])
    with np.load(tmp_path / "pairs.npz") as found:
        assert (found["new"].shape, found["old"].shape) == ((3, 12), (3, 8))
