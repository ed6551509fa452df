"""A followed alias as a user's program holds it, the items that it searches, and its answers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
from scipy.sparse import issparse

from daemon.replica.keys import KeyModels, SeenVerdicts
from daemon.replica.replica import Replica
from daemon.replica.settings import Hooks, OpenStepLog, VersionSource
from daemon.replica.vectors import GivenView, Mode, VectorMaker, WantedVector
from daemon.replica.view import ModelId, ReplicaStatus, View
from daemon.versions.forms import KeyedForm
from learners.block import Block, Float32s, SparseBlock
from learners.errors import BlockError, require_whole
from learners.forms.quadratic import featured
from learners.maps import FittedSpaceMap
from learners.maps.queries import QueryMaps
from learners.search import SHORTLIST, as_items, best_of, exact_scores, topk
from streams.poison import Poison
from streams.queries import map_for

OWN = "own"


@dataclass(frozen=True, slots=True)
class Similar:
    """The most similar items, best first, equal scores by ascending row.

    rows: in the items given; ids: theirs, where they have some, else (). model: what the scores are from.
    formed: records since version 0 at which the form of the scores was computed; equal to `model.total`,
    except where steps are followed: from there the form is carried over (see `learners.forms.carried`).
    Norms are of the form at `formed` for `Items` that were there when it was made, and of the carried one
    for all others. Every item was looked at. by: "" without a key, `OWN` where the key's own model
    answered, else why version 0 did: "unknown_key" or "not_learned". Iterating gives (id, score), or (row,
    score) without ids.
    """

    rows: tuple[int, ...]
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    model: ModelId
    formed: int
    by: str = ""

    @property
    def version(self) -> str:
        """ "12" at version 12, "12+3400" that many events behind it."""
        return str(self.model)

    @property
    def watermark(self) -> int | None:
        """Newest event time learned by the model, ms since the epoch; None before any."""
        return self.model.watermark

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[str | int, float]]:
        return iter(zip(self.ids or self.rows, self.scores, strict=True))


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors for an index of your own, made by `Model.fold` and `Model.embed`.

    rows: float32 [n, dim], or scipy's CSR where the space is sparse and they are. similarity: what of a query
    and a document is the served score, `inner_product` or `squared_euclidean`, minus the square of the
    distance; of folded ones up to what is each document's own. symmetric: whether an object has one vector as
    a query and as a document. model: what made them: vectors of different versions do not go together.
    views: where each view lies in a folded vector.
    """

    rows: Any
    similarity: str
    symmetric: bool
    model: ModelId
    views: tuple[GivenView, ...]


@dataclass(frozen=True, slots=True)
class PreparedItems:
    """Items under one model. terms: what `View.terms` gives of each, float32 [n], None where scores need
    nothing. features: float32 [n, F], see `learners.forms.quadratic.FeaturedForm`; None where there are
    none."""

    terms: Float32s | None
    features: Float32s | None = None


class Items:
    """Objects mapped once, to be searched again and again: made by `Model.items`.

    Their norms are computed for each model before it answers, off the path of callers.
    """

    def __init__(self, mapped: Block, ids: Sequence[str]) -> None:
        if len(ids) not in (0, len(mapped)):
            raise ValueError(f"{len(ids)} ids for {len(mapped)} items: give one each, or none")
        self.mapped = mapped
        self.search = as_items(mapped)
        self.ids = tuple(ids)

    def __len__(self) -> int:
        return len(self.mapped)

    def ready(self, view: View, lasting: bool) -> PreparedItems:
        """What is computed of the items for a model. lasting: it will be used again, so that features are
        worth their time."""
        terms = view.terms(view.self_scores(self.mapped)) if view.has_terms else None
        known = view.form.features(self.mapped) if lasting and featured(view.form) else None
        return PreparedItems(terms, known)


