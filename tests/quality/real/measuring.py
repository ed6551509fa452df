"""All that is measured of one set of real lists, kept in a file: a row by ranking and number of lists."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tests.quality.bench.cells import NEWEST, OURS, QUERIES, YOURS
from tests.quality.bench.forms import own_scores
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import Ints
from tests.quality.real.lists import FOLDER, RealSet
from tests.quality.real.measures import clustered_error, list_measures, never_asked, scores_of
from tests.quality.real.plain import in_hindsight
from tests.quality.real.running import DaemonRun, schedule

LISTS = (2_000, 8_000)
"""After how many lists is measured, and after all of them."""
LEAST_OF_A_CLASS = 3
"""Objects of smaller classes are no queries where labels judge."""


@dataclass(frozen=True)
class RankingRow:
    """One ranking after so many lists. answering: which version that is. auc, error: of the click in its
    list, and the standard error of its difference to the owner's ranking, by query. unseen: AUC of the lists
    whose query is in no learned list, None without any. by_labels: mAP and P@10 over the catalog, None
    without labels."""

    name: str
    lists: int
    answering: str
    auc: float
    error: float
    mrr: float
    balanced: float
    unseen: float | None
    by_labels: Sequence[float] | None


@dataclass
class RealResult:
    """What was measured of a set. stopped: after how many lists the validator gave a STOP."""

    name: str
    objects: int
    learned: int
    judged: int
    unseen: int
    median: int
    rows: list[RankingRow] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def of(cls, data: RealSet) -> RealResult:
        """Of a set, before anything is measured."""
        judged = data.judged
        unseen, length = never_asked(judged, data.learned), np.median(np.diff(data.lists.starts))
        return cls(data.name, len(data.ids), data.cut, len(judged), int(unseen.sum()), int(length))

    def save(self) -> None:
        """Into the set's folder."""
        path = FOLDER / self.name / "result.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, name: str) -> RealResult:
        """Inverse of `save`. Raises FileNotFoundError."""
        kept = json.loads((FOLDER / name / "result.json").read_text())
        rows = [RankingRow(**row) for row in kept.pop("rows")]
        return cls(**kept, rows=rows)


class Judge:
    """Of one set: what its last lists, and its labels, say of rankings."""

    def __init__(self, data: RealSet) -> None:
        self._lists, self._labels = data.judged, alone_without(data.labels)
        self._unseen = never_asked(data.judged, data.learned)
        self._queries = labelled_queries(data.labels)
        self.own = own_scores(data.joined())
        self._own = list_measures(scores_of(self.own, self._lists), self._lists).auc

    def row(
        self, name: str, lists: int, answering: str, scores: Scores, searching: Scores | None = None
    ) -> RankingRow:
        """What is measured of a ranking; searching: by which it finds objects of the catalog, None: by the
        scores by which it orders lists."""
        measures = list_measures(scores_of(scores, self._lists), self._lists)
        error = clustered_error(measures.auc - self._own, self._lists.queries)
        unseen = float(measures.auc[self._unseen].mean()) if self._unseen.any() else None
        found = scores if searching is None else searching
        by_labels = judge(found, self._labels, self._queries).pair if len(self._queries) else None
        auc, mrr, balanced = float(measures.auc.mean()), measures.mrr, measures.balanced
        return RankingRow(name, lists, answering, auc, error, mrr, balanced, unseen, by_labels)


def alone_without(labels: Ints) -> Ints:
    """Labels with a class of its own for each object that has none."""
    return np.where(labels < 0, labels.max(initial=-1) + 1 + np.arange(len(labels)), labels)


def labelled_queries(labels: Ints) -> Ints:
    """Rows that labels judge on: at most QUERIES, drawn from classes that are not too small."""
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    rows = np.flatnonzero((labels >= 0) & (sizes[labels] >= LEAST_OF_A_CLASS))
    return np.sort(np.random.default_rng(0).permutation(rows)[:QUERIES])


def measure(data: RealSet, tell: Callable[[str], None], folder: Path) -> RealResult:
    """All rows, kept after each; the product runs in `folder`, which is emptied. tell: hears what goes on."""
    result, judged, began = RealResult.of(data), Judge(data), time.monotonic()
    wanted = [count for count in (*LISTS, data.cut) if count <= data.cut]
    result.rows.append(judged.row(YOURS, 0, "", judged.own))
    for count in wanted:
        for name, scores in in_hindsight(data.joined(), data.learned.part(0, count)).items():
            result.rows.append(judged.row(f"OASIS in hindsight, {name}", count, "", scores))
        tell(f"{data.name}, OASIS of {count:,} lists")
    run = DaemonRun(data, folder)
    for count in schedule(data.cut, wanted):
        run.go_on(count)
        tell(f"{data.name}, {count:,} lists: {run.newest().description}; served: {run.served().description}")
        if count in wanted:
            result.rows += list(_rows(judged, run, count))
        result.stopped, result.seconds = list(run.stopped), time.monotonic() - began
        result.save()
    return result


def _rows(judged: Judge, run: DaemonRun, count: int) -> Iterator[RankingRow]:
    for name, answering in ((OURS, run.served), (NEWEST, run.newest)):
        version = answering()
        how = (version.scores, version.searching) if version.number else (judged.own, judged.own)
        yield judged.row(name, count, version.description, *how)
