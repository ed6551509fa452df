"""Lists that were shown and clicked, in order of time, with their objects: as arrays in files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.quality.bench.sets import CACHE, Floats, Ints, RawSet

LEARNED_SHARE = 0.8
"""Of lists that have times, by number: those that come first are learned, the others judge."""
FOLDER = CACHE / "real"


@dataclass(frozen=True, eq=False)
class ClickedLists:
    """queries: rows of the catalog, int64 [n]. shown: rows of all lists one after the other, int64 [total],
    list i from starts[i] to starts[i + 1] (int64 [n + 1]). clicked: the rank of the only click, from 0, int64
    [n]. times: ms since 1970, int64 [n]."""

    queries: Ints
    starts: Ints
    shown: Ints
    clicked: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def of(self) -> Ints:
        """The list of each object shown."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @property
    def ranks(self) -> Ints:
        """The rank of each object shown, from 0."""
        return np.arange(len(self.shown)) - self.starts[self.of]

    def part(self, first: int, last: int) -> ClickedLists:
        """Lists from one number to before another."""
        begin, end = self.starts[first], self.starts[last]
        rows = slice(first, last)
        return ClickedLists(
            self.queries[rows],
            self.starts[first : last + 1] - begin,
            self.shown[begin:end],
            self.clicked[rows],
            self.times[rows],
        )

    def lines(self, ids: list[str], first: int = 0) -> Iterator[str]:
        """As `tripletd feed` reads them; first: the number of the first one, which ids are made of."""
        for one, (query, clicked, time) in enumerate(
            zip(self.queries, self.clicked, self.times, strict=True)
        ):
            shown = [ids[row] for row in self.shown[self.starts[one] : self.starts[one + 1]]]
            line = {"id": f"list-{first + one}", "ts": int(time), "q": ids[query], "shown": shown}
            yield json.dumps(line | {"clicked": [int(clicked)]}) + "\n"


def clicked_lists(rows: list[tuple[int, int, list[int], int]]) -> ClickedLists:
    """From (time, query, shown, rank of the click) of each."""
    times, queries, shown, clicked = zip(*rows, strict=True)
    starts = np.cumsum([0, *map(len, shown)], dtype=np.int64)
    flat = np.fromiter((row for one in shown for row in one), np.int64, starts[-1])
    return ClickedLists(_ints(queries), starts, flat, _ints(clicked), _ints(times))


def _ints(values: Any) -> Ints:
    return np.asarray(values, np.int64)


def learned_count(lists: int) -> int:
    """How many lists are learned where the first ones by time are."""
    return int(LEARNED_SHARE * lists)


@dataclass(frozen=True, eq=False)
class RealSet:
    """What people clicked, and of which objects. views: rows of unit length. lists: those that are learned,
    in order of time, and behind them, from number `cut` on, those that judge. labels: class of each object,
    int64 [n], -1 without one; empty where there are no classes. about: where it is from, for people."""

    name: str
    ids: list[str]
    views: Mapping[str, Floats]
    lists: ClickedLists
    cut: int
    labels: Ints
    about: Mapping[str, Any]

    @property
    def learned(self) -> ClickedLists:
        """What the product may get."""
        return self.lists.part(0, self.cut)

    @property
    def judged(self) -> ClickedLists:
        """What decides how good it is, and nothing else."""
        return self.lists.part(self.cut, len(self.lists))

    def joined(self) -> Floats:
        """X with X X^T the scores of the owner's ranking, the mean of the views' cosines."""
        X: Floats = RawSet(self.name, self.views, np.zeros(len(self.ids), np.int64)).joined()
        return X

    def save(self, folder: Path) -> None:
        """Into files of a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.save_objects(folder / "objects.npz")
        np.savez_compressed(folder / "lists.npz", cut=self.cut, labels=self.labels, **vars(self.lists))
        (folder / "about.json").write_text(json.dumps(self.about, indent=1))

    def save_objects(self, path: Path) -> None:
        """The catalog alone, as `catalog.path` takes it."""
        arrays: dict[str, Any] = {"ids": np.array(self.ids), **self.views}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, folder: Path) -> RealSet:
        """Inverse of `save`. Raises FileNotFoundError."""
        about = json.loads((folder / "about.json").read_text())
        with np.load(folder / "objects.npz") as objects, np.load(folder / "lists.npz") as kept:
            views = {name: objects[name] for name in objects.files if name != "ids"}
            lists = ClickedLists(*(kept[name] for name in ClickedLists.__dataclass_fields__))
            ids = objects["ids"].tolist()
            return cls(folder.name, ids, views, lists, int(kept["cut"]), kept["labels"], about)
