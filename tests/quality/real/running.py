"""The product itself on lists: `tripletd feed`, `learn` and `validate` with default settings, in a folder.

Versions are written after the numbers of lists of `tests.quality.bench.product`, each judged before the next
lists are fed. A STOP of the validator is lifted by `tripletd resume`. What answers is opened by the product's
own code, in the form that `validate` chose.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from checkpoints.entries import LATEST, STABLE, resolve
from daemon.catalogs import learner_catalog
from daemon.config import load_config
from daemon.validate.evaluator import CandidateCache
from daemon.versions.order import answering
from daemon.versions.storage import Checkpoints, open_store
from tests.harness import forked
from tests.quality.bench.arms import reordered
from tests.quality.bench.cells import YOURS
from tests.quality.bench.product import VERSIONS
from tests.quality.bench.retrieval import Scores
from tests.quality.bench.sets import Floats, Ints
from tests.quality.real.lists import RealSet

SETTINGS, OBJECTS, PART, VERSIONS_AT = "tripletd.toml", "objects.npz", "lists.jsonl", "checkpoints"
NOT_BY_TIME = ("--set", "checkpoints.every=1d", "--set", "checkpoints.every_events=0")
"""Versions are written at numbers of lists, at which `learn` ends, and not at times."""


def settings_text(data: RealSet) -> str:
    """What has to be said of a set, and no more: everything else is as by default."""
    lines = ["[stream]", 'address = "log:clicks.log"', "[catalog]", f'path = "{OBJECTS}"']
    for name, view in data.views.items():
        lines += [f"[space.views.{name}]", 'kind = "dense"', f"dim = {view.shape[1]}"]
    return "\n".join([*lines, ""])


def schedule(lists: int, wanted: Sequence[int]) -> list[int]:
    """After how many lists versions are written."""
    return sorted({count for count in (*VERSIONS, *wanted) if count <= lists} | {lists})


@dataclass(frozen=True)
class AnsweringVersion:
    """A version as it answers. description: its number and form in words. scores: by which it orders lists
    that are given, searching: by which it finds objects of the catalog."""

    number: int
    description: str
    scores: Scores
    searching: Scores


class DaemonRun:
    """The product in a folder, which is emptied first; `lists` of the set's learned part are in it. stopped:
    after how many lists the validator gave a STOP."""

    def __init__(self, data: RealSet, folder: Path) -> None:
        self._data, self._folder, self.lists = data, folder, 0
        self.stopped: list[int] = []
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        data.save_objects(folder / OBJECTS)
        (folder / SETTINGS).write_text(settings_text(data))
        self._open: CandidateCache | None = None

    def go_on(self, count: int) -> None:
        """Feed lists up to that number, learn and judge a version."""
        part = self._data.learned.part(self.lists, count)
        with (self._folder / PART).open("w") as file:
            file.writelines(part.lines(self._data.ids, self.lists))
        self._run("feed", PART)
        start = () if self.lists else ("--start", "earliest")
        self._run("learn", *start, "--exit-when-caught-up", "--set", "http.learn_port=0", *NOT_BY_TIME)
        self._run("validate", "--exit-when-caught-up", "--set", "http.validate_port=0")
        self.lists = count
        halts = [entry.kind for entry in self._store.ledger.entries() if entry.kind in ("STOP", "RESUME")]
        if halts[-1:] == ["STOP"]:
            self.stopped.append(count)
            self._run("resume")

    def served(self) -> AnsweringVersion:
        """What `stable` answers with."""
        return self._answering(STABLE)

    def newest(self) -> AnsweringVersion:
        """The newest version, promoted or not."""
        return self._answering(LATEST)

    @property
    def _store(self) -> Checkpoints:
        return open_store(self._folder / VERSIONS_AT)

    def _answering(self, alias: str) -> AnsweringVersion:
        store = self._store
        number = resolve(alias, store.versions.versions(), store.ledger.entries())
        assert number is not None
        if self._open is None:
            config = load_config(self._folder / SETTINGS)
            catalog = learner_catalog(config, lambda _: None)
            self._open = CandidateCache(
                store.versions, config.space_spec(), catalog, config.serving, keep_forms=False
            )
        self._open.keep()
        version = self._open.open(number)
        form = f": {version.choice.told}" if version.choice is not None else ""
        scores = searching = version.scorer.within_catalog
        how = answering(store.ledger.entries(), number)
        if number and how.order is not None and version.given is not None:
            arm, own = version.arms[how.order.arm].within_catalog, version.given.within_catalog
            scores = partial(_mixed, arm, own, how.order.own_share)
            form = f"{form}; lists by {how.order.description}"
            if not how.reach:
                searching = partial(_reordered, own, scores, how.order.top)
                form = f": order alone, by {how.order.description}"
        description = f"version {number}{form}" if number else YOURS
        return AnsweringVersion(number, description, scores, searching)

    def _run(self, *words: str) -> None:
        command = [sys.executable, "-m", "daemon", *words]
        done = forked.run(command, cwd=self._folder, capture_output=True, text=True)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


def _mixed(arm: Scores, own: Scores, share: float, rows: Ints) -> Floats:
    scores: Floats = arm(rows) + np.float32(share) * own(rows)
    return scores


def _reordered(own: Scores, order: Scores, top: int, rows: Ints) -> Floats:
    return reordered(own(rows), order(rows), rows, top)
