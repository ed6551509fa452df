"""A text model in this process gives what the same model gives in NumPy, from a folder as
sentence-transformers writes it; what would give other vectors is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.serve import text_model
from daemon.serve.text_model import TextModel, Tokens
from tests.harness.text_model import DIM, HEADS, LAYERS, tiny_weights, tokens_of, write_folder
from tests.quality.bench.minilm import Bert

TEXTS = (
    "red dress",
    "A RED dress for the party",
    "lamp",
    "a very very long night for the green lamp and the blue shoe of the red party",
    "blue unknownword shoe",
)


def by_hand(texts: Sequence[str], pooling: str, unit: bool, longest: int = 12) -> np.ndarray:
    """The vectors of texts one by one, in NumPy."""
    bert, found = Bert(tiny_weights(), LAYERS, HEADS), []
    for text in texts:
        (rows,), _ = bert.vectors([tokens_of(text, longest)])
        one = rows.mean(axis=0) if pooling == "mean" else rows[0]
        found.append(one / np.linalg.norm(one) if unit else one)
    return np.array(found)


def embedded(model: TextModel, texts: Sequence[str], side: Any = "query") -> np.ndarray:
    """The vectors of texts, batch by batch."""
    tokens, found = model.tokens(texts, side), np.full((len(texts), model.dim), np.nan)
    for rows in tokens.batches():
        found[rows] = model.embed(tokens, rows)
    return found


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("unit", [True, False])
def test_vectors_are_those_of_numpy(tmp_path: Path, pooling: str, unit: bool) -> None:
    model = TextModel.open(write_folder(tmp_path / "tiny", pooling=pooling, unit=unit), 1)
    assert (model.name, model.dim) == ("tiny", DIM)
    wanted = by_hand(TEXTS, pooling, unit)
    np.testing.assert_allclose(embedded(model, TEXTS), wanted, atol=2e-5)
    assert np.abs(np.linalg.norm(wanted, axis=1) - 1).max() > 0.1 or unit
    assert len(np.unique(wanted.round(3), axis=0)) == len(TEXTS)


def test_texts_are_cut_at_the_models_length(tmp_path: Path) -> None:
    model = TextModel.open(write_folder(tmp_path / "tiny", longest=6), 1)
    tokens = model.tokens(TEXTS, "doc")
    assert [len(one) for one in tokens.ids] == [4, 6, 3, 6, 5]
    np.testing.assert_allclose(embedded(model, TEXTS), by_hand(TEXTS, "mean", True, longest=6), atol=2e-5)
    assert tokens.total == 24


def test_a_length_may_be_said_elsewhere(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    (folder / "sentence_bert_config.json").unlink()
    assert TextModel.open(folder, 1).layout.longest == 32
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 9}')
    assert TextModel.open(folder, 1).layout.longest == 9
    (folder / "config.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    with pytest.raises(UserError, match="nowhere how many tokens"):
        TextModel.open(folder, 1)


def test_prompts_stand_before_texts_of_their_side(tmp_path: Path) -> None:
    model = TextModel.open(write_folder(tmp_path / "tiny", prompts={"query": "for the ", "passage": "a "}), 1)
    for side, before in (("query", "for the "), ("doc", "a ")):
        wanted = by_hand([before + one for one in TEXTS[:3]], "mean", True)
        np.testing.assert_allclose(embedded(model, TEXTS[:3], side), wanted, atol=2e-5)


def test_the_other_layout_and_its_names_are_read_too(tmp_path: Path) -> None:
    """The encoder in `onnx`, two inputs, pooling by one word, modules by their new names."""
    folder = write_folder(
        tmp_path / "tiny", inputs=("input_ids", "attention_mask"), output="token_embeddings"
    )
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    (folder / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 8, "pooling_mode": "cls"}')
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    found = embedded(TextModel.open(folder, 1), TEXTS)
    np.testing.assert_allclose(found, by_hand(TEXTS, "cls", True), atol=2e-5)


def test_batches_are_bounded_and_of_like_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_model, "BATCH_TOKENS", 20)
    monkeypatch.setattr(text_model, "MOST_TEXTS", 3)
    lengths = [9, 2, 2, 30, 2, 2, 9, 9]
    ids = [[0] * length for length in lengths]
    found = Tokens(ids, ids).batches()
    assert found == [[1, 2, 4], [5, 0], [6, 7], [3]]
    assert sorted(row for rows in found for row in rows) == [*range(len(lengths))]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("model.onnx", None, "has neither model.onnx nor onnx/model.onnx"),
        ("model.onnx", "no model", "model.onnx cannot be used"),
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be used"),
        ("modules.json", None, "has no modules.json"),
        ("modules.json", "{", "modules.json cannot be read"),
        ("modules.json", "[1]", "no list of modules"),
        ("modules.json", '[{"type": "a.Transformer", "path": ""}]', "has Transformer; known is"),
        ("1_Pooling/config.json", None, "has no 1_Pooling/config.json"),
        ("1_Pooling/config.json", '{"pooling_mode_lasttoken": true}', "asks for pooling_mode_lasttoken"),
        ("1_Pooling/config.json", '{"pooling_mode": "max"}', "asks for max; mean and cls are known"),
        ("1_Pooling/config.json", '{"pooling_mode": "mean", "include_prompt": false}', "leaves prompts out"),
    ],
)
def test_what_is_missing_or_other_is_refused(
    tmp_path: Path, file: str, content: str | None, said: str
) -> None:
    folder = write_folder(tmp_path / "tiny")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(UserError, match=said) as refused:
        TextModel.open(folder, 1)
    assert refused.value.code == EX_CONFIG
    assert str(folder) in refused.value.message


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"inputs": ("input_ids", "attention_mask", "pixels")}, "asks for pixels"),
        ({"output": "sentence_embedding"}, "none of its outputs is token_embeddings or last_hidden_state"),
    ],
)
def test_an_encoder_of_another_kind_is_refused(tmp_path: Path, how: dict[str, Any], said: str) -> None:
    folder = write_folder(tmp_path / "tiny", **how)
    with pytest.raises(UserError, match=said):
        TextModel.open(folder, 1)


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_without_a_package_it_says_what_to_install(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "tiny")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"needs the package {package}") as refused:
        TextModel.open(folder, 1)
    assert (refused.value.code, refused.value.remedy) == (EX_UNAVAILABLE, "pip install 'tripletd[local]'")
