"""The results of a sweep: a file of JSON lines that only grows, durable line by line.

The first line says what is learned from and judged on; all that follow are of that. A line that a kill cut
off is taken away by the next run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from daemon.backfill.plan import Recipe, Unit, changed, differences, some
from daemon.exits import EX_DATAERR, EX_TEMPFAIL, UserError
from daemon.judging.samples import VersionScores
from streams.durable import is_locked, sync

RESULTS, LISTS = "results.jsonl", "lists.msgpack"
"""Of an --out folder."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class SweepBasis:
    """What is the same for every setting. recipe: with the settings of [feed] that say what is held out;
    units: what is read. judged: by name, whatever else a number depends on; lists: how many, digest: of their
    file."""

    recipe: Recipe
    units: tuple[Unit, ...]
    judged: Mapping[str, Any]
    lists: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        """As the first line has it."""
        return {
            "format": FORMAT,
            "recipe": asdict(self.recipe),
            "units": [asdict(one) | {"paths": list(one.paths)} for one in self.units],
            "judged": dict(self.judged),
            "lists": self.lists,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SweepBasis:
        """Inverse. Raises KeyError, TypeError or ValueError."""
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']!r}")
        units = tuple(Unit.read(one) for one in found["units"])
        lists, digest = int(found["lists"]), str(found["digest"])
        return cls(Recipe(**found["recipe"]), units, dict(found["judged"]), lists, digest)


def refuse_other(known: SweepBasis, recipe: Recipe, units: Sequence[Unit], judged: Mapping[str, Any]) -> None:
    """Raise UserError, naming what differs, where a folder's results are of something else."""
    found = differences(known.recipe, known.units, recipe, units)
    if differ := [*(found[1] if found else ()), *changed(known.judged, judged)]:
        remedy = "give the same files and options, or another folder with --out"
        raise UserError(f"the results there are of another sweep: {some(differ)}", remedy, EX_DATAERR)


@dataclass(frozen=True, slots=True)
class SettingResult:
    """What one setting came to. scored: see `Trial`; zero: what its version 0 scores; seconds: that its
    learner took, in the run that ended it."""

    scored: str
    name: str
    version: int
    hash: str
    folder: str
    records: int
    seconds: float
    scores: VersionScores
    zero: VersionScores

    def to_json(self) -> dict[str, Any]:
        """As a line has it."""
        plain = ("scored", "name", "version", "hash", "folder", "records", "seconds")
        said = {name: getattr(self, name) for name in plain}
        return said | {"scores": self.scores.to_json(), "zero": self.zero.to_json()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SettingResult:
        """Inverse. Raises KeyError, TypeError or ValueError."""
        plain = {name: value for name, value in found.items() if name not in ("scores", "zero")}
        scores, zero = (VersionScores.from_json(found[name]) for name in ("scores", "zero"))
        return cls(**plain, scores=scores, zero=zero)


class ResultsFile:
    """The file of a folder, held by one process at a time. basis: None in a new one. known: by `scored`."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / RESULTS
        self._file: IO[bytes] = stack.enter_context(self._path.open("a+b"))
        if not is_locked(self._file):
            remedy = "wait for it, or name another folder with --out"
            raise UserError(f"{folder}: another sweep writes there", remedy, EX_TEMPFAIL)
        self.basis: SweepBasis | None = None
        self.known: dict[str, SettingResult] = {}
        self._read()
        sync(folder)

    def begin(self, basis: SweepBasis) -> None:
        """Write the first line."""
        self.basis = basis
        self._append(basis.to_json())

    def add(self, result: SettingResult) -> None:
        """Write a result; durable when this returns."""
        self._append(result.to_json())
        self.known[result.scored] = result

    def _append(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                found = json.loads(line)
                if self.basis is None:
                    self.basis = SweepBasis.from_json(found)
                    continue
                result = SettingResult.from_json(found)
            except (KeyError, TypeError, ValueError) as error:
                message = f"{self._path}: line {number} cannot be read: {error!r}"
                remedy = "remove the line, or name another folder with --out"
                raise UserError(message, remedy, EX_DATAERR) from error
            self.known[result.scored] = result
