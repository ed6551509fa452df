"""A text model of the user's own in a folder, as sentence-transformers lays it out with its ONNX backend:
texts to vectors in this process.

    model.onnx, or onnx/model.onnx        the encoder: a vector for each token
    tokenizer.json                        its tokens
    modules.json, N_Pooling/config.json   how a text's vector is made of them, and whether it has unit length
    sentence_bert_config.json             how many tokens of a text count
    config.json, tokenizer_config.json    the same where that is missing; the id that fills rows up
    config_sentence_transformers.json     what is put before queries and before documents

Whatever of these would give other vectors than sentence-transformers does is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError

Pooling: TypeAlias = Literal["mean", "cls"]
Floats: TypeAlias = npt.NDArray[np.float32]

BATCH_TOKENS = 8_192
"""Tokens of one run of the encoder, filled-up ones included: it bounds what attention holds at once."""
MOST_TEXTS = 64
"""Texts of one run."""
_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLING: Mapping[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_PER_TOKEN = ("token_embeddings", "last_hidden_state")
"""The output that sentence-transformers takes."""
_LEAST = 1e-12
"""Of a length that is divided by."""
_REMEDY = (
    "export the model with sentence-transformers and its ONNX backend, or ask a server: embeddings.upstream"
)


@dataclass(frozen=True, slots=True)
class TextModelLayout:
    """What the files beside the encoder say. longest: tokens of a text that count. lower: whether texts are
    put into lower case first. filler: id of the token that fills rows up. query, document: put before texts.
    """

    encoder: Path
    pooling: Pooling
    unit: bool
    longest: int
    lower: bool
    filler: int
    query: str = ""
    document: str = ""

    @classmethod
    def read(cls, folder: Path) -> TextModelLayout:
        """Read it. Raises UserError: a file is missing or damaged, or says what is not done here."""
        encoders = [folder / name for name in ("model.onnx", "onnx/model.onnx")]
        encoder = next((one for one in encoders if one.is_file()), None)
        if encoder is None:
            raise _unusable(folder, "has neither model.onnx nor onnx/model.onnx")
        if not (folder / "tokenizer.json").is_file():
            raise _unusable(folder, "has no tokenizer.json")
        pooling, unit = _modules(folder)
        sentence, config, tokenizer, prompted = (
            _read(folder, name)
            for name in (
                "sentence_bert_config.json",
                "config.json",
                "tokenizer_config.json",
                "config_sentence_transformers.json",
            )
        )
        query, document = _prompts(folder, prompted)
        return cls(
            encoder,
            pooling,
            unit,
            _longest(folder, sentence, config, tokenizer),
            bool(sentence.get("do_lower_case")),
            int(config.get("pad_token_id") or 0),
            query,
            document,
        )


def _modules(folder: Path) -> tuple[Pooling, bool]:
    modules = _read(folder, "modules.json", needed=True)
    try:
        found = [(str(one["type"]).rpartition(".")[2], str(one["path"])) for one in modules]
    except (KeyError, TypeError):
        raise _unusable(folder, "modules.json is no list of modules") from None
    kinds = [kind for kind, _ in found]
    if kinds not in ([*_MODULES], [*_MODULES[:2]]):
        raise _unusable(folder, f"modules.json has {', '.join(kinds)}; known is {', '.join(_MODULES)}")
    name = f"{found[1][1]}/config.json"
    config = _read(folder, name, needed=True)
    if config.get("include_prompt") is False:
        raise _unusable(folder, f"{name} leaves prompts out of the mean")
    asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    modes = [_POOLING.get(key, key) for key in asked] or [str(config.get("pooling_mode"))]
    if modes == ["mean"]:
        return "mean", len(kinds) == len(_MODULES)
    if modes == ["cls"]:
        return "cls", len(kinds) == len(_MODULES)
    raise _unusable(folder, f"{name} asks for {', '.join(modes)}; mean and cls are known")


def _longest(folder: Path, sentence: Any, config: Any, tokenizer: Any) -> int:
    stated = sentence.get("max_seq_length")
    both = (config.get("max_position_embeddings"), tokenizer.get("model_max_length"))
    if not stated:
        stated = min((one for one in both if one), default=0)
    if not 1 <= stated < 1_000_000:  # tokenizers without a bound state 10^30
        raise _unusable(folder, "says nowhere how many tokens a text may have: sentence_bert_config.json")
    return int(stated)


def _prompts(folder: Path, config: Any) -> tuple[str, str]:
    """What is put before queries and before documents, as `encode_query` and `encode_document` do."""
    prompts = config.get("prompts") or {}
    default = prompts.get(config.get("default_prompt_name"), "")
    document = next((prompts[name] for name in _DOCUMENT_PROMPTS if name in prompts), default)
    return str(prompts.get("query", default)), str(document)


def _read(folder: Path, name: str, needed: bool = False) -> Any:
    """A JSON file, {} where it is not there. Raises UserError."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if needed:
            raise _unusable(folder, f"has no {name}") from None
        return {}
    except (OSError, ValueError) as error:
        raise _unusable(folder, f"{name} cannot be read: {error}") from None


