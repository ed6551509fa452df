"""Vectors of a version's served form as other programs read them: brute force gives the served lists."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from scipy import sparse

from daemon.cli import main
from daemon.client import NoVectorsError, follow
from daemon.config import load_config
from daemon.exits import EX_CANTCREAT, EX_OK, EX_UNAVAILABLE, EX_USAGE
from daemon.models.compare import catalog_objects
from daemon.replica.vectors import Mode
from daemon.versions.forms import FormByChoice, FormChoice, KeyedForm
from daemon.versions.restore import serving_form
from learners.block import Block
from learners.forms.quadratic import ServedForm
from learners.forms.serving import BackoffForm
from learners.maps.base import OwnRanking
from tests.daemon.serve.test_role import Place as RolePlace
from tests.daemon.serve.test_role import Role
from tests.daemon.test_own_ranking import OBJECTS, Place, Roles, given
from tests.harness.waiting import until

MODES: tuple[Mode, ...] = ("folded", "embedded")
VIEWS = {
    "dense": {"text": 1.0},
    "several": {"text": 1.0, "shape": 2.5},
    "sparse": {"words": 1.0},
    "mixed": {"text": 1.0, "words": 0.4},
}


BOTH = '[learner]\nalgorithm = "oasis-softmax"\nbatch = 8\nevery = 2\nmemory = 16'


class Shop(Place):
    """Learned once, by one learner; `served` is what its newest version answers with."""

    def __init__(
        self,
        folder: Path,
        weights: dict[str, float],
        more: str = "",
        similarity: str = "cosine",
        text: str = "",
    ) -> None:
        super().__init__(folder, similarity, weights, more, text)
        written = self.file.read_text()
        if "text" not in weights:
            self.file.write_text(written.replace("[space.views.text]\ndim = 8\n", ""))
        self.learn(40)

    def choose(self) -> None:
        """Give the newest version a form that gives way to the own ranking."""
        config, versions, number = load_config(self.file), self.versions, self.newest().number
        objects = catalog_objects(config, versions, number)
        assert objects is not None

        def chooser(now: FormChoice | None, learned: FormByChoice, own: OwnRanking) -> FormChoice:
            bold = FormChoice(1.5, 0.2, 0.8, why="chosen by the test")
            return bold.with_usual(learned(bold), own, objects.mapped)

        serving_form(versions, versions.load(number), config.serving, chooser=chooser)

    @property
    def served(self) -> ServedForm:
        config, versions = load_config(self.file), self.versions
        return serving_form(versions, versions.load(self.newest().number), config.serving, keep=False)

    def objects(self) -> Block:
        objects = catalog_objects(load_config(self.file), self.versions, self.newest().number)
        assert objects is not None
        return objects.mapped

    def scores(self) -> np.ndarray:
        objects = self.objects()
        return self.served.scores(objects, objects)

    def export(self, name: str, *words: str) -> tuple[int, Path]:
        out = self.folder / name
        told = main(["models", "export", "latest", "--out", str(out), *words, "--config", str(self.file)])
        return told, out

    def vectors(self, name: str, *words: str) -> tuple[np.ndarray, dict[str, Any]]:
        code, out = self.export(name, *words)
        assert code == EX_OK
        return read(out), json.loads(Path(f"{out}.json").read_text())


def read(path: Path) -> np.ndarray:
    """The rows of a file of any of the formats, with their zeros, float64."""
    if path.suffix == ".npy":
        return np.load(path).astype(np.float64)
    if path.suffix == ".npz":
        return sparse.load_npz(path).toarray().astype(np.float64)
    if path.suffix == ".safetensors":
        return load_file(path)["vectors"].astype(np.float64)
    table = pq.read_table(path)
    assert table.column("id").to_pylist() == [f"o{n}" for n in range(OBJECTS)]
    if "vector" in table.column_names:
        return np.array(table.column("vector").to_pylist(), np.float64)
    rows = np.zeros((len(table), json.loads(table.schema.metadata[b"dim"])))
    for row, (places, values) in enumerate(
        zip(table.column("indices").to_pylist(), table.column("values").to_pylist(), strict=True)
    ):
        rows[row, places] = values
    return rows


def same_lists(found: np.ndarray, scores: np.ndarray) -> None:
    np.testing.assert_allclose(found, scores, atol=3e-5 * np.abs(scores).max())


@pytest.mark.parametrize(
    ("views", "more"),
    [
        ("dense", ""),
        ("dense", "judged"),
        ("dense", '[serving]\nscore = "raw"'),
        ("dense", '[serving]\npsd = "off"'),
        ("dense", '[learner]\nalgorithm = "dissim-oasis"\n[serving]\nscore = "raw"'),
        ("dense", '[learner]\nsymmetric = "online"'),
        ("several", ""),
        ("several", "judged"),
        ("several", '[learner]\nalgorithm = "soml-tg"'),
        ("several", '[learner]\nalgorithm = "omks-maps"'),
        ("sparse", ""),
        ("sparse", '[learner]\nalgorithm = "soml-tg"'),
        ("mixed", ""),
        ("mixed", "judged"),
    ],
    ids=str,
)
def test_brute_force_over_the_files_gives_the_served_scores(tmp_path: Path, views: str, more: str) -> None:
    shop = Shop(tmp_path, VIEWS[views], more.removeprefix("judged"))
    if more == "judged":
        shop.choose()
    documents, told = shop.vectors("d.npy")
    queries, _ = shop.vectors("q.npy", "--side", "queries")
    scores = shop.scores()
    if told["similarity"] == "inner_product":
        same_lists(queries @ documents.T, scores)
    else:
        same_lists(-np.square(queries[:, None] - documents[None]).sum(axis=2), scores)
    assert told["form"] == ("power 1.5 with 0.2 of your own ranking" if more == "judged" else "")
    assert (told["given_way"] > 0) == (more == "judged")
    assert told["symmetric"] == bool(np.abs(queries - documents).max() < 1e-6)
    assert told["ids"] == [f"o{n}" for n in range(OBJECTS)]
    assert (told["rows"], told["dim"]) == documents.shape


@pytest.mark.parametrize(("views", "names"), [("dense", ("v.parquet", "v.safetensors")), ("sparse", ())])
def test_every_format_holds_the_same_vectors(tmp_path: Path, views: str, names: tuple[str, ...]) -> None:
    more = '[learner]\nalgorithm = "soml-tg"' if views == "sparse" else ""
    shop = Shop(tmp_path, VIEWS[views], more)
    wanted, _ = shop.vectors("v.npy")
    for name in names or ("v.parquet", "v.npz", "v.safetensors"):
        np.testing.assert_array_equal(shop.vectors(name)[0], wanted)
    assert shop.export("v.onnx")[0] == (EX_OK if names else EX_USAGE), "models read dense rows"


def test_version_0_is_exported_as_the_users_own_ranking(tmp_path: Path) -> None:
    shop = Shop(tmp_path, VIEWS["dense"])
    out = shop.folder / "zero.npy"
    assert main(["models", "export", "0", "--out", str(out), "--config", str(shop.file)]) == EX_OK
    rows = given()["text"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    same_lists(read(out) @ read(out).T, rows @ rows.T)


def test_the_folded_matrix_ranks_given_vectors_up_to_their_norms(tmp_path: Path) -> None:
    shop = Shop(tmp_path, VIEWS["several"])
    shop.choose()
    code, out = shop.export("adapter.safetensors", "--form", "folded")
    assert code == EX_OK
    weight, told = load_file(out)["linear.weight"], json.loads(Path(f"{out}.json").read_text())
    assert told["views"] == {"text": [0, 8, True], "shape": [8, 5, True]}
    assert not told["bias"]
    rows = given()
    held = np.hstack(
        [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (rows["text"], rows["shape"])]
    )
    folded, form = held @ weight, shop.served
    assert isinstance(form, BackoffForm)
    config = load_config(shop.file)
    objects = catalog_objects(config, shop.versions, shop.newest().number)
    assert objects is not None
    familiar = np.flatnonzero(form.known(objects.mapped) >= form.familiar)
    assert len(familiar) > 3
    found = folded[familiar] @ held.T
    norms = np.sqrt(np.einsum("nd,nd->n", held @ weight, held))  # rescored with the normaliser
    same_lists(found / norms / norms[familiar, None], shop.scores()[familiar])


@pytest.mark.parametrize(
    ("weights", "more", "text"),
    [
        ({"text": 1.0}, "judged", ""),
        ({"text": 1.0, "shape": 2.5}, "judged", ""),
        ({"text": 1.0}, f"judged{BOTH}", ""),
        ({"text": 1.0, "shape": 2.5}, "", ""),
        ({"text": 1.0, "shape": 2.5}, '[learner]\nalgorithm = "omks-maps"', ""),
        ({"text": 1.0}, "", 'map = "whiten"'),
    ],
    ids=str,
)
def test_a_model_gives_the_same_vectors_from_given_ones(
    tmp_path: Path, weights: dict[str, float], more: str, text: str
) -> None:
    shop = Shop(tmp_path, weights, more.removeprefix("judged"), "" if text else "cosine", text)
    if more.startswith("judged"):
        shop.choose()
    for side in ("documents", "queries"):
        wanted, told = shop.vectors(f"{side}.npy", "--side", side)
        found, about = model_of(shop, f"{side}.onnx", "--side", side)
        np.testing.assert_allclose(found, wanted, atol=2e-5)
        assert (about["side"], about["dim"], about["symmetric"]) == (side, told["dim"], told["symmetric"])
    code, adapter = shop.export("adapter.safetensors", "--form", "folded")
    assert code == EX_OK
    layer, views = load_file(adapter), json.loads(Path(f"{adapter}.json").read_text())["views"]
    held = []
    for name, (_, _, unit) in views.items():
        rows = given()[name].astype(np.float32)
        held.append(rows / np.linalg.norm(rows, axis=1, keepdims=True) if unit else rows)
    folded = np.hstack(held) @ layer["linear.weight"].T + layer.get("linear.bias", np.float32(0))
    assert ("linear.bias" in layer) == bool(text)
    found, _ = model_of(shop, "folded.onnx", "--form", "folded")
    np.testing.assert_allclose(found, folded, atol=1e-4 * np.abs(folded).max())


def model_of(shop: Shop, name: str, *words: str) -> tuple[np.ndarray, dict[str, Any]]:
    """What the model of a file gives for the given vectors, and what is said of it."""
    import onnxruntime

    code, out = shop.export(name, *words)
    assert code == EX_OK
    about = json.loads(Path(f"{out}.json").read_text())
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(out), settings)
    (vectors,) = session.run(["vector"], {view: given()[view].astype(np.float32) for view in about["inputs"]})
    return vectors, about


def test_a_model_without_the_package_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, VIEWS["dense"])
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert shop.export("v.onnx")[0] == EX_UNAVAILABLE
    assert "pip install 'tripletd[onnx]'" in capsys.readouterr().err


def test_what_cannot_be_written_is_refused_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path, VIEWS["dense"])
    for words, said in (
        (("v.hdf",), "no format has this ending"),
        (("v.npz",), "end it in .npy"),
        (("f.parquet", "--form", "folded"), "end it in .safetensors or .npy"),
        (("v.npy", "--factor", "A.npy"), "--out or --factor"),
        (("v.npy", "--key", "k"), "leave --key out"),
    ):
        code, out = shop.export(*words)
        assert code == EX_USAGE, words
        assert said in capsys.readouterr().err
        assert not out.exists()
    assert shop.export("v.npy")[0] == EX_OK
    assert shop.export("v.npy")[0] == EX_CANTCREAT


class Tenants(Shop):
    """Lists of one tenant, who has a model of her own."""

    def learn(self, lists: int, seed: int = 1) -> None:
        draw, lines = np.random.default_rng(seed), []
        for number in range(lists):
            query, *shown = (f"o{n}" for n in draw.choice(OBJECTS, 6, replace=False))
            line = {"id": f"{seed}-{number}", "ts": int(1000 * time.time()), "q": query, "shown": shown}
            lines.append(json.dumps(line | {"clicked": [3], "key": "anna"}))
        (self.folder / "clicks.jsonl").write_text("\n".join(lines))
        for command in (["feed", str(self.folder / "clicks.jsonl")], ["learn", "--exit-when-caught-up"]):
            assert main([*command, "--config", str(self.file)]) == EX_OK


def test_the_model_of_a_key_is_exported_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Tenants(tmp_path, VIEWS["dense"], "[keys]\nslots = 4")
    assert shop.export("v.npy")[0] == EX_USAGE
    assert "name one with --key" in capsys.readouterr().err
    rows = given()["text"]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    nobody, told = shop.vectors("nobody.npy", "--key", "nobody")  # version 0 answers
    assert told["key"] == "nobody"
    same_lists(nobody @ nobody.T, rows @ rows.T)
    hers, _ = shop.vectors("anna.npy", "--key", "anna")
    keyed = shop.served
    assert isinstance(keyed, KeyedForm)
    model, objects = keyed.model_of("anna"), shop.objects()
    assert model is not None
    same_lists(hers @ hers.T, model.form().scores(objects, objects))
    assert np.abs(hers @ hers.T - rows @ rows.T).max() > 0.05
    with follow(shop.file) as followed:
        for mode in MODES:
            with pytest.raises(NoVectorsError, match="one model per key"):
                followed.fold(given()["text"].astype(np.float32), mode)


def test_what_is_no_inner_product_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop(tmp_path, VIEWS["dense"], '[learner]\nalgorithm = "omks"\nobjects = 20', similarity="")
    assert shop.export("v.npy")[0] == EX_USAGE
    assert "no inner product of finite vectors" in capsys.readouterr().err


@pytest.fixture
def role(tmp_path: Path) -> Iterator[RolePlace]:
    place = RolePlace(tmp_path)
    place.feed(60, seed=1)
    place.learn()
    yield place
    place.end()


def test_the_files_give_the_lists_of_a_running_server(role: RolePlace) -> None:
    out = role.folder / "vectors.npy"
    assert main(["models", "export", "latest", "--out", str(out), "--config", str(role.file)]) == EX_OK
    assert main(["models", "promote", "latest", "--config", str(role.file)]) == EX_OK
    vectors, told = read(out), json.loads(Path(f"{out}.json").read_text())
    server: Role = role.start("serve")
    until(lambda: server.get("/v1/similar?id=o3")[1].get("base") == told["version"], server.said)
    for asked in (3, 17):
        status, answer = server.get(f"/v1/similar?id=o{asked}&k=12")
        assert (status, answer["version"]) == (200, str(told["version"]))
        products = vectors @ vectors[asked]
        products[asked] = -np.inf  # an object is left out of its own answer
        same_hits(products, told["ids"], answer["results"])
    given = [{"id": "o3"}, {"x": role.rows[3].tolist()}, {"x": [1.0]}]
    for path, field, more in (("embed", "objects", {}), ("fold", "queries", {"mode": "embedded"})):
        status, made = post(server, f"/v1/{path}", {field: given, **more})
        assert (status, made["version"], made["similarity"]) == (
            200,
            str(told["version"]),
            told["similarity"],
        )
        by_id, by_vector, wrong = made["vectors"]
        np.testing.assert_allclose([by_id["vector"], by_vector["vector"]], vectors[[3, 3]], atol=1e-6)
        assert wrong["error"]["code"] == "wrong_dim"
        assert wrong["error"]["field"] == f"{field}[2].x"
    folded = post(server, "/v1/fold", {"queries": given[1:2], "mode": "folded"})[1]
    assert folded["views"] == [{"name": "x", "start": 0, "dim": 6, "unit": False}]
    held = role.rows
    found = held @ np.array(folded["vectors"][0]["vector"])  # the served scores, times each object's norm
    near = np.argsort(-found, kind="stable")[:20]
    asked = {"id": "o3", "k": 20, "filter": {"include": [told["ids"][row] for row in near]}}
    rescored = post(server, "/v1/similar", asked)[1]["results"]
    scores = {hit["id"]: hit["score"] for hit in rescored}
    norms = [found[row] / scores[f"o{row}"] for row in near if row != 3]
    assert min(norms) > 0
    again = post(server, "/v1/fold", {"queries": [{"x": role.rows[9].tolist()}], "mode": "folded"})[1]
    others = [(held @ np.array(again["vectors"][0]["vector"]))[row] for row in near if row != 3]
    exact = {
        hit["id"]: hit["score"] for hit in post(server, "/v1/similar", {**asked, "id": "o9"})[1]["results"]
    }
    for row, norm, other in zip([row for row in near if row != 3], norms, others, strict=True):
        assert row == 9 or other / norm == pytest.approx(exact[f"o{row}"], abs=1e-4)


@pytest.mark.parametrize(
    ("weights", "more"),
    [
        ({"text": 1.0, "shape": 2.5}, "judged"),
        ({"text": 1.0, "words": 0.4}, "judged"),
        ({"words": 1.0}, '[learner]\nalgorithm = "soml-tg"'),
        ({"text": 1.0, "shape": 2.5}, '[learner]\nalgorithm = "omks-maps"'),
    ],
    ids=str,
)
def test_served_lists_are_those_of_the_files(
    tmp_path: Path, weights: dict[str, float], more: str, roles: Roles
) -> None:
    shop = Shop(tmp_path, weights, more.removeprefix("judged"))
    if more == "judged":
        shop.choose()
    documents, told = shop.vectors("d.parquet")
    queries, _ = shop.vectors("q.parquet", "--side", "queries")
    assert (told["given_way"] > 0) == (more == "judged")
    assert main(["models", "promote", "latest", "--config", str(shop.file)]) == EX_OK
    server = roles.start("serve")
    until(lambda: server.get("/v1/similar?id=o3")[1].get("base") == told["version"], server.said)
    for asked in range(0, OBJECTS, 9):
        status, answer = server.get(f"/v1/similar?id=o{asked}&k=15")
        assert (status, answer["version"]) == (200, str(told["version"]))
        products = documents @ queries[asked]
        products[asked] = -np.inf
        same_hits(products, told["ids"], answer["results"])
    made = post(server, "/v1/fold", {"queries": [{"id": "o5"}], "mode": "embedded"})[1]["vectors"][0][
        "vector"
    ]
    if isinstance(made, dict):
        row = np.zeros(told["dim"])
        row[made["indices"]] = made["values"]
        made = row
    np.testing.assert_allclose(made, queries[5], atol=1e-5)


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    started = Roles(tmp_path)
    yield started
    started.end()


def same_hits(products: np.ndarray, ids: list[str], hits: list[dict[str, Any]]) -> None:
    """Whether these are the best, in their order but for what rounding ties, with these scores."""
    assert len(hits) == len({hit["id"] for hit in hits}) > 10
    scores = [hit["score"] for hit in hits]
    np.testing.assert_allclose(products[[ids.index(hit["id"]) for hit in hits]], scores, atol=2e-5)
    np.testing.assert_allclose(np.sort(products)[::-1][: len(hits)], scores, atol=2e-5)


def post(role: Role, path: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(role.url() + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.status, json.loads(answer.read())