Features: TypeAlias = Any
"""Objects in the user's own features: numbers in one axis (one object) or two, a scipy sparse array (views
that are sparse need one), or a mapping from view names to those; a space of a single view needs no name."""


def queries_in_views(fitted: FittedSpaceMap, maps: QueryMaps, queries: Features) -> Features:
    """Queries in the views of the space, those of other models mapped. Raises BlockError."""
    own = {name: view.dim_in for name, view in fitted.views.items()}
    named = isinstance(queries, Mapping) and not issparse(queries)
    if not named and len(own) > 1:
        return queries
    found: dict[str, Any] = {}
    for name, rows in (queries if named else dict.fromkeys(own, queries)).items():
        view, taken = name, rows
        if isinstance(rows, np.ndarray | list | tuple):
            given = np.atleast_2d(np.asarray(rows, np.float32))
            try:
                known = map_for(name, given.shape[-1], own.get(name), maps)
            except Poison as error:
                raise BlockError(error.detail) from None
            if known is not None:
                if given.shape[-1] != maps[known].dim:
                    raise BlockError(f"a vector of {known} has {maps[known].dim} numbers")
                view, taken = maps[known].view, np.stack([maps[known].given(row) for row in given])
        if view in found:
            raise BlockError(f"view {view} is given by two models")
        found[view] = taken
    return found


PreparedOf: TypeAlias = MutableMapping[Items, PreparedItems]

KEYS_HELD = 64
"""Models of single keys that are ready to answer; others are made when asked."""


