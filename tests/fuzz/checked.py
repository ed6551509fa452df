"""The decoder's compiled functions run as plain Python, one record at a time, on arrays that refuse every
place outside them: a read past a record, which compiled code would answer with whatever lies there, raises.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numba
import numpy as np

import streams
from streams.catalog import RoleColumns
from streams.compiled.reading import RecordScanner, _places
from streams.limits import MAX_KEY_BYTES
from tests.fuzz.cases import Case
from tests.fuzz.compare import role_facts

PACKAGE = "streams.compiled"


class Guarded:
    """An array read and written by non-negative places inside it only."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        return self.array[self._inside(place)]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __setitem__(self, place: Any, value: Any) -> None:
        self.array[self._inside(place)] = value

    def _inside(self, place: Any) -> Any:
        places = place if isinstance(place, tuple) else (place,)
        if len(places) != self.array.ndim:
            raise IndexError(f"{len(places)} places in an array of {self.array.ndim} axes")
        for one, size in zip(places, self.array.shape, strict=True):
            if one != slice(None) and not 0 <= int(one) < size:
                raise IndexError(f"place {one} of {size}")
        return place


def load_plain() -> dict[str, ModuleType]:
    """The modules of `streams.compiled` again, by their last name, with nothing compiled."""
    before, package = numba.config.DISABLE_JIT, streams.compiled
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(PACKAGE)}
    numba.config.DISABLE_JIT = True
    try:
        names = ("scan", "reading", "headers", "hashing")
        return {name: importlib.import_module(f"{PACKAGE}.{name}") for name in names}
    finally:
        numba.config.DISABLE_JIT = before
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(kept)
        streams.compiled = package  # type: ignore[attr-defined]


class CheckedReading:
    """What `Reading` does with one record, in plain Python on guarded arrays."""

    def __init__(self, case: Case, modules: dict[str, ModuleType]) -> None:
        self._case = case
        self._modules = modules
        self._compiled = RecordScanner(case.space, case.catalog, keyed=True)
        self._space = tuple(map(_guarded, self._compiled._space))
        self._index = tuple(map(_guarded, self._compiled._index))

    def check(self, value: bytes) -> bool:
        """Whether the record is taken; raises IndexError when something outside an array is looked at, and
        AssertionError when the compiled functions make something else of the record."""
        views = len(self._case.space.views)
        table = [np.zeros(1, kind) for kind in (np.int64, np.int64, np.float32, np.uint64)]
        table += [np.zeros((1, 3), np.int32), np.zeros((1, 3, views, 3), np.int64)]
        table += [np.zeros(1, np.uint64), np.zeros(1, np.uint8)]
        table += [np.full((1, MAX_KEY_BYTES), 0xEE, np.uint8)]
        data, bounds = Guarded(np.frombuffer(value, np.uint8)), Guarded(np.array([0, len(value)], np.int64))
        arguments = (data, bounds, 0, 1, self._case.limit, self._space, self._index)
        with np.errstate(over="ignore"):
            taken = self._modules["scan"].scan(*arguments, tuple(map(Guarded, table)), 0)
        found = self._compiled.find([value], self._case.limit)
        assert taken == len(found)
        if taken:
            theirs = (found.records, found.timestamps, found.weights, found.ids, found.rows)
            assert [one.tobytes() for one in table[:5]] == [one.tobytes() for one in theirs]
            assert table[6].tobytes() == found.sources.tobytes()
            assert table[7].tobytes() == found.pairs.tobytes()
            assert table[8].tobytes() == found.keys.tobytes()
            self._check_columns(data, table[5], found)
        return bool(taken)

    def _check_columns(self, data: Guarded, spans: np.ndarray[Any, Any], found: Any) -> None:
        starts = self._compiled._starts(found)
        inline = np.array([bool((found.rows[:, role] < 0).any()) for role in range(3)])
        places, size = _places(starts[:, :, -1], self._compiled._sizes, inline)
        room = np.full(size, 0xEE, np.uint8)
        arrays = (Guarded(self._compiled._sizes), Guarded(starts), Guarded(places), Guarded(room))
        self._modules["reading"].fill(data, Guarded(spans), 0, 1, *arrays)
        for role, columns in enumerate(self._compiled.roles(found)):
            if inline[role]:
                checked = self._compiled._columns(room, starts[role], places[role])
                assert role_facts(columns) == role_facts(RoleColumns(columns.rows, checked))


def _guarded(part: Any) -> Any:
    return Guarded(part) if isinstance(part, np.ndarray) else part
