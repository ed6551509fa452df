"""One cell of the tables: a set, a model of users, a seed, and who makes the lists. Resumable: what is
done is kept.

In a cell every number of lists gives rows (mAP, P@10) by labels: of the owner's ranking, of what the product
would serve by default, of its newest version, and of the rivals, who learn from the
same clicks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from daemon.config.learners import default_algorithm
from daemon.feeding import FALLS_FROM
from learners.maps.base import Start
from tests.quality.bench import rivals
from tests.quality.bench.loop import Algorithm, Learning
from tests.quality.bench.product import VERSIONS, Product, Variant
from tests.quality.bench.retrieval import judge, nearest
from tests.quality.bench.sets import CACHE, Ints, RawSet, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import LENGTH, Learned, Users, joined, split

LISTS = (500, 2_000, 8_000, 32_000, 128_000)
QUERIES = 400
VERSION = 5
"""Of what a cell means: one that was kept under another is made again."""

Pair = tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """What is measured. loop: "static", lists of the owner's ranking, "explored", those with a random object
    in one slot of a tenth, or "closed", lists of what is served."""

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
        parts: tuple[object, ...] = (self.data, self.clicks, self.loop, self.seed, self.epsilon, how.start)
        parts += (how.C, how.negative) if how.algorithm == "oasis" else (how.algorithm,)
        parts += ("falling", how.falls_from) if how.falls_from else ()
        return CACHE / "cells" / f"{'-'.join(map(str, parts))}.json"


class Result:
    """Rows of a cell: name -> lists -> (mAP, P@10); written after every number of lists. served: what answers
    then. seconds: of the processor, by name.
    """

    def __init__(self, cell: Cell) -> None:
        self._path = cell.path
        self.rows: dict[str, dict[int, Pair]] = {}
        self.served: dict[int, str] = {}
        self.seconds: dict[str, float] = {}
        if self._path.exists():
            found = json.loads(self._path.read_text())
            if found["version"] == VERSION:
                self.rows = {
                    name: {int(n): tuple(at) for n, at in row.items()} for name, row in found["rows"].items()
                }
                self.served = {int(n): name for n, name in found["served"].items()}
                self.seconds = found["seconds"]

    def has(self, name: str, lists: int) -> bool:
        """Whether that row is there."""
        return lists in self.rows.get(name, {})

    def put(self, name: str, lists: int, found: Pair) -> None:
        """Add to a row."""
        self.rows.setdefault(name, {})[lists] = found

    def spent(self, name: str, began: float) -> None:
        """Count the processor's time since then."""
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began

    def save(self) -> None:
        """Write what there is."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        found = {"version": VERSION, "rows": self.rows, "served": self.served, "seconds": self.seconds}
        self._path.write_text(json.dumps(found, indent=1))


OURS, NEWEST, YOURS = "tripletd, as served", "tripletd, newest", "your ranking"
HINDSIGHT = "tripletd, best version so far by labels"
EXPLORED = 0.1
"""Of the lists, those with a random object."""


def by_default(data: str, clicks: str, loop: str, seed: int, algorithm: Algorithm | None = None) -> Cell:
    """The cell with the settings that stand in the table: W begins between I and the owner's metric for
    one view, at I for several, where drawn objects weigh less and less. algorithm: None for the default of
    such a space."""
    several = len(load(data).views) > 1
    start: Start = "identity" if several else "mean"
    columns = 0 if several else load(data).joined().shape[1]
    chosen = algorithm or cast(Algorithm, default_algorithm({}, columns))
    falls = FALLS_FROM if several and chosen == "oasis" else 0
    return Cell(data, clicks, loop, seed, learning=Learning(start, algorithm=chosen, falls_from=falls))


def run(cell: Cell, up_to: int = LISTS[-1], with_rivals: bool = True, rivals_to: int = LISTS[-1]) -> Result:
    """Measure a cell up to a number of lists, its rivals up to `rivals_to`, or go on where it stopped."""
    result = Result(cell)
    wanted = [lists for lists in LISTS if lists <= up_to]
    data = load(cell.data)
    judged = split(data, cell.seed).judged[:QUERIES]
    if any(not result.has(OURS, lists) for lists in wanted):
        _ours(result, cell, wanted, judged)
    for lists in wanted if with_rivals and cell.loop == "static" else ():
        missing = [name for name in rivals.RIVALS if not result.has(name, lists)]
        if missing and lists <= rivals_to:
            learned = _clicks(cell, lists)
            for name in missing:
                began = time.process_time()
                result.put(name, lists, _best(rivals.RIVALS[name], data, learned, judged))
                result.spent(name, began)
                result.save()
    return result


def _ours(result: Result, cell: Cell, wanted: list[int], judged: Ints) -> None:
    data, lists = load(cell.data), own_lists(cell.data)
    who = split(data, cell.seed)
    variant = Variant(explored=EXPLORED if cell.loop == "explored" else 0.0)
    made = Product(data, cell.clicks, cell.seed, who, cell.learning, variant, cell.epsilon)
    own, made_by, began = judge(made.own, data.labels, judged).pair, 0, time.process_time()
    best = own
    for count in (one for one in VERSIONS if one <= wanted[-1]):
        made.go_on(count, lists)
        newest = judge(made.latest, data.labels, judged).pair
        best = max(best, newest)
        if cell.loop == "closed" and made.best != made_by:
            lists, made_by = nearest(made.served, LENGTH, len(data)), made.best
        if count in wanted:
            result.put(YOURS, count, own)
            result.put(HINDSIGHT, count, best)
            result.put(NEWEST, count, newest)
            served = own if not made.best else newest
            if made.best and (made.best != made.newest or not made.standing.anchor):
                served = judge(made.served, data.labels, judged).pair
            result.put(OURS, count, served)
            told = f"version {made.best}" if made.best else YOURS
            result.served[count] = told
            result.spent(OURS, began)
            result.save()
            began = time.process_time()


def _clicks(cell: Cell, lists: int) -> Learned:
    """What the product learned from in a static cell, drawn in the same parts."""
    data = load(cell.data)
    users, parts, before = Users(data, cell.clicks, cell.seed, split(data, cell.seed)), [], 0
    for count in (one for one in VERSIONS if one <= lists):
        parts.append(users.look(own_lists(cell.data), count - before))
        before = count
    return joined(parts)


def _best(rival: rivals.Rival, data: RawSet, learned: Learned, judged: Ints) -> Pair:
    """A rival with the setting that labels like most, by mAP."""
    pairs = rivals.Pairs(
        learned.clicked,
        learned.held_clicked,
        _counts(learned.shown, data),
        _counts(np.concatenate([learned.clicked[1], learned.held_clicked[1]]), data),
    )
    X = data.joined()
    dense = X if isinstance(X, np.ndarray) else np.asarray(X.todense(), np.float32)
    return max(judge(scores, data.labels, judged).pair for scores in rival(dense, pairs))


def _counts(rows: Ints, data: RawSet) -> Ints:
    return np.bincount(rows.ravel(), minlength=len(data))
