"""What is made of a model and an index snapshot before it answers: norms, features, what else it takes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np

from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from daemon.serve.retrieve.part import (
    QUERIES,
    TOP,
    AnnIndex,
    AnnSettings,
    GuardResult,
    Indexed,
    Norms,
    ReadyPart,
    choose_width,
    folded_queries,
    load_faiss,
    near_enough,
    nearest,
    recall,
)
from learners.block import Block, Float32s
from learners.forms.quadratic import Pieces, ServedForm, featured, whole
from learners.search import DenseItems, as_items

KEPT = 16
"""Arrays that wait for their next use; more than the parts of an index and their predecessors."""


class ArrayPool:
    """Lends arrays and takes them back when their owner is gone. Any thread."""

    def __init__(self) -> None:
        self._free: list[Float32s] = []
        self._lock = threading.Lock()

    def take(self, length: int) -> Float32s:
        """A float32 array of this length with anything in it."""
        with self._lock:
            fitting = [i for i, one in enumerate(self._free) if length <= len(one) <= 2 * length]
            if fitting:
                best = min(fitting, key=lambda i: len(self._free[i]))
                return self._free.pop(best)[:length]
        return np.empty(length, np.float32)

    def owned(self, array: Float32s, owner: object) -> None:
        """`array` of `take` comes back once `owner` is collected; every reader holds a reference to it."""
        whole = array if array.base is None else array.base
        assert isinstance(whole, np.ndarray)
        weakref.finalize(owner, self._back, whole).atexit = False

    def _back(self, array: Float32s) -> None:
        with self._lock:
            self._free.append(array)
            del self._free[:-KEPT]


MOST_BYTES = 1 << 30
"""Of one part: larger parts are scored without."""
ROWS = 8
"""Items of one piece, some milliseconds."""


def features_of(
    form: ServedForm, part: IndexPart, before: Mapping[int, ReadyPart], pieces: Pieces
) -> Float32s | None:
    """The features of a part's items, float32 [n, F], those of a merged part gathered from its sources; None
    for a form that has none, and for a part that is too large. `pieces` changes no bit.
    """
    if not featured(form) or not len(part):
        return None
    width = form.features(part.vectors.slice(0, 1)).shape[1]
    if 4 * width * len(part) > MOST_BYTES:
        return None
    known = _gathered_features(part, before)
    if known is not None:
        return known
    made = np.empty((len(part), width), np.float32)
    for piece in pieces(-(-len(part) // ROWS)):
        rows = slice(piece.start * ROWS, min(piece.stop * ROWS, len(part)))
        made[rows] = form.features(part.vectors.slice(rows.start, rows.stop))
    return made


def _gathered_features(part: IndexPart, before: Mapping[int, ReadyPart]) -> Float32s | None:
    found = []
    for serial, rows in part.merged_from:
        ready = before.get(serial)
        if ready is None or ready.features is None:
            return None
        found.append(ready.features[rows])
    return np.concatenate(found) if found else None


SLICE = 1 << 16
"""Rows whose norms are computed at once, so that what it takes on the way stays small."""


class Preparer:
    """Makes norms, in `pieces`. Items and approximate indexes are made once per part, whatever the models
    that share them, and go when no norms refer to them any more; arrays of norms are used again. Any thread.
    """

    def __init__(
        self,
        ann: AnnSettings | None = None,
        observe: Callable[[GuardResult], None] | None = None,
        pieces: Pieces = whole,
    ) -> None:
        if ann is not None:
            load_faiss()
        self._ann, self._observe, self._pieces = ann, observe, pieces
        self._indexed: WeakValueDictionary[int, Indexed] = WeakValueDictionary()
        self._buffers = ArrayPool()
        self._lock = threading.Lock()

    def norms(self, view: View, snapshot: IndexSnapshot, on_demand: bool = False) -> Norms:
        """Everything for this model and snapshot. What `view.prepared` holds of the same form is kept, and
        the norms of a merged part are gathered from it. on_demand: somebody waits, so there are no pieces,
        and no guard: the model is searched exactly.
        """
        held = view.prepared
        before = held.parts if isinstance(held, Norms) and held.formed == view.formed else {}
        parts = {
            part.serial: before.get(part.serial) or self._ready(view, part, before, on_demand)
            for part in snapshot.parts
        }
        return Norms(view.formed, snapshot, parts)

    def _ready(
        self, view: View, part: IndexPart, before: Mapping[int, ReadyPart], on_demand: bool
    ) -> ReadyPart:
        ready = ReadyPart(self._index(part))
        if view.has_terms:
            terms = self._buffers.take(len(part))
            if not _gathered(part, before, terms):
                _compute(view, part.vectors, terms, whole if on_demand else self._pieces)
            ready = replace(ready, scale=terms) if view.normalised else replace(ready, offset=terms)
        if view.rescored and not on_demand:
            ready = replace(ready, features=features_of(view.form, part, before, self._pieces))
        if ready.indexed.ann is not None and self._ann is not None and not on_demand:
            if view.has_terms:
                cells = view.terms(view.self_scores(ready.indexed.ann.centres))
                scale, offset = (cells, None) if view.normalised else (None, cells)
                ready = replace(ready, cell_scale=scale, cell_offset=offset)
            guarded = _guard(view, part, ready, self._ann.recall)
            ready = replace(ready, width=guarded.width)
            if self._observe is not None:
                self._observe(guarded)
        if ready.terms is not None:
            self._buffers.owned(ready.terms, ready)
        return ready

    def _index(self, part: IndexPart) -> Indexed:
        with self._lock:
            indexed = self._indexed.get(part.serial)
            if indexed is None:
                items = as_items(part.vectors)
                indexed = Indexed(items)
                settings = self._ann
                if settings is not None and isinstance(items, DenseItems) and len(items) >= settings.least:
                    ann = AnnIndex(items)
                    indexed = Indexed(items, ann, DenseItems.of(ann.centres))
                self._indexed[part.serial] = indexed
            return indexed


def _gathered(part: IndexPart, before: Mapping[int, ReadyPart], terms: Float32s) -> bool:
    """Fill the terms of a merged part from its sources; False where one of them is not known."""
    sources = [(before.get(serial), rows) for serial, rows in part.merged_from]
    start = 0
    for ready, rows in sources:
        if ready is None or ready.terms is None:
            return False
        terms[start : start + len(rows)] = ready.terms[rows]
        start += len(rows)
    return bool(sources) and start == len(terms)


def _compute(view: View, vectors: Block, terms: Float32s, pieces: Pieces) -> None:
    for start in range(0, len(vectors), SLICE):
        rows = vectors.slice(start, start + SLICE)
        terms[start : start + len(rows)] = view.terms(view.self_scores(rows, pieces))


def _guard(view: View, part: IndexPart, ready: ReadyPart, least: float) -> GuardResult:
    """How wide the approximate search of this part has to be, on evenly spaced items of it that are alive."""
    living = np.arange(len(part)) if part.alive is None else np.flatnonzero(part.alive)
    own = living[np.linspace(0, len(living) - 1, min(QUERIES, len(living))).astype(np.int64)]
    if not len(own) or ready.indexed.ann is None:
        return GuardResult(None, 1.0, (), str(view.model), len(part))
    folded = folded_queries(view, part.vectors.take(own))
    usable = np.isfinite(folded).all(axis=1)
    folded, own = folded[usable], own[usable]
    exact = nearest(ready, folded, part.alive, TOP + 1)[1]

    def recall_at(width: int) -> tuple[float, float]:
        found = near_enough(replace(ready, width=width), folded, part.alive, TOP + 1)[1]
        return recall(exact, found, own)

    guarded = choose_width(recall_at, len(ready.indexed.ann.centres), least)
    return replace(guarded, model=str(view.model), items=len(part))
