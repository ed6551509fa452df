"""From queries to hits: a model's view, the catalog's snapshot and the norms made for both; the models of
single keys; and how work off the path gives way to queries.

Long work is cut into short pieces, with a rest after each while queries come. A thread of low priority is
not enough. A system preempts a computing thread for one that wakes up, but not always at once: on Linux it
may run to the next tick, 4 ms at 250 Hz, and a query wakes up half a dozen threads one after the other. A
thread that computes half a millisecond and sleeps is in nobody's way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from daemon.replica.keys import HOLD_S, HeldModel, KeyModels
from daemon.replica.replica import Replica
from daemon.replica.view import NotServing, View
from daemon.serve.items.snapshot import IndexSnapshot
from daemon.serve.query import OWN, VERSION_0, Answered, Answers, ByKey, OrderedBy, Query, QueryError
from daemon.serve.retrieve.explaining import Explainer, Searched
from daemon.serve.retrieve.finding import Finder, Ordering, Rescoring, lowered
from daemon.serve.retrieve.norms import GraphSearch, Preparer
from daemon.serve.retrieve.part import (
    QUERIES,
    GuardResult,
    Norms,
    ReadySnapshot,
    answerable,
    folded_queries,
    own_scores,
)
from daemon.versions.forms import KeyedForm
from daemon.versions.key_verdicts import KeyVerdicts
from learners.block import Block, concatenate
from learners.maps.queries import QueryMaps
from learners.search import SHORTLIST

ROOM = 64


class Observing(Protocol):
    """Counts models that are made and asked."""

    def made(self, held: int) -> None:
        """A model was made; now so many are held."""

    def answered(self, model: str) -> None:
        """Queries with a key are being answered, by its `OWN` model or by `VERSION_0`."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """room: most models held. hold_s: how long one answers behind a version before it is recomputed.
    verdicts: those in force now. observe: counts the models that are made and asked."""

    room: int = ROOM
    hold_s: float = HOLD_S
    verdicts: Callable[[], KeyVerdicts] = KeyVerdicts
    observe: Observing | None = None


KEY_SETTINGS = KeySettings()


class KeySearch:
    """Finds the model that a key is answered by. Memory: of each of `room` models its form, and one float32
    per item. Any thread; one at a time computes norms.
    """

    def __init__(self, preparer: Preparer, settings: KeySettings) -> None:
        self._preparer, self._observe = preparer, settings.observe
        made = (lambda held: None) if settings.observe is None else settings.observe.made
        self._models = KeyModels(settings.verdicts, settings.room, made, hold_s=settings.hold_s)
        self._serials: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def choose(self, view: View, key: str, snapshot: IndexSnapshot) -> tuple[View | None, ByKey]:
        """The key's own model, its norms of this snapshot in `prepared`, and what is said of that; None where
        version 0 answers. Raises QueryError where there is one model for all.
        """
        if not isinstance(view.form, KeyedForm):
            remedy = "leave key out; keys.slots makes a learner keep one model per key"
            raise QueryError("no_keys", "one model answers everybody here", "key", remedy)
        found = self._models.choose(view, key)
        if isinstance(found, str):
            chosen, by = None, ByKey(key, VERSION_0, found, None)
        else:
            chosen, by = self._ready(view, found.model, snapshot), ByKey(key, OWN, None, found.formed)
        if self._observe is not None:
            self._observe.answered(by.model)
        return chosen, by

    def _ready(self, view: View, model: HeldModel, snapshot: IndexSnapshot) -> View:
        with self._lock:
            self._forget_parts(snapshot)
            own = replace(view, form=model.form, formed=0, prepared=model.prepared)  # one form, one `formed`
            if model.prepared is None or not model.prepared.cover(snapshot):
                began = time.monotonic()
                model.prepared = self._preparer.norms(own, snapshot, on_demand=True)
                model.seconds += time.monotonic() - began
            return replace(own, prepared=model.prepared)

    def _forget_parts(self, snapshot: IndexSnapshot) -> None:
        """Let go of norms of parts that are gone: they hold the items they were made of."""
        serials = frozenset(part.serial for part in snapshot.parts)
        if serials != self._serials:
            self._serials = serials
            for model in self._models.held():
                if isinstance(model.prepared, Norms):
                    model.prepared = model.prepared.within(snapshot)


PIECE_S = 0.0005
ALONE_S = 0.01
"""How long a piece may take while questions come, and while nobody asks."""
ASKED_S = 1.0
"""For how long after a question the next one is expected."""


class Pace:
    """Cuts work into pieces by how long the last one took. Any thread; `pieces` once per piece of work."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._asked_at = float("-inf")

    def asked(self) -> None:
        """A question has come."""
        self._asked_at = self._clock()

    def pieces(self, count: int) -> Iterator[slice]:
        """Slices of range(count), in order, the first one of 1; after each a rest as long as it took, where
        a question came within ASKED_S.
        """
        start, size = 0, 1
        while start < count:
            began = self._clock()
            yield slice(start, min(start + size, count))
            start += size
            spent = self._clock() - began
            busy = self._clock() - self._asked_at < ASKED_S
            if busy:
                self._sleep(spent)
            size = next_size(size, spent, PIECE_S if busy else ALONE_S)


