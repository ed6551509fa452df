"""What is made of a model and an index snapshot before it answers: norms, features, what else it takes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import numpy as np

from daemon.replica.view import View
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from daemon.serve.retrieve.coverage import Covered
from daemon.serve.retrieve.part import (
    NO_GRAPHS,
    QUERIES,
    TOP,
    GuardResult,
    Indexed,
    Norms,
    ReadyGraphs,
    ReadyPart,
    ReadySnapshot,
    TermsLease,
    choose_width,
    exactly,
    folded_queries,
    nearly,
    recall,
)
from learners.block import Block, DenseBlock, Float32s, Int64s, concatenate
from learners.forms.quadratic import Pieces, ServedForm, featured, whole
from learners.graph import GraphTerms
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


@dataclass(frozen=True, slots=True)
class GraphSearch:
    """Search over graphs. covered: where the objects of a snapshot are in them. recall: share of the exact
    top 10 that has to be found, on the guard's sample. asked: at most so many of the newest questions,
    mapped; None for none yet.
    """

    covered: Callable[[IndexSnapshot], Covered]
    recall: float
    asked: Callable[[int], Block | None] = lambda most: None


class Preparer:
    """Makes norms, in `pieces`. Items are made once per part, whatever the models that share them, and go
    when no norms refer to them any more; arrays of norms are used again. graphs: None for exact search alone.
    Any thread.
    """

    def __init__(
        self,
        graphs: GraphSearch | None = None,
        observe: Callable[[GuardResult], None] | None = None,
        pieces: Pieces = whole,
    ) -> None:
        self._graphs, self._observe, self._pieces = graphs, observe, pieces
        self._indexed: WeakValueDictionary[int, Indexed] = WeakValueDictionary()
        self._buffers = ArrayPool()
        self._lock = threading.Lock()

    def norms(self, view: View, snapshot: IndexSnapshot, on_demand: bool = False) -> Norms:
        """Everything for this model and snapshot. What `view.prepared` holds of the same form is kept, and
        the norms of a merged part are gathered from it. on_demand: somebody waits, so there are no pieces,
        and no guard: the model is searched exactly.
        """
        held = view.prepared
        kept = held if isinstance(held, Norms) and held.formed == view.formed else None
        before = {} if kept is None else kept.parts
        graphs = None if on_demand else self._graphs
        covered = None if graphs is None else graphs.covered(snapshot)
        parts = {part.serial: self._ready(view, part, before, on_demand, covered) for part in snapshot.parts}
        found = Norms(view.formed, snapshot, parts)
        if graphs is None or covered is None or not covered.graphs:
            return found
        return replace(found, graphs=self._walkable(view, found, graphs, covered, kept))

    def _ready(
        self,
        view: View,
        part: IndexPart,
        before: Mapping[int, ReadyPart],
        on_demand: bool,
        covered: Covered | None,
    ) -> ReadyPart:
        indexed = self._index(part, covered)
        known = before.get(part.serial)
        if known is not None:
            return known if known.indexed is indexed else replace(known, indexed=indexed)
        ready = ReadyPart(indexed)
        if view.has_terms:
            terms, lease = self._buffers.take(len(part)), TermsLease()
            if not _gathered(part, before, terms):
                _compute(view, part.vectors, terms, whole if on_demand else self._pieces)
            self._buffers.owned(terms, lease)
            ready = replace(ready, lease=lease)
            ready = replace(ready, scale=terms) if view.normalised else replace(ready, offset=terms)
        if view.rescored and not on_demand:
            ready = replace(ready, features=features_of(view.form, part, before, self._pieces))
        return ready

    def _walkable(
        self, view: View, norms: Norms, graphs: GraphSearch, covered: Covered, kept: Norms | None
    ) -> ReadyGraphs:
        known = NO_GRAPHS if kept is None else kept.graphs
        if known.covered is covered:
            return known
        ready = ReadyGraphs(covered, _graph_terms(norms, covered))
        if [one.name for one in known.covered.graphs] == [one.name for one in covered.graphs]:
            return replace(ready, width=known.width, recall=known.recall)
        guarded = _guard(view, replace(norms, graphs=ready), graphs)
        if self._observe is not None:
            self._observe(guarded)
        return replace(ready, width=guarded.width, recall=guarded.recall)

    def _index(self, part: IndexPart, covered: Covered | None) -> Indexed:
        """The items of a part; their codes are those of the graph that holds them all, which may be
        mapped."""
        with self._lock:
            indexed = self._indexed.get(part.serial)
            shared = None if covered is None else covered.whole.get(part.serial)
            if shared is not None and covered is not None and isinstance(part.vectors, DenseBlock):
                graph, rows = covered.graphs[shared[0]].graph, slice(shared[1], shared[1] + len(part))
                codes = graph.codes[rows]
                held = None if indexed is None else indexed.items
                if not isinstance(held, DenseItems) or not np.shares_memory(held.codes, codes):
                    indexed = Indexed(DenseItems(part.vectors.values, codes, graph.bounds[rows]))
            if indexed is None:
                indexed = Indexed(as_items(part.vectors))
            self._indexed[part.serial] = indexed
            return indexed


def _graph_terms(norms: Norms, covered: Covered) -> tuple[GraphTerms, ...]:
    """What the form multiplies or adds for each row of each graph: that of the object which stands for it."""
    there = [norms.parts[serial] for serial in covered.serials]
    found = []
    for one, places in zip(covered.graphs, covered.places, strict=True):
        both: list[Float32s | None] = []
        for name in ("scale", "offset"):
            arrays = [getattr(part, name) for part in there]
            if any(array is None for array in arrays):
                both.append(None)
                continue
            terms = np.concatenate(arrays)[np.maximum(places, 0)]
            both.append(np.where(places >= 0, terms, np.float32(0)).astype(np.float32))
        found.append(GraphTerms.of(one.graph, both[0], both[1]))
    return tuple(found)


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


def _guard(view: View, norms: Norms, graphs: GraphSearch) -> GuardResult:
    """How wide walks have to be under this model, by the newest questions and by evenly spaced objects."""
    ready = ReadySnapshot.of(norms, norms.snapshot)
    queries, own = _sample(norms.snapshot, graphs.asked(QUERIES), view.dim)
    folded = folded_queries(view, queries)
    usable = np.isfinite(folded).all(axis=1)
    folded, own = folded[usable], own[usable]
    alive = [part.alive for part in norms.snapshot.parts]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in norms.snapshot.parts])]).astype(np.int64)

    def rows_of(parts: Int64s, rows: Int64s) -> Int64s:
        return np.where(rows >= 0, starts[parts] + rows, -1)

    exact = rows_of(*exactly(ready, folded, alive, TOP + 1)[1:])

    def recall_at(width: int) -> tuple[float, float]:
        (_, parts, rows), _ = nearly(ready, folded, alive, TOP + 1, width)
        return recall(exact, rows_of(parts, rows), own)

    guarded = choose_width(recall_at, ready.graphs.rows, graphs.recall)
    return replace(guarded, model=str(view.model), items=len(norms.snapshot))


def _sample(snapshot: IndexSnapshot, asked: Block | None, dim: int) -> tuple[Block, Int64s]:
    """(queries, the row of all parts that each of them is, -1 where that is not known)."""
    blocks = [] if asked is None or asked.dim != dim else [asked.slice(0, QUERIES)]
    own = [np.full(len(block), -1, np.int64) for block in blocks]
    living = np.concatenate([part.living for part in snapshot.parts]).nonzero()[0]
    left = min(QUERIES - sum(map(len, blocks)), len(living))
    if left > 0:
        chosen = living[np.linspace(0, len(living) - 1, left).astype(np.int64)]
        start = 0
        for part in snapshot.parts:
            rows = chosen[(chosen >= start) & (chosen < start + len(part))]
            if len(rows):
                blocks.append(part.vectors.take(rows - start))
                own.append(rows)
            start += len(part)
    return concatenate(blocks), np.concatenate(own)
