"""The folder that LlamaIndex's linear adapter is loaded from, read by PyTorch's documented layout, without
it: what the layer gives for a query is what `/v1/fold` gives."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.client import follow
from daemon.exits import EX_CANTCREAT, EX_OK, EX_USAGE
from daemon.models.linear_adapter import write_state_dict
from tests.daemon.models.test_vectors import VIEWS, Shop, post
from tests.daemon.serve.test_role import Place as RolePlace
from tests.daemon.test_own_ranking import given
from tests.harness.waiting import until

ALLOWED = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "SETITEMS", "TUPLE", "EMPTY_TUPLE", "GLOBAL", "REDUCE",
    "BINPERSID", "BINUNICODE", "BININT", "NEWFALSE",
}  # fmt: skip
"""Opcodes that PyTorch's own restricted reader (`weights_only=True`) takes."""


class Reader(pickle.Unpickler):
    """Of `data.pkl`, with the three names that a state dict has and storages out of the ZIP."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{root}/data.pkl")))
        self.archive, self.root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch", "FloatStorage"): np.float32,
            ("collections", "OrderedDict"): OrderedDict,
        }
        return known[module, name]

    def persistent_load(self, given: Any) -> np.ndarray:
        word, kind, key, place, count = given
        assert (word, kind, place) == ("storage", np.float32, "cpu")
        order = {b"little": "<", b"big": ">"}[self.archive.read(f"{self.root}/byteorder")]
        numbers = np.frombuffer(self.archive.read(f"{self.root}/data/{key}"), f"{order}f4")
        assert len(numbers) == count
        return numbers

    def tensor(self, storage: np.ndarray, offset: int, size: Any, stride: Any, *rest: Any) -> np.ndarray:
        assert rest == (False, OrderedDict())
        steps = tuple(4 * one for one in stride)
        return np.lib.stride_tricks.as_strided(storage[offset:], size, steps)


def read(raw: io.BytesIO | Path) -> dict[str, np.ndarray]:
    """The arrays of a state dict."""
    with zipfile.ZipFile(raw) as archive:
        entries = archive.infolist()
        assert {one.compress_type for one in entries} == {zipfile.ZIP_STORED}, "mapped into memory"
        (root,) = {one.filename.split("/")[0] for one in entries}
        assert archive.read(f"{root}/version") == b"3\n"
        opcodes = {code.name for code, _, _ in pickletools.genops(archive.read(f"{root}/data.pkl"))}
        assert opcodes <= ALLOWED
        return Reader(archive, root).load()


def layer(folder: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Weight and bias, as `LinearLayer.load` makes them: the configuration goes to the layer's arguments."""
    config = json.loads((folder / "config.json").read_text())
    found = read(folder / "pytorch_model.bin")
    assert set(found) == {"linear.weight", "linear.bias"} if config["bias"] else {"linear.weight"}
    assert set(config) == {"in_features", "out_features", "bias"}
    weight = found["linear.weight"]
    assert weight.shape == (config["out_features"], config["in_features"])
    return weight, found.get("linear.bias")


def test_arrays_of_every_shape_come_back() -> None:
    draw = np.random.default_rng(0)
    given = {
        "linear.weight": draw.standard_normal((3, 300)).astype(np.float32),
        "turned": draw.standard_normal((5, 4)).astype(np.float32).T,
        "linear.bias": draw.standard_normal(3).astype(np.float32),
    }
    raws = [io.BytesIO(), io.BytesIO()]
    for raw in raws:
        write_state_dict(raw, given)
    assert raws[0].getvalue() == raws[1].getvalue()
    found = read(raws[0])
    assert list(found) == list(given)
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("text", ["", 'map = "whiten"'], ids=["unit", "shifted"])
def test_the_layer_folds_as_the_model_does(tmp_path: Path, text: str) -> None:
    shop = Shop(tmp_path, VIEWS["dense"], similarity="" if text else "cosine", text=text)
    code, folder = shop.export("adapter", "--form", "folded")
    assert code == EX_OK
    weight, bias = layer(folder)
    assert (bias is not None) == bool(text)
    about = json.loads(Path(f"{folder}.json").read_text())
    rows = given()["text"].astype(np.float32)
    if about["views"]["text"][2]:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    answered = rows @ weight.T + (0 if bias is None else bias)
    with follow(shop.file, alias="latest") as model:
        folded = model.fold(rows, "folded").rows
    same_queries(answered, np.asarray(folded), rows if bias is None else None)


def same_queries(answered: np.ndarray, folded: np.ndarray, rows: np.ndarray | None) -> None:
    """Whether the layer's answers have the directions of folded queries and, where the map shifts nothing,
    with the query's own norm, which `/v1/fold` divides by, their lengths."""
    unit, wanted = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (answered, folded))
    np.testing.assert_allclose(unit, wanted, atol=1e-5)
    assert np.abs(np.diff(unit, axis=0)).max() > 0.1, "queries differ"
    if rows is not None:
        norms = np.sqrt((rows * answered).sum(1, keepdims=True))
        np.testing.assert_allclose(answered / norms, folded, atol=1e-5)


def test_what_cannot_be_a_folder_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop(tmp_path, VIEWS["dense"])
    for name, words, code, said in (
        ("vectors", (), EX_USAGE, "no format has this ending"),
        ("adapter.bin", ("--form", "folded"), EX_USAGE, "a folder for LlamaIndex, without an ending"),
        ("no/adapter", ("--form", "folded"), EX_CANTCREAT, "cannot be made: No such file or directory"),
        ("adapter", ("--form", "folded"), EX_OK, ""),
        ("adapter", ("--form", "folded"), EX_CANTCREAT, "name another folder, or move it away"),
    ):
        assert shop.export(name, *words)[0] == code
        assert said in capsys.readouterr().err


@pytest.fixture
def role(tmp_path: Path) -> Iterator[RolePlace]:
    place = RolePlace(tmp_path)
    place.feed(60, seed=1)
    place.learn()
    yield place
    place.end()


def test_the_layer_gives_what_a_running_server_folds(role: RolePlace) -> None:
    folder, words = role.folder / "adapter", ["--config", str(role.file)]
    assert main(["models", "export", "latest", "--form", "folded", "--out", str(folder), *words]) == EX_OK
    assert main(["models", "promote", "latest", *words]) == EX_OK
    weight, bias = layer(folder)
    about = json.loads(Path(f"{folder}.json").read_text())
    server = role.start("serve")
    until(lambda: server.get("/v1/similar?id=o3")[1].get("base") == about["version"], server.said)
    asked = [{"x": role.rows[n].tolist()} for n in (3, 17)]
    told = post(server, "/v1/fold", {"queries": asked, "mode": "folded"})[1]
    assert told["version"] == str(about["version"])
    assert bias is None
    rows = role.rows[[3, 17]]
    same_queries(rows @ weight.T, np.array([one["vector"] for one in told["vectors"]]), rows)
