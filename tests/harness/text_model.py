"""Folders as sentence-transformers writes them with its ONNX backend: BERT with given weights as a real ONNX
model, its tokenizer, and the files that say how a text's vector is made.

`tests.quality.bench.minilm.Bert` is the same in NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
WORDS = ("a", "red", "blue", "dress", "for", "the", "party", "shoe", "lamp", "green", "very", "long", "night")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
DIM, HEADS, LAYERS, POSITIONS = 8, 2, 2, 32


def tiny_weights(dim: int = DIM, layers: int = LAYERS, seed: int = 0) -> dict[str, Floats]:
    """Of a small encoder with random weights."""
    draw = np.random.default_rng(seed)

    def some(*shape: int) -> Floats:
        return draw.normal(0, 0.5, shape).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": some(len(SPECIAL) + len(WORDS), dim),
        "embeddings.position_embeddings.weight": some(POSITIONS, dim),
        "embeddings.token_type_embeddings.weight": some(2, dim),
    }
    norms, linear = ["embeddings.LayerNorm"], {}
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        norms += [f"{at}.attention.output.LayerNorm", f"{at}.output.LayerNorm"]
        linear |= {f"{at}.attention.{one}": (dim, dim) for one in ("self.query", "self.key", "self.value")}
        linear |= {f"{at}.attention.output.dense": (dim, dim)}
        linear |= {f"{at}.intermediate.dense": (2 * dim, dim), f"{at}.output.dense": (dim, 2 * dim)}
    for name in norms:
        found |= {f"{name}.weight": 1 + some(dim), f"{name}.bias": some(dim)}
    for name, shape in linear.items():
        found |= {f"{name}.weight": some(*shape), f"{name}.bias": some(shape[0])}
    return found


def tiny_tokenizer() -> Any:
    """Of whole words in lower case; it pads and cuts to 4 tokens, as files do that were made for training."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    ids = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    made = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    made.enable_padding(length=4)
    made.enable_truncation(4)
    return made


def tokens_of(text: str, longest: int) -> list[int]:
    """What the tokenizer is to give for words that are apart."""
    ids = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    words = [ids.get(word, ids["[UNK]"]) for word in text.lower().split()]
    return [ids["[CLS]"], *words[: longest - 2], ids["[SEP]"]]


def write_folder(
    folder: Path,
    *,
    pooling: str = "mean",
    unit: bool = True,
    longest: int = 12,
    prompts: Mapping[str, str] | None = None,
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    output: str = "last_hidden_state",
    dim: int = DIM,
) -> Path:
    """A whole model, small."""
    folder.mkdir(parents=True)
    write_encoder(folder / "model.onnx", tiny_weights(dim), LAYERS, HEADS, inputs, output)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    kinds = ["Transformer", "Pooling", *(["Normalize"] if unit else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {
            "idx": place,
            "name": str(place),
            "path": paths[place],
            "type": f"sentence_transformers.models.{kind}",
        }
        for place, kind in enumerate(kinds)
    ]
    modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    flags = {f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()}
    write = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": dim, **flags},
        "sentence_bert_config.json": {"max_seq_length": longest, "do_lower_case": False},
        "config.json": {"pad_token_id": 0, "max_position_embeddings": POSITIONS},
        "config_sentence_transformers.json": {"prompts": prompts or {}, "default_prompt_name": None},
    }
    (folder / "1_Pooling").mkdir()
    for name, content in write.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def write_encoder(
    path: Path,
    weights: Mapping[str, Floats],
    layers: int,
    heads: int,
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    output: str = "last_hidden_state",
) -> None:
    """BERT with these weights, by their names in PyTorch's module."""
    import onnx
    from onnx import TensorProto, helper

    graph = _Encoder(weights, layers, heads, inputs)
    result = graph.encode()
    graph.nodes.append(helper.make_node("Identity", [result], [output]))
    dim = int(weights["embeddings.LayerNorm.weight"].shape[0])
    tokens = ["n", "tokens"]
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "bert",
            [helper.make_tensor_value_info(name, TensorProto.INT64, tokens) for name in inputs],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [*tokens, dim])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.checker.check_model(made)
    onnx.save(made, str(path))


