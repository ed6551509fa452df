"""One cell of the tables: a set, a model of users, a seed, and who makes the lists. Resumable: what is
done is kept.

In a cell every number of lists gives rows (mAP, P@10) by labels: of the owner's ranking, of each form of
the newest version, of the one that clicks would serve, and of the rivals, who learn from the same clicks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from learners.maps.base import Start
from tests.quality.bench import forms, rivals
from tests.quality.bench.forms import Eigen, Form, own_scores
from tests.quality.bench.geometry import Space, mapped
from tests.quality.bench.judged import OWN, chosen
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.retrieval import Scores, judge, nearest
from tests.quality.bench.sets import CACHE, Ints, RawSet, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import LENGTH, Learned, Users, joined, split

LISTS = (500, 2_000, 8_000, 32_000, 128_000)
BETWEEN = (1_000, 4_000, 16_000, 64_000)
"""Where the lists of a closed loop are made anew beside `LISTS`."""
QUERIES = 400
FORMS: Mapping[str, Form] = {
    "power 1.5": Form(1.5),
    "power 1": Form(1.0),
    "power 1.25 + .3 own": Form(1.25, 0.3),
}
VERSION = 2
"""Of what a cell means: one that was kept under another is made again."""

Pair = tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """What is measured. loop: "static", lists of the owner's ranking, or "closed", of what clicks chose
    last."""

    data: str
    clicks: str = "position"
    loop: str = "static"
    seed: int = 0
    epsilon: float = 1.0
    learning: Learning = field(default_factory=Learning)

    @property
    def path(self) -> Path:
        """Where its result is kept."""
        how = self.learning
        parts = (self.data, self.clicks, self.loop, self.seed, self.epsilon, how.start, how.C, how.negative)
        return CACHE / "cells" / f"{'-'.join(map(str, parts))}.json"


class Result:
    """Rows of a cell: name -> lists -> (mAP, P@10); written after every number of lists."""

    def __init__(self, cell: Cell) -> None:
        self._path = cell.path
        self.rows: dict[str, dict[int, Pair]] = {}
        self.served: dict[int, str] = {}
        if self._path.exists():
            found = json.loads(self._path.read_text())
            if found["version"] == VERSION:
                self.rows = {
                    name: {int(n): tuple(at) for n, at in row.items()} for name, row in found["rows"].items()
                }
                self.served = {int(n): name for n, name in found["served"].items()}

    def has(self, name: str, lists: int) -> bool:
        """Whether that row is there."""
        return lists in self.rows.get(name, {})

    def put(self, name: str, lists: int, found: Pair) -> None:
        """Add to a row."""
        self.rows.setdefault(name, {})[lists] = found

    def save(self) -> None:
        """Write what there is."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        found = {"version": VERSION, "rows": self.rows, "served": self.served}
        self._path.write_text(json.dumps(found, indent=1))


OURS, NEWEST, YOURS = "tripletd, as served", "tripletd, newest", "your ranking"


def by_default(data: str, clicks: str, loop: str, seed: int) -> Cell:
    """The cell with the settings that stand in the table: W begins between I and the owner's metric for
    one view, at I for several."""
    start: Start = "mean" if len(load(data).views) == 1 else "identity"
    return Cell(data, clicks, loop, seed, learning=Learning(start))


def run(cell: Cell, up_to: int = LISTS[-1], with_rivals: bool = True) -> Result:
    """Measure a cell up to a number of lists, or go on where it stopped."""
    result = Result(cell)
    wanted = [lists for lists in LISTS if lists <= up_to]
    missing = [lists for lists in wanted if not result.has(OURS, lists)]
    names = list(rivals.RIVALS) if with_rivals and cell.loop == "static" else []
    if missing or any(not result.has(name, lists) for name in names for lists in wanted):
        data = load(cell.data)
        judged = split(data, cell.seed).judged[:QUERIES]
        for lists, learned, served in _versions(cell, data, wanted):
            if lists not in wanted:
                continue
            if not result.has(OURS, lists):
                _judge_ours(result, lists, served, data, judged)
                result.save()
            for name in names:
                if not result.has(name, lists):
                    result.put(name, lists, _best(rivals.RIVALS[name], data, learned, lists, judged))
                    result.save()
    return result


@dataclass(frozen=True)
class Served:
    """Forms of the newest version by name, the one that clicks chose, and the owner's ranking."""

    forms: Mapping[str, Scores]
    choice: str
    own: Scores

    @property
    def now(self) -> Scores:
        """What answers."""
        return self.own if self.choice == OWN else self.forms[self.choice]


def _versions(cell: Cell, data: RawSet, wanted: list[int]) -> Iterator[tuple[int, Learned, Served]]:
    """(lists so far, all that they gave, what is served) at each number of lists."""
    space, own = mapped(data, "precondition", epsilon=cell.epsilon), own_scores(data.joined())
    users, lists = Users(data, cell.clicks, cell.seed, split(data, cell.seed)), own_lists(cell.data)
    W, parts, before, choice = space.first(cell.learning.start), [], 0, OWN
    for count in sorted({*wanted, *(BETWEEN if cell.loop == "closed" else ())}):
        if count > wanted[-1]:
            break
        part = users.look(lists, count - before)
        W = step(W, space, part.rows, cell.learning.bounds(part.drawn))
        parts, before = [*parts, part], count
        learned = joined(parts)
        served = _served(space, Eigen(W), own, learned, count, choice)
        choice = served.choice
        yield count, learned, served
        if cell.loop == "closed":
            lists = nearest(served.now, LENGTH, len(data))


def _served(space: Space, eigen: Eigen, own: Scores, learned: Learned, lists: int, before: str) -> Served:
    made = {name: forms.scores(eigen.matrix(form, space.metric), space.Z) for name, form in FORMS.items()}
    return Served(made, chosen(made, own, learned, lists, before), own)


def _judge_ours(result: Result, lists: int, served: Served, data: RawSet, judged: Ints) -> None:
    found = {name: judge(one, data.labels, judged).pair for name, one in served.forms.items()}
    own = judge(served.own, data.labels, judged).pair
    result.put(YOURS, lists, own)
    for name, pair in found.items():
        result.put(name, lists, pair)
    result.put(NEWEST, lists, found[next(iter(FORMS))])
    result.put(OURS, lists, own if served.choice == OWN else found[served.choice])
    result.served[lists] = served.choice


def _best(rival: rivals.Rival, data: RawSet, learned: Learned, lists: int, judged: Ints) -> Pair:
    """A rival with the setting that labels like most, by mAP."""
    pairs = rivals.Pairs(*learned.clicked, _counts(learned.shown, data), _counts(learned.clicked[1], data))
    X = data.joined()
    dense = X if isinstance(X, np.ndarray) else np.asarray(X.todense(), np.float32)
    return max(judge(scores, data.labels, judged).pair for scores in rival(dense, pairs))


def _counts(rows: Ints, data: RawSet) -> Ints:
    return np.bincount(rows.ravel(), minlength=len(data))
