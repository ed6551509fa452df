"""Sets with classes, cut by a seed into objects to learn from, to choose settings by, and to be judged by.

The spaces that are learned in are fitted on the first part alone, and triplets are drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from daemon.demo.pack_files import PACK, load_pack
from learners.block import DenseBlock
from learners.maps import FittedSpaceMap, SpaceMap, ViewConfig
from learners.maps.base import first_diagonal
from tests.quality.bench.labels import triplets
from tests.quality.bench.sets import Floats, Ints, RawSet, load, unit

SETS = ("photos", "tfidf", "sentences", "fashion")
SPLITS = PACK / "splits.tsv"
VALIDATION_SHARE, TEST_SHARE = 0.2, 0.2
MOST_TRIPLETS = 500_000
"""Of a task's stream; who learns from fewer takes its beginning."""
WHITENED: Mapping[str, int] = {"photos": 60, "fashion": 100}
"""Directions of each view that are kept where a whole preconditioned space would cost ten times the time and
teach no more: of the photos' five views 300 instead of 1,243."""

UNKNOWN = -1
"""The class of an object that is judged, as methods see it."""

Part: TypeAlias = Literal["train", "validation", "test"]


def dense(rows: Any) -> Floats:
    """Rows as an array, float32 [n, d]."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float32)


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows of a set, int64, ascending, no row in two."""

    train: Ints
    validation: Ints
    test: Ints


def parts_of(data: RawSet, seed: int, test: Ints | None = None) -> Parts:
    """The parts of a seed; test: rows that are judged whatever the seed, None: a share of all by the seed."""
    rng = np.random.default_rng((seed, 2010))
    if test is None:
        test = rng.permutation(len(data))[: round(TEST_SHARE * len(data))]
    others = rng.permutation(np.setdiff1d(np.arange(len(data)), test))
    count = round(VALIDATION_SHARE * len(others))
    return Parts(np.sort(others[count:]), np.sort(others[:count]), np.sort(test))


def given_test(name: str) -> Ints | None:
    """Rows that the source of a set keeps for judging: the photos'."""
    if name != "photos":
        return None
    part_of = dict(line.split("\t") for line in SPLITS.read_text(encoding="utf-8").splitlines())
    return np.flatnonzero([part_of[one] == "validation" for one in load_pack().catalog.ids]).astype(np.int64)


def overlap(name: str) -> float | None:
    """Objects of a set that are judged over those that are learned from, as the corrected resampled t-test
    takes it; None where the same ones are judged by every seed."""
    if given_test(name) is not None:
        return None
    return TEST_SHARE / ((1 - TEST_SHARE) * (1 - VALIDATION_SHARE))


@dataclass(frozen=True, eq=False)
class Space:
    """Z: a row for every object, dense float32 [n, d] or CSR. start: the diagonal that learning begins at,
    float32 [d], or None for that of I. views: the columns of each view. fitted: the map, None where rows are
    as they were."""

    Z: Any
    start: Floats | None
    views: tuple[slice, ...]
    fitted: FittedSpaceMap | None = None

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self.Z.shape[1])

    @cached_property
    def dense(self) -> Floats:
        """Z as an array."""
        return dense(self.Z)

    def rows(self, rows: Ints) -> Any:
        """Some rows, as learners and forms take them."""
        return self.Z[rows] if sparse.issparse(self.Z) else DenseBlock(self.Z[rows])


class Task:
    """What a method may learn from: a set cut by a seed. The classes of the objects that are judged are
    hidden; `truth` is for the judge alone.

    labels: int64 [n], `UNKNOWN` where judged.
    """

    def __init__(self, data: RawSet, seed: int, test: Ints | None = None) -> None:
        self.data, self.seed, self.name = data, seed, data.name
        self.parts = parts_of(data, seed, test)
        self.truth = data.labels
        self.labels = np.where(np.isin(np.arange(len(data)), self.parts.test), UNKNOWN, data.labels)
        self._spaces: dict[str, Space] = {}

    def rows(self, part: Part) -> Ints:
        """Rows of a part."""
        return {
            "train": self.parts.train,
            "validation": self.parts.validation,
            "test": self.parts.test,
        }[part]

    @cached_property
    def X(self) -> Floats:
        """The owner's vectors, dense float32 [n, d] of unit length: X X^T are the cosines."""
        return dense(self.data.joined())

    @cached_property
    def triplets(self) -> Ints:
        """Query, clicked and skipped rows of the training part, int64 [3, `MOST_TRIPLETS`]: q uniform, c of
        its class, s of the others (Chechik et al., JMLR 11 (2010), section 2.3)."""
        return triplets(self.data, self.parts.train, MOST_TRIPLETS, self.seed)

    @property
    def space(self) -> Space:
        """Where matrices are learned: sparse rows as they are; one embedding preconditioned without loss,
        beginning between I and the owner's metric; the photos' views and pixels whitened."""
        if self.data.sparse:
            return self.given
        if self.name in WHITENED:
            return self.fitted("whiten", components=WHITENED[self.name])
        return self.fitted("precondition")

    @cached_property
    def given(self) -> Space:
        """The owner's vectors as they are."""
        X = self.data.joined()
        return Space(X, None, self._columns({name: view.shape[1] for name, view in self.data.views.items()}))

    def fitted(self, kind: str, **options: Any) -> Space:
        """Under a map of this kind after unit length, over each view; fitted on the training part."""
        chain = ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig(kind, options)]})
        return self.under(f"{kind} {options}", chain, whole=kind == "precondition")

    def under(self, key: str, config: ViewConfig, whole: bool = False, **plan: Any) -> Space:
        """Under a map over each view. key: names it. whole: it loses nothing, so that the owner's cosine is
        a metric there, and the product's default start is taken. plan: other settings of the space."""
        if key not in self._spaces:
            sample = {name: view[self.parts.train] for name, view in self.data.views.items()}
            settings = {"similarity": "cosine"} if whole else {"effective": True, **plan}
            fitted = SpaceMap(dict.fromkeys(sample, config), **settings).fit(sample)
            rows = fitted.transform(self.data.views)
            Z = rows.values if isinstance(rows, DenseBlock) else rows.checked_csr()
            start = first_diagonal(fitted.own, "mean") if len(sample) == 1 else None
            views = self._columns({name: one.dim for name, one in fitted.views.items()})
            self._spaces[key] = Space(Z, start, views, fitted)
        return self._spaces[key]

    def forget(self, key: str) -> None:
        """Let go of a space."""
        self._spaces.pop(key, None)

    def _columns(self, widths: Mapping[str, int]) -> tuple[slice, ...]:
        ends = np.cumsum([0, *widths.values()]).tolist()
        return tuple(slice(*pair) for pair in pairwise(ends))


@cache
def task(name: str, seed: int) -> Task:
    """The task of a set and a seed."""
    task.cache_clear()  # one at a time: a set with its spaces is hundreds of megabytes
    return Task(load(name), seed, given_test(name))


__all__ = ["SETS", "Floats", "Ints", "Part", "Parts", "Space", "Task", "dense", "parts_of", "task", "unit"]