def _unusable(folder: Path, why: str) -> UserError:
    return UserError(f"embeddings.folder {folder}: {why}", _REMEDY, EX_CONFIG)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of texts: ids and types of each, as long as they are. total: how many there are."""

    ids: Sequence[Sequence[int]]
    types: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def total(self) -> int:
        """How many there are in all texts."""
        return sum(map(len, self.ids))

    def batches(self) -> list[list[int]]:
        """The texts in pieces of like length, shortest first, none larger than `BATCH_TOKENS`, where not one
        text alone is, and `MOST_TEXTS`."""
        found: list[list[int]] = [[]]
        for row in sorted(range(len(self)), key=lambda row: len(self.ids[row])):
            full = len(found[-1]) == MOST_TEXTS
            if found[-1] and (full or (len(found[-1]) + 1) * len(self.ids[row]) > BATCH_TOKENS):
                found.append([])
            found[-1].append(row)
        return found


@dataclass(frozen=True, slots=True)
class TextModel:
    """An encoder that was opened. name: its folder's. dim: of its vectors. Any thread; `embed` uses as many
    threads as it was opened with, each time."""

    name: str
    dim: int
    layout: TextModelLayout = field(repr=False)
    _tokenizer: Any = field(repr=False)
    _session: Any = field(repr=False)

    @classmethod
    def open(cls, folder: Path, threads: int) -> TextModel:
        """Read the folder and try a text. Raises UserError: a package or file is missing or of no use."""
        layout = TextModelLayout.read(folder)
        tokenizer, session = _tokenizer(folder, layout), _session(folder, layout, threads)
        unknown = {one.name for one in session.get_inputs()} - {
            "input_ids",
            "attention_mask",
            "token_type_ids",
        }
        if unknown:
            raise _unusable(folder, f"the encoder asks for {', '.join(sorted(unknown))}, which is not known")
        opened = cls(folder.name, 0, layout, tokenizer, session)
        try:
            (tried,) = opened.embed(opened.tokens(["a text"], "query"), [0])
        except Exception as error:  # the runtime's errors have no class in common
            raise _unusable(folder, f"the encoder fails: {error}") from error
        return cls(folder.name, len(tried), layout, tokenizer, session)

    def tokens(self, texts: Sequence[str], side: Literal["query", "doc"]) -> Tokens:
        """Of each text, with what the model puts before texts of that side, cut at its length."""
        before = self.layout.query if side == "query" else self.layout.document
        given = [before + text for text in texts]
        made = [self._tokenizer.encode(one.lower() if self.layout.lower else one) for one in given]
        return Tokens([one.ids for one in made], [one.type_ids for one in made])

    def embed(self, tokens: Tokens, rows: Sequence[int]) -> Floats:
        """The vectors of these texts, float32 [rows, dim]; see `Tokens.batches`."""
        longest = max(1, *(len(tokens.ids[row]) for row in rows))
        ids = np.full((len(rows), longest), self.layout.filler, np.int64)
        types, seen = np.zeros_like(ids), np.zeros_like(ids)
        for place, row in enumerate(rows):
            count = len(tokens.ids[row])
            ids[place, :count], types[place, :count] = tokens.ids[row], tokens.types[row]
            seen[place, :count] = 1
        given = {"input_ids": ids, "attention_mask": seen, "token_type_ids": types}
        kinds = {"tensor(int32)": np.int32}
        asked = {
            one.name: given[one.name].astype(kinds.get(one.type, np.int64), copy=False)
            for one in self._session.get_inputs()
        }
        names = {one.name for one in self._session.get_outputs()}
        per_token = next((name for name in _PER_TOKEN if name in names), None)
        if per_token is None:
            raise ValueError(f"none of its outputs is {' or '.join(_PER_TOKEN)}")
        (found,) = self._session.run([per_token], asked)
        return _pooled(np.asarray(found, np.float32), seen, self.layout)


def _pooled(found: Floats, seen: npt.NDArray[np.int64], layout: TextModelLayout) -> Floats:
    """A text's vector out of those of its tokens, float32 [n, tokens, d]; seen: which count, [n, tokens]."""
    if layout.pooling == "cls":
        vectors = found[:, 0]
    else:
        counts = np.maximum(seen.sum(axis=1, keepdims=True), 1)
        vectors = np.einsum("ntd,nt->nd", found, seen.astype(np.float32)) / counts.astype(np.float32)
    if layout.unit:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, np.float32(_LEAST))
    return np.ascontiguousarray(vectors, np.float32)


def _tokenizer(folder: Path, layout: TextModelLayout) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _missing("tokenizers", error) from error
    try:
        made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # of no class of its own
        raise _unusable(folder, f"tokenizer.json cannot be used: {error}") from error
    made.no_padding()  # files often fix both, for somebody else's batches
    made.enable_truncation(layout.longest)
    return made


def _session(folder: Path, layout: TextModelLayout, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing("onnxruntime", error) from error
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 3
    # Threads of the runtime wait in a loop for what comes next, and would take the cores of the search.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(layout.encoder), settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # of classes without a common one
        raise _unusable(folder, f"{layout.encoder.name} cannot be used: {error}") from error


def _missing(package: str, error: ImportError) -> UserError:
    message = f"embeddings.folder needs the package {package}, which cannot be imported: {error}"
    return UserError(message, "pip install 'tripletd[local]'", EX_UNAVAILABLE)
