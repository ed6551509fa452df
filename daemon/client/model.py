"""A followed alias as a user's program holds it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

from daemon.client.answers import Similar
from daemon.client.items import Items
from daemon.replica.model import ModelId
from daemon.replica.replica import Replica
from daemon.replica.settings import Hooks, Shelf, Steps
from daemon.replica.status import ReplicaStatus
from daemon.replica.view import View
from learners.block import Block, Float32s, as_block
from learners.maps import FittedSpaceMap
from learners.quadratic import apply_terms
from learners.scores import against
from learners.search import SHORTLIST, rescored, topk

Vectors: TypeAlias = Any
"""Objects in the user's own features: numbers in one axis (one object) or two, a scipy sparse array (views
that are sparse need one), or a mapping from view names to those; a space of a single view needs no name."""

Prepared: TypeAlias = Mapping[Items, Float32s | None]


class Model:
    """A followed alias, made by `follow`. Safe to call from any number of threads; close it, or use it in
    `with`.

    Vectors that do not fit the space raise learners.errors.LearnerError, and NotServing says why nothing can
    be answered.
    """

    def __init__(self, shelf: Shelf, fitted: FittedSpaceMap, alias: str, steps: Steps | None = None) -> None:
        self._fitted = fitted
        self._lock = threading.Lock()
        self._known: weakref.WeakSet[Items] = weakref.WeakSet()
        self._replica = Replica(alias, shelf, hooks=Hooks(prepare=self._prepare), steps=steps)
        self._replica.start()

    def similar(self, query: Vectors, items: Items | Vectors, k: int = 10) -> Similar:
        """The k items most similar to one query, exactly; fewer where there are fewer. Of a model whose
        similarity does not fold, the best of the SHORTLIST items nearest by cosine."""
        own, block = self._items(items), self._map(query)
        if len(block) != 1:
            raise ValueError(f"expected one query, not {len(block)}: ask one by one, or see `scores`")
        with self._replica.read() as view:
            folded, terms, model, formed = view.fold(block), self._terms(own, view), view.model, view.formed
            scale, offset = (terms, None) if view.normalised else (None, terms)
            room = max(k, SHORTLIST) if view.rescored else k
            scores, rows = topk(folded, own.search, scale, None, min(room, len(own)), offset=offset)
            if view.rescored:
                scores, rows = rescored(view.form.scores, block, own.mapped, rows[0], min(k, len(own)))
            else:
                scores = _of_queries(view, block, scores)
        found = tuple(int(row) for row in rows[0] if row >= 0)
        ids = tuple(own.ids[row] for row in found) if own.ids else ()
        return Similar(found, ids, tuple(map(float, scores[0][: len(found)])), model, formed)

    def scores(self, queries: Vectors, items: Items | Vectors) -> Float32s:
        """Scores of all pairs, float32 [queries, items], all from one model."""
        own, block = self._items(items), self._map(queries)
        with self._replica.read() as view:
            if view.rescored:
                return view.form.scores(block, own.mapped)
            scores, terms = against(view.fold(block), own.mapped), self._terms(own, view)
            if terms is not None:
                scores = apply_terms(view.search, scores, terms)
            return _of_queries(view, block, scores)

    def items(self, vectors: Vectors, ids: Sequence[str] = ()) -> Items:
        """Objects to be searched many times, mapped now; ids: names for them in answers."""
        made = Items(self._map(vectors), ids)
        with self._lock:
            self._known.add(made)
        self._replica.prepare_again()
        return made

    @property
    def model(self) -> ModelId:
        """What answers now: `str` names the version, `watermark` the newest event time learned."""
        with self._replica.read() as view:
            return view.model

    def status(self) -> ReplicaStatus:
        """What is served, since when, why not newer, and what was refused."""
        return self._replica.status()

    def close(self) -> None:
        """Stop following, within seconds."""
        self._replica.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _map(self, vectors: Vectors) -> Block:
        if not isinstance(vectors, Mapping):
            (view, *others) = self._fitted.views
            if others:
                raise ValueError(
                    f"the space has several views, name them: {{{view!r}: ..., {others[0]!r}: ...}}"
                )
            vectors = {view: vectors}
        return self._fitted.transform({name: as_block(x) for name, x in vectors.items()})

    def _items(self, items: Items | Vectors) -> Items:
        return items if isinstance(items, Items) else Items(self._map(items), ())

    def _prepare(self, view: View) -> Prepared:
        """Norms of all items that are to be searched again, before a model answers."""
        with self._lock:
            known = list(self._known)
        return weakref.WeakKeyDictionary({items: items.terms(view) for items in known})

    def _terms(self, items: Items, view: View) -> Float32s | None:
        prepared: Prepared = view.prepared if view.prepared is not None else {}
        return prepared[items] if items in prepared else items.terms(view)


def _of_queries(view: View, queries: Block, scores: Float32s) -> Float32s:
    """Scores [queries, any] with what is the queries' own."""
    if view.has_terms:
        own = view.terms(view.self_scores(queries))[:, None]
        return apply_terms(view.search, scores, own)
    return scores
