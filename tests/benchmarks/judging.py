"""`judge_seconds_10` and `judge_seconds_40`: processor time in which `validate` judges a version by clicks.

The validator itself, on a log: it loads the version, makes its form, reads its measures from the newest 2,000
held-out lists, and bets on those and on 2,000 that were learned from since the version before, with the two
default arms in their shares and with the form. Users prefer what one arm knows, which so leads. Lists of 10
are the first of the user's own ranking of 5,000 objects of 384 columns; lists of 40 are drawn from the
catalog, as links of a page are, with 256 columns.
`products` in the detail: how many times the scores of the catalog against itself could be made meanwhile.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.manifest import VersionMeta
from daemon.config import Config, load_config
from daemon.learn import start as learning
from daemon.learn.resume.origin import LearnOptions
from daemon.telemetry import ValidateMetrics
from daemon.validate.inputs import ValidatorInputs, open_inputs
from daemon.validate.validator import Validator
from learners.block import DenseBlock, Float32s
from streams.codec import encode_impression
from streams.event import Impression, ObjectRef
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.benchmarks.dense_step import unit_rows
from tests.benchmarks.harness import Figure

FOLDER = Path("bench-run") / "judging"
OBJECTS, LISTS = 5_000, 2_000
VERSIONS = 5
"""Judged and timed, behind one that is not."""
LEARNED = 0.05
"""Size of what is random in a matrix, beside the identity: about what some thousand steps leave."""
LIKED, MORE, SHARP = 8, 3.0, 20.0
"""Columns of the mapped space that users look at, how many times as much as at the others, and by how much
less they click what is less similar so."""


@dataclass(frozen=True)
class Setting:
    """dim: columns of an object. length: objects of a list. own: whether the user's own ranking made it."""

    dim: int
    length: int
    own: bool


SETTINGS = Setting(384, 10, True), Setting(256, 40, False)


def figures() -> list[Figure]:
    """Both."""
    return [_figure(setting) for setting in SETTINGS]


def _figure(setting: Setting) -> Figure:
    with ExitStack() as stack:
        took = list(JudgedShop(stack, setting).judge(VERSIONS))
    product = statistics.median(_product_seconds(setting.dim) for _ in range(5))
    lists = "of your own ranking" if setting.own else "drawn"
    against = f"a second; {LISTS:,} lists of {setting.length} {lists} held out, and as many learned from"
    middle = statistics.median(took)
    spread = {"least": round(min(took), 3), "most": round(max(took), 3), "products": round(middle / product)}
    name = f"judge_seconds_{setting.length}"
    return Figure(name, round(middle, 3), "s", f"{against}; d = {setting.dim}", len(took), spread)


def _product_seconds(dim: int) -> float:
    rows = unit_rows(dim, OBJECTS, 0)
    began = time.process_time()
    rows @ rows.T
    return time.process_time() - began


class JudgedShop:
    """Lists that come on a log, and versions with arms that are judged on them, in a folder that is removed
    with `stack`."""

    def __init__(self, stack: ExitStack, setting: Setting) -> None:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        stack.callback(shutil.rmtree, FOLDER, ignore_errors=True)
        self._setting, self._rng, self._serial = setting, np.random.default_rng(5), 0
        self._rows: Float32s = unit_rows(setting.dim, OBJECTS, 3)
        self._ids = [f"o{row}" for row in range(OBJECTS)]
        columns: dict[str, Any] = {"ids": np.array(self._ids), "x": self._rows}
        np.savez(FOLDER / "objects.npz", **columns)
        self._address = parse_address(f"log:{FOLDER / 'clicks.log'}")
        for topic in (self._address, self._address.holdout):
            ensure_topic(topic, 1)
        config = self._config()
        assert learning.run(config, LearnOptions(exit_when_caught_up=True)) == 0
        self._inputs: ValidatorInputs = open_inputs(stack, config, ValidateMetrics())
        self._validator, self._versions = Validator(self._inputs), self._inputs.versions
        self._first, self._epoch = self._versions.load(0), self._versions.claim()
        self._inputs.candidates.open(0)
        objects = self._inputs.candidates.objects
        assert objects.fitted.own is not None
        assert isinstance(objects.catalog, DenseBlock)
        self._mapped = objects.catalog.values * np.sqrt(objects.fitted.own.metric)
        self._mapped /= np.linalg.norm(self._mapped, axis=1, keepdims=True)
        self._liked = np.ones(setting.dim, np.float32)
        self._liked[:LIKED] += MORE

    def judge(self, versions: int) -> Iterator[float]:
        """Seconds that each of these takes; one goes before them."""
        for number in range(versions + 1):
            self._send()
            self._publish()
            seconds = self._judged()
            if number:
                yield seconds

    def _config(self) -> Config:
        settings = {
            "stream.address": str(self._address),
            "space.views.x.kind": "dense",
            "space.views.x.dim": self._setting.dim,
            "catalog.path": str(FOLDER / "objects.npz"),
            "checkpoints.path": str(FOLDER / "checkpoints"),
            "http.learn_port": 0,
            "validate.drift": "off",
        }
        return load_config(None, settings, {})

    def _send(self) -> None:
        lists = ((self._list(False), self._list(True)) for _ in range(LISTS))
        sink = open_sink(self._address.holdout)
        sink.send([OutRecord(encode_impression(one)) for one in chain.from_iterable(lists)])
        sink.close()

    def _list(self, trained: bool) -> Impression:
        """Of a random query, with a click by chance on what users like."""
        self._serial += 1
        query = int(self._rng.integers(OBJECTS))
        if self._setting.own:
            scores = self._rows @ self._rows[query]
            shown = np.argsort(-scores)[1 : self._setting.length + 1]
        else:
            shown = self._rng.choice(OBJECTS - 1, self._setting.length, replace=False)
            shown = shown + (shown >= query)
        likes = (self._mapped[shown] * self._liked) @ self._mapped[query]
        click = int(np.argmax(SHARP * likes + self._rng.gumbel(size=len(shown))))
        refs = tuple(ObjectRef(self._ids[row]) for row in shown.tolist())
        about: tuple[str, int] = f"i{self._serial}", 1000 * self._serial
        return Impression(*about, ObjectRef(self._ids[query]), refs, (click,), trained=trained)

    def _publish(self) -> None:
        """A version like the first, with something learned in each of its matrices."""
        arrays = dict(self._first.arrays)
        for name, one in self._first.arrays.items():
            if one.ndim == 2 and name.rsplit(".", 1)[-1] in ("W", "A"):
                chance = self._rng.standard_normal(one.shape) * (LEARNED / np.sqrt(len(one)))
                arrays[name] = np.asarray(one + chance, np.float32)
        knows = arrays["arms.all.W"]
        np.fill_diagonal(knows, knows.diagonal() + self._liked - 1)
        named = {one.name: getattr(self._first.manifest, one.name) for one in fields(VersionMeta)}
        self._versions.publish(
            self._epoch, arrays, VersionMeta(**{**named, "watermark": 1000 * self._serial})
        )

    def _judged(self) -> float:
        """Processor seconds until the newest version is judged."""
        newest, seconds = max(self._versions.versions()), 0.0
        while not any(one.kind == "KEEP" and one.version == newest for one in self._inputs.ledger.entries()):
            self._validator.read(0.0, _never, lambda: None)
            began = time.process_time()
            self._validator.judge_next()
            seconds += time.process_time() - began
        return seconds


def _never(seconds: float, error: Exception) -> bool:
    raise error
