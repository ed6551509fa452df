"""Whether an upstream still gives the vectors that it once gave: one text is embedded now and then, and
compared with its first vector, which is kept. Another model of the same size shows in nothing else."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from pydantic_core import from_json, to_json

from daemon.config import Config
from daemon.config.objects import is_object_address
from daemon.config.services import EmbeddingsConfig
from daemon.runtime.watchdog import BackgroundThread
from daemon.serve.http.texts import vectors_of
from streams.durable import replacing
from streams.foreign_http import BlockingClient, ForeignError, ForeignServer

log = structlog.get_logger("tripletd.embeddings")

TEXT = "a red dress for a party, size 38"
LEAST_COSINE = 0.98
"""Rounding and quantizing of one model stay above it; two models are far below."""
EVERY_S = 600.0
FILE = "embeddings.json"


class ModelProbe:
    """Asks for the vector of `TEXT`. models: their names there. file: where first vectors are kept, None to
    keep them in memory. Whoever removes it begins again."""

    def __init__(self, server: ForeignServer, models: Sequence[str], file: Path | None) -> None:
        self._server, self.models, self._file = server, tuple(dict.fromkeys(models)), file
        self._unwritten: dict[str, Any] = {}

    def compare(self, model: str, *, keep: bool = True) -> tuple[float, int]:
        """The cosine to the model's first vector, 0 for one of another size, and how many numbers it has now.
        keep: whether the vector of a model that was not asked before is kept. Raises ForeignError."""
        with closing(BlockingClient(self._server)) as client:
            answer = client.ask("POST", "/embeddings", to_json({"model": model, "input": [TEXT]}))
        if answer.status != 200:
            raise ForeignError("status", f"it answers {answer.status} for the model {model}: {answer.text}")
        now = vectors_of(answer, 1)[0][0].astype(np.float64)
        kept, key = self._kept(), f"{self._server.url} {model}"
        try:
            first = np.array(kept[key], np.float64)
        except (KeyError, TypeError, ValueError):
            if keep:
                self._keep(kept | {key: now.tolist()})
            return 1.0, len(now)
        if first.shape != now.shape:
            return 0.0, len(now)
        lengths = float(np.linalg.norm(first) * np.linalg.norm(now))
        return float(first @ now) / max(lengths, 1e-300), len(now)

    def reach(self) -> None:
        """See whether the upstream answers at all, without a model's name. Raises ForeignError."""
        with closing(BlockingClient(self._server)) as client:
            answer = client.ask("GET", "/models")
        if answer.status in (401, 403):
            raise ForeignError("credentials", f"it answers {answer.status}: {answer.text}")

    def _kept(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, TypeError):
            return dict(from_json(self._file.read_bytes())) if self._file else self._unwritten
        return self._unwritten

    def _keep(self, vectors: dict[str, Any]) -> None:
        self._unwritten = vectors
        if self._file is not None:
            with suppress(OSError):  # where serve may not write, it remembers until it ends
                with replacing(self._file) as file:
                    file.write(to_json(vectors))
                self._unwritten = {}


def upstream_of(given: EmbeddingsConfig, longest_s: float = math.inf) -> ForeignServer:
    """What is asked for vectors of texts. Raises UserError where its key is not there."""
    key = given.key()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout_s = min(given.timeout, longest_s)
    return ForeignServer(given.upstream, headers, timeout_s, given.connections, given.answer)


def probe_of(config: Config, server: ForeignServer) -> ModelProbe:
    """What compares the models of a configuration: first vectors are in the folder of checkpoints."""
    path = config.checkpoints.path
    file = None if is_object_address(path) else Path(path, FILE)
    return ModelProbe(server, list(config.embeddings.models.values()), file)


class ModelWatch(BackgroundThread):
    """Probes at the start and every `EVERY_S`. measured: called with a model and its cosine."""

    name, end_s = "embeddings-probe", 0.5

    def __init__(self, probe: ModelProbe, measured: Callable[[str, float], None]) -> None:
        super().__init__()
        self._probe, self._measured = probe, measured
        self._ending = threading.Event()

    def stop(self) -> None:
        """Ask nothing more."""
        self._ending.set()

    def look(self) -> None:
        """Probe once, and have what is wrong in the log."""
        for model in self._probe.models:
            try:
                cosine, size = self._probe.compare(model)
            except ForeignError as error:
                what = "the model of the upstream was not compared"
                log.warning(what, model=model, reason=error.reason, why=str(error))
                continue
            self._measured(model, cosine)
            if cosine < LEAST_COSINE:
                log.warning(
                    f"the upstream gives other vectors for {model} than before: embed the objects by it as"
                    f" well, and remove {FILE} in the folder of checkpoints",
                    cosine=round(cosine, 4),
                    numbers=size,
                )

    def _run(self) -> None:
        self.look()
        while not self._ending.wait(EVERY_S):
            self.look()