class _Encoder:
    """Nodes and constants of the model."""

    def __init__(self, weights: Mapping[str, Floats], layers: int, heads: int, inputs: Sequence[str]) -> None:
        self._weights, self._layers, self._heads, self._inputs = weights, layers, heads, inputs
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._names = (f"t{number}" for number in count())

    def encode(self) -> str:
        """The vectors of tokens, [n, tokens, d]."""
        embedded = "embeddings"
        words = self.node("Gather", self.weight(f"{embedded}.word_embeddings.weight"), "input_ids")
        length = self.node("Shape", "input_ids", start=1, end=2)
        scalar = self.node("Squeeze", length, self.constant(np.array([0], np.int64)))
        zero, one = (self.constant(np.array(value, np.int64)) for value in (0, 1))
        positions = self.node("Range", zero, scalar, one)
        placed = self.node("Gather", self.weight(f"{embedded}.position_embeddings.weight"), positions)
        kinds = self.weight(f"{embedded}.token_type_embeddings.weight")
        kind = "token_type_ids" if "token_type_ids" in self._inputs else zero
        x = self.node("Add", self.node("Add", words, placed), self.node("Gather", kinds, kind))
        x = self.normed(x, f"{embedded}.LayerNorm")
        seen = self.node("Cast", "attention_mask", to=1)
        seen = self.node("Unsqueeze", seen, self.constant(np.array([1, 2], np.int64)))
        away = self.node("Sub", self.constant(np.float32(1)), seen)
        mask = self.node("Mul", away, self.constant(np.float32(-1e9)))
        for layer in range(self._layers):
            x = self.layer(x, mask, f"encoder.layer.{layer}")
        return x

    def layer(self, x: str, mask: str, name: str) -> str:
        """One layer: attention and a step for each token."""
        query, key, value = (
            self.split(self.linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        turned = self.node("Transpose", key, perm=[0, 1, 3, 2])
        width = len(self._weights[f"{name}.attention.self.query.bias"]) // self._heads
        scores = self.node(
            "Div", self.node("MatMul", query, turned), self.constant(np.float32(np.sqrt(width)))
        )
        shares = self.node("Softmax", self.node("Add", scores, mask), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", shares, value), perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.constant(np.array([0, 0, -1], np.int64)))
        attended = self.node("Add", x, self.linear(mixed, f"{name}.attention.output.dense"))
        x = self.normed(attended, f"{name}.attention.output.LayerNorm")
        inner = self.linear(x, f"{name}.intermediate.dense")
        error = self.node("Erf", self.node("Div", inner, self.constant(np.float32(np.sqrt(2)))))
        gate = self.node("Add", error, self.constant(np.float32(1)))
        half = self.node("Mul", self.node("Mul", inner, gate), self.constant(np.float32(0.5)))
        return self.normed(
            self.node("Add", x, self.linear(half, f"{name}.output.dense")), f"{name}.output.LayerNorm"
        )

    def split(self, rows: str) -> str:
        """[n, tokens, d] by heads, [n, heads, tokens, d / heads]."""
        shape = self.constant(np.array([0, 0, self._heads, -1], np.int64))
        return self.node("Transpose", self.node("Reshape", rows, shape), perm=[0, 2, 1, 3])

    def linear(self, rows: str, name: str) -> str:
        """A layer's rows."""
        turned = self.constant(np.ascontiguousarray(self._weights[f"{name}.weight"].T))
        return self.node("Add", self.node("MatMul", rows, turned), self.weight(f"{name}.bias"))

    def normed(self, rows: str, name: str) -> str:
        """Of mean 0 and variance 1, then scaled and moved."""
        both = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", rows, *both, axis=-1, epsilon=1e-12)

    def node(self, kind: str, *given: str, **options: Any) -> str:
        """The name of a result."""
        from onnx import helper

        name = next(self._names)
        self.nodes.append(helper.make_node(kind, given, [name], **options))
        return name

    def weight(self, name: str) -> str:
        """The name of a weight."""
        return self.constant(self._weights[name])

    def constant(self, value: Any) -> str:
        """The name of an array."""
        from onnx import numpy_helper

        name = next(self._names)
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name