class Model:
    """A followed alias, made by `follow`. Safe to call from any number of threads; close it, or use it in
    `with`.

    Vectors that do not fit the space raise learners.errors.LearnerError, and NotServing says why nothing can
    be answered.
    """

    def __init__(
        self, source: VersionSource, fitted: FittedSpaceMap, alias: str, steps: OpenStepLog | None = None
    ) -> None:
        self._fitted, self._maker = fitted, VectorMaker(fitted)
        self._lock = threading.Lock()
        self._known: weakref.WeakSet[Items] = weakref.WeakSet()
        verdicts = SeenVerdicts()
        self._keys = KeyModels(verdicts.now, KEYS_HELD)
        hooks = Hooks(prepare=self._prepare, on_ledger=verdicts.take if source.space.keys.slots else None)
        self._replica = Replica(alias, source, hooks=hooks, steps=steps)
        self._replica.start()

    def similar(
        self, query: Features, items: Items | Features, k: int = 10, *, key: str | None = None
    ) -> Similar:
        """The k items most similar to one query, exactly; fewer where there are fewer. Of a model whose
        similarity does not fold, the best of the SHORTLIST items nearest by cosine; of a version that orders
        lists alone, the first items of the user's own ranking in order.

        key: whose model answers, where one is learned per key; version 0 does where that has learned nothing
        yet, and without a key. Raises ValueError where one model answers everybody, and BlockError for a
        query that holds a value that is not finite.
        """
        require_whole("k", k, BlockError)
        own = self._items(items)
        with self._read(key) as (view, by):
            block = self._map_queries(view, query)
            if len(block) != 1:
                raise ValueError(f"expected one query, not {len(block)}: ask one by one, or see `scores`")
            folded, ready = view.fold(block), self._ready(own, view, by)
            model, formed = view.model, view.formed
            scale, offset = (ready.terms, None) if view.normalised else (None, ready.terms)
            least = SHORTLIST if view.rescored else view.reordered_first
            room = k if k < 0 else max(k, least)  # which is refused
            scores, rows = topk(folded, own.search, scale, None, min(room, len(own)), offset=offset)
            if view.rescored:
                near = rows[0][rows[0] >= 0]
                known = None if ready.features is None else ready.features[near]
                exact = exact_scores(view.form, block, own.mapped.take(near), known)
                scores, rows = best_of(exact, near, min(k, len(own)))
            else:
                scores = view.with_queries(block, scores)
            if view.reordered_first:
                first = own.mapped.take(rows[0][: view.reordered_first])
                places, ordered = view.reordered(block, first, scores[0])
                rows, scores = rows[:, places[:k]], ordered[None, :k]
        found = tuple(int(row) for row in rows[0] if row >= 0)
        ids = tuple(own.ids[row] for row in found) if own.ids else ()
        return Similar(found, ids, tuple(map(float, scores[0][: len(found)])), model, formed, by)

    def scores(self, queries: Features, items: Items | Features, *, key: str | None = None) -> Float32s:
        """Scores of all pairs, float32 [queries, items], all from one model, by its order where it has one;
        key: as in `similar`. NaN for a query that holds a value that is not finite."""
        own = self._items(items)
        with self._read(key) as (view, by):
            block = self._map_queries(view, queries)
            terms = None if view.rescored else self._ready(own, view, by).terms
            return view.given_scores(block, own.mapped, terms)

    def items(self, vectors: Features, ids: Sequence[str] = ()) -> Items:
        """Objects to be searched many times, mapped now; ids: names for them in answers."""
        made = Items(self._map(vectors), ids)
        with self._lock:
            self._known.add(made)
        self._replica.prepare_again()
        return made

    def fold(self, queries: Features, mode: Mode = "folded") -> Vectors:
        """What to ask an index of your own with. `folded`: for one that holds the vectors as you gave them,
        those of several views side by side; the products are the served scores up to each object's norm.
        `embedded`: for one that holds what `embed`, or `tripletd models export --out`, gives of the same
        version; the products are the served scores. Raises NoVectorsError where there are none."""
        with self._replica.read() as view:
            mapped = self._map_queries(view, queries)
        return self._vectors(mapped, mode)

    def embed(self, objects: Features) -> Vectors:
        """What an index of your own is to hold of objects, for queries that are `embedded`. Raises
        NoVectorsError where there is none."""
        return self._vectors(self._map(objects), "document")

    def _vectors(self, mapped: Block, wanted: WantedVector) -> Vectors:
        made = self._maker.make(self._replica.read, mapped, wanted)
        rows = made.rows.checked_csr() if isinstance(made.rows, SparseBlock) else made.rows.values
        return Vectors(rows, made.similarity, made.symmetric, made.model, made.views)

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

    @contextmanager
    def _read(self, key: str | None) -> Iterator[tuple[View, str]]:
        """The model that answers, and `Similar.by`."""
        with self._replica.read() as view:
            if key is None:
                yield view, ""
                return
            if not isinstance(view.form, KeyedForm):
                raise ValueError("one model answers everybody here: leave key out (see keys.slots)")
            found = self._keys.choose(view, key)
            if isinstance(found, str):
                yield view, found
                return
            own = found.model
            if own.prepared is None:
                own.prepared = weakref.WeakKeyDictionary()
            yield replace(view, form=own.form, formed=found.formed, prepared=own.prepared), OWN

    def _map(self, vectors: Features) -> Block:
        return self._fitted.transform(vectors)

    def _map_queries(self, view: View, queries: Features) -> Block:
        return self._map(queries_in_views(self._fitted, view.queries, queries) if view.queries else queries)

    def _items(self, items: Items | Features) -> Items:
        return items if isinstance(items, Items) else Items(self._map(items), ())

    def _prepare(self, view: View) -> PreparedOf:
        with self._lock:
            known = list(self._known)
        return weakref.WeakKeyDictionary({items: items.ready(view, lasting=True) for items in known})

    def _ready(self, items: Items, view: View, by: str) -> PreparedItems:
        """What was prepared; of a key's model, whose form never moves, what was computed once stays."""
        prepared: PreparedOf = {} if view.prepared is None else view.prepared
        if items in prepared:
            return prepared[items]
        ready = items.ready(view, lasting=by == OWN)
        if by == OWN:
            prepared[items] = ready
        return ready