def next_size(size: int, spent_s: float, wanted_s: float) -> int:
    """The size that would have taken `wanted_s`, at most twice the last one, at least 1."""
    return max(1, min(2 * size, int(size * wanted_s / max(spent_s, 1e-9))))


Lookup: TypeAlias = Callable[[Sequence[Query], IndexSnapshot, QueryMaps], Sequence[Block | QueryError]]
"""The mapped vector (a block of one row) of each query, or why it has none."""

NOT_FOUND, NOT_YET = 404, 503


class Searcher:
    """Answers queries under the aliases of `replicas`. Any thread; of a search it keeps only when
    it was, since `prepare` gives way while questions come.

    snapshot: gives the newest state of the catalog. lookup: finds the vectors of queries. graphs: search
    over graphs where it is worth it and the recall guard lets it, None for exact search alone. shortlist:
    items scored for each query of a model whose scores are no inner products. observe: called with what the
    guard found. keys: how queries with a key are answered. explainer: explains hits where that is asked, None
    nowhere. `prepare`, `warm` and `sample` are the hooks of every replica (`Hooks`): `prepare` computes the
    norms of all items off the path, `warm` searches once.

    A view is searched in the newest snapshot when its norms cover it, else in the one they were made for,
    less what was removed since: a removal counts at once, a new or changed object once `prepare` has run.
    `prepare` keeps what `view.prepared` holds of the same form, and then makes norms of new objects alone.
    """

    def __init__(
        self,
        replicas: Mapping[str, Replica],
        snapshot: Callable[[], IndexSnapshot],
        lookup: Lookup,
        graphs: GraphSearch | None = None,
        observe: Callable[[GuardResult], None] | None = None,
        *,
        shortlist: int = SHORTLIST,
        keys: KeySettings = KEY_SETTINGS,
        explainer: Explainer | None = None,
    ) -> None:
        self._shortlist, self._explainer = shortlist, explainer
        self._replicas, self._snapshot, self._lookup = replicas, snapshot, lookup
        self._pace = Pace()
        self._asked: deque[Block] = deque(maxlen=QUERIES)
        if graphs is not None:
            graphs = replace(graphs, asked=self._newest)
        self._sampling = graphs is not None
        self._preparer = Preparer(graphs, observe, self._pace.pieces)
        self._keys = KeySearch(self._preparer, keys)

    def prepare(self, view: View) -> Norms:
        """What `view.prepared` is to be: the norms of all items. Called off the path."""
        return self._preparer.norms(view, self._snapshot())

    def warm(self, view: View) -> None:
        """One dry search, so that the first answer pays nothing. QueryError when the model cannot answer."""
        vectors = self.sample(1)
        if vectors is not None:
            norms = self._norms(view)
            asked = _Asked([Query(k=1)], [vectors])
            (found,) = _answer(view, norms, norms.snapshot, asked, shortlist=self._shortlist)
            if isinstance(found.result, QueryError):
                raise found.result

    def sample(self, most: int) -> Block | None:
        """At most `most` mapped items, evenly spaced in the largest part, the same ones while it lives;
        None where there is no item.
        """
        part = max(self._snapshot().parts, key=len, default=None)
        if part is None or len(part) == 0:
            return None
        return part.vectors.take(np.linspace(0, len(part) - 1, min(most, len(part))).astype(np.int64))

    def _newest(self, most: int) -> Block | None:
        blocks = [*self._asked][-most:]
        return concatenate(blocks) if blocks else None

    def search(
        self, alias: str, queries: Sequence[Query], between: Callable[[], None] = lambda: None
    ) -> Answers:
        """All answers from one view of the alias' model. Raises QueryError when nothing can be answered.

        between: called before each scan of the items; what it raises ends the search.
        """
        self._pace.asked()
        replica = self._replicas.get(alias)
        if replica is None:
            served = ", ".join(self._replicas)
            raise QueryError(
                "unknown_alias", "no such alias is served", "alias", f"served: {served}", NOT_FOUND
            )
        try:
            with replica.read() as view:
                return self.search_view(view, queries, between)
        except NotServing as error:
            raise QueryError("not_serving", str(error), "alias", "ask again shortly", NOT_YET) from error

    def search_view(
        self, view: View, queries: Sequence[Query], between: Callable[[], None] = lambda: None
    ) -> Answers:
        """The same for a view at hand, such as that of any version; prepares it on the spot if need be."""
        norms = self._norms(view)
        snapshot = norms.searchable(self._snapshot())
        if snapshot.map_id != view.map_id:
            remedy = "ask again shortly; else start `tripletd serve` again"
            raise QueryError("other_map", "the items were mapped for another model", "", remedy, NOT_YET)
        vectors = answerable(view, queries, self._lookup(queries, snapshot, view.queries))
        asked = _Asked(queries, vectors)
        if self._sampling:
            self._asked.extend(one for one in asked.vectors if not isinstance(one, QueryError))
        groups = _places_by_key(queries)
        found: dict[int, Answered] = {}
        for key, places in groups.items():
            mine = asked if len(groups) == 1 else asked.at(places)
            answered = self._found(view, norms, snapshot, mine, key=key, between=between)
            found |= zip(places, answered, strict=True)
        return Answers(view.model, view.formed, [found[place] for place in range(len(queries))])

    def _found(
        self,
        view: View,
        norms: Norms,
        snapshot: IndexSnapshot,
        asked: _Asked,
        *,
        key: str | None,
        between: Callable[[], None],
    ) -> list[Answered]:
        by = None
        if key is not None:
            between()
            try:
                own, by = self._keys.choose(view, key, snapshot)
            except QueryError as refused:
                return [Answered(refused)] * len(asked.queries)
            if own is not None:
                view, norms = own, own.prepared
        found = _answer(view, norms, snapshot, asked, shortlist=self._shortlist, between=between)
        for place, (query, vector) in enumerate(zip(asked.queries, asked.vectors, strict=True)):
            result = found[place].result
            if self._explainer is None or not query.explain:
                continue
            if not isinstance(result, QueryError) and not isinstance(vector, QueryError):
                between()
                order = view.order if found[place].ordered_by == "order" else None
                scored = view if order is None else replace(view, form=order)
                searched = Searched(scored, norms, snapshot, query, vector)
                found[place] = replace(found[place], result=self._explainer.explained(searched, result))
        return found if by is None else [replace(one, by=by) for one in found]

    def _norms(self, view: View) -> Norms:
        held = view.prepared
        return held if isinstance(held, Norms) else self._preparer.norms(view, self._snapshot())


@dataclass(frozen=True, slots=True)
class _Asked:
    queries: Sequence[Query]
    vectors: Sequence[Block | QueryError]

    def at(self, places: Sequence[int]) -> _Asked:
        """The queries at these places."""
        return _Asked([self.queries[place] for place in places], [self.vectors[place] for place in places])


def _places_by_key(queries: Sequence[Query]) -> dict[str | None, list[int]]:
    """Places of the queries of each key, None for those without one."""
    places: dict[str | None, list[int]] = {}
    for place, query in enumerate(queries):
        places.setdefault(query.key, []).append(place)
    return places


def _answer(
    view: View,
    norms: Norms,
    snapshot: IndexSnapshot,
    asked: _Asked,
    *,
    shortlist: int,
    between: Callable[[], None] = lambda: None,
) -> list[Answered]:
    answered = [Answered(one if isinstance(one, QueryError) else ()) for one in asked.vectors]
    places = [place for place, one in enumerate(asked.vectors) if not isinstance(one, QueryError)]
    blocks = [one for one in asked.vectors if not isinstance(one, QueryError)]
    if not blocks:
        return answered
    block = blocks[0] if len(blocks) == 1 else concatenate(blocks)
    folded = folded_queries(view, block)
    usable = np.isfinite(folded).all(axis=1)
    if not usable.all():
        for place in np.array(places)[~usable].tolist():
            remedy = "send a vector of ordinary length"
            error = QueryError("magnitude", "too large to be scored by this model", "", remedy)
            answered[place] = Answered(error)
        good = np.flatnonzero(usable)
        places, block, folded = [places[at] for at in good.tolist()], block.take(good), folded[good]
    ready = ReadySnapshot.of(norms, snapshot)
    rescoring = None
    if view.rescored:
        features = [part.features for part in ready.parts]
        rescoring = Rescoring(view.form, block, features, shortlist)
    queries = [asked.queries[place] for place in places]
    own = own_scores(view, folded, block).tolist()
    ordering = None if view.order is None else Ordering(view, block)
    finder = Finder(ready, queries, folded, rescoring, ordering)
    for place, query, found, less in zip(places, queries, finder.find(between), own, strict=True):
        assert not isinstance(found.result, QueryError)
        if finder.by_order(query):
            answered[place] = replace(found, ordered_by="order")
            continue
        by: OrderedBy | None = None if ordering is None else "form"
        answered[place] = replace(found, result=lowered(found.result, less), ordered_by=by)
    return answered
