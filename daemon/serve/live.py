"""Replicas, items and search, opened as soon as a version says their space; the account of freshness."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints import Ledger, VersionStore
from checkpoints.entries import LATEST
from daemon.catalogs import folders
from daemon.config.schema import Config
from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.memory.fits import as_learned, require_role
from daemon.replica.explore import VersionCache
from daemon.replica.keys import SeenVerdicts
from daemon.replica.replica import Replica
from daemon.replica.settings import Flip, FollowSettings, Hooks, VersionSource, read_space, step_log_of
from daemon.replica.vectors import (
    GivenView,
    MadeVectors,
    NoVectorsError,
    VectorMaker,
    WantedVector,
    as_numbers,
)
from daemon.replica.view import ModelSpace, NotServing, ReplicaStatus
from daemon.runtime.watchdog import BackgroundThread, end_all
from daemon.serve import retrieve
from daemon.serve.clicks import RecentClicks
from daemon.serve.freshness import Freshness
from daemon.serve.items.catalog import CatalogStatus, ServingCatalog, build_catalog
from daemon.serve.items.snapshot import IndexSnapshot, resolve
from daemon.serve.query import (
    AnsweringModel,
    Answers,
    FoldedView,
    Numbers,
    OrderedBy,
    Query,
    QueryError,
    ScoreAnswers,
    VectorAnswers,
)
from daemon.serve.retrieve.explaining import Explainer
from daemon.serve.retrieve.part import answerable
from daemon.versions.forms import KeyedForm
from learners.block import Block, DenseBlock, Float32s, SparseBlock, concatenate
from learners.maps import FittedSpaceMap
from learners.maps.queries import QueryMaps
from learners.search import kept_scores
from streams.limits import MAX_MAGNITUDE
from streams.objects.rows import Tell
from streams.open import open_source

Record = Callable[[str, NDArray[np.float64], NDArray[np.int64]], None]
"""Takes alias, ages in seconds [n], how many events had each [n]."""


@dataclass(frozen=True, slots=True)
class _CountedState:
    """The state up to which the accounts have counted all events: its records, events and newest event time
    (ms).

    whole: it is a version of an alias other than `latest`, whose events may still come from the step log.
    """

    version: int
    total: int
    events: int
    watermark: int | None
    whole: bool = False


class FreshnessWatcher:
    """One account per alias. Events that any replica reads from the step log are counted in all of them. So
    are the events of a whole version that the step log did not carry: as many as the version counts beyond
    those known, at times spaced evenly from the newest known one to its own newest.

    Called by the replicas' threads and by the server's; `now_ms` is the wall clock, as event times are.
    since_ms: see `Freshness`.
    """

    def __init__(
        self,
        aliases: Sequence[str],
        record: Record,
        horizon_s: float,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        since_ms: int = 0,
    ) -> None:
        self._accounts = {alias: Freshness(horizon_s, since_ms) for alias in aliases}
        self._begun: set[str] = set()
        self._counted: _CountedState | None = None
        self._record, self._now_ms = record, now_ms
        self._lock = threading.Lock()

    def flipped(self, flip: Flip) -> None:
        """A model has become the one that answers."""
        model, now_ms = flip.model, self._now_ms()
        with self._lock:
            self._hear(flip, now_ms)
            for account in self._accounts.values():
                account.cut(model.total - model.behind)
            if flip.alias not in self._begun:
                self._begun.add(flip.alias)
                self._accounts[flip.alias].begin(model.total)

    def _hear(self, flip: Flip, now_ms: int) -> None:
        model, counted = flip.model, self._counted
        if flip.events is not None:
            self._hear_version(flip, flip.events, now_ms)
        elif counted is None or model.total > counted.total or not counted.whole:
            for account in self._accounts.values():
                account.learned(model.total, flip.event_times, now_ms)
            if counted is not None and model.total > counted.total:
                events = counted.events + len(flip.event_times)
                self._counted = _CountedState(model.version, model.total, events, model.watermark)

    def _hear_version(self, flip: Flip, events: int, now_ms: int) -> None:
        """A whole version answers: count the events that it has beyond those counted so far."""
        model, counted = flip.model, self._counted
        known = _CountedState(model.version, model.total, events, model.watermark, flip.alias != LATEST)
        if counted is None or (model.version > counted.version and model.total < counted.total):
            self._counted = known  # the beginning, or another line of versions
            for account in self._accounts.values():
                account.another_line(model.total)
        elif model.total > counted.total:
            self._counted = known
            if model.watermark is not None:
                first = model.watermark if counted.watermark is None else counted.watermark
                for account in self._accounts.values():
                    account.learned_between(
                        model.total, first, model.watermark, events - counted.events, now_ms
                    )

    def answered(self, alias: str, model: AnsweringModel) -> None:
        """An answer of `model` is on its way."""
        account = self._accounts[alias]
        if not account.groups:  # as most times: every event that was learned has been in an answer
            return
        now_ms = self._now_ms()
        with self._lock:
            ages = account.answered(model.total, now_ms)
        if ages is not None:
            self._record(alias, ages.seconds, ages.counts)

    def waiting(self) -> dict[str, int]:
        """By alias, learned events that no answer has used yet."""
        with self._lock:
            return {alias: account.waiting for alias, account in self._accounts.items()}


log = structlog.get_logger("tripletd.serve")

GRAPHS = "graphs"
"""Of the folder where what was read of objects is kept."""

LEAVE_S = 0.5
"""How long threads may take to end. One that reads a version is not waited for: nothing is lost with it."""


@dataclass(frozen=True, slots=True)
class OpenedServing:
    """The parts, once there. fitted: the map of all versions that can be served. verdicts: on single keys."""

    space: ModelSpace
    fitted: FittedSpaceMap
    catalog: ServingCatalog
    replicas: dict[str, Replica]
    searcher: retrieve.Searcher
    explorer: VersionCache
    verdicts: SeenVerdicts
    clicks: RecentClicks
    vectors: VectorMaker
    lookup: retrieve.Lookup
    keeper: retrieve.GraphKeeper | None

    def maps(self, alias: str) -> QueryMaps:
        """What takes queries of other models to the space, by the model of an alias. Raises QueryError 503
        while there is none."""
        with _serving(), self.replicas[alias].read() as view:
            return view.queries

    @property
    def empty(self) -> Block:
        """No mapped objects."""
        dim = self.fitted.dim
        if not self.fitted.sparse:
            return DenseBlock(np.zeros((0, dim), np.float32))
        none = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return SparseBlock(np.zeros(1, np.int64), *none, dim)


class Live:
    """Answers once it is open; until then says why not. `open_when_there` is called again and again."""

    def __init__(
        self,
        config: Config,
        versions: VersionStore,
        ledger: Ledger,
        watcher: FreshnessWatcher,
        guarded: Callable[[retrieve.GuardResult], None],
        *,
        keys: retrieve.Observing | None = None,
        tell: Tell | None = None,
    ) -> None:
        """tell: receives the progress of reading objects; by default a log line."""
        self._config, self._versions, self._ledger, self._tell = config, versions, ledger, tell
        self._watcher, self._show_guarded, self._of_keys = watcher, guarded, keys
        self.opened: OpenedServing | None = None

    def _there(self) -> OpenedServing:
        if self.opened is None:
            remedy = "start `tripletd learn`"
            raise QueryError("not_serving", "there is no version yet", remedy=remedy, status=503)
        return self.opened

    def open_when_there(self) -> None:
        """Open everything when there is a version. UserError: a file of the configuration cannot be used."""
        if self.opened is not None:
            return
        found = read_space(self._versions)
        if found is None:
            return
        space, fitted = found
        if (newest := self._versions.newest_manifest()) is not None:
            require_role(as_learned(self._config, newest), "serve", established=newest.number > 0)
        catalog = build_catalog(self._config, fitted, tell=self._tell)
        source = VersionSource(self._versions, self._ledger, space, self._config.serving)
        replicas: dict[str, Replica] = {}
        serve = self._config.serve
        keeper = self._keeper(catalog, fitted.sparse)
        graphs = None if keeper is None else retrieve.GraphSearch(keeper.covered, serve.ann_recall)
        verdicts = SeenVerdicts()
        lookup = partial(resolve, space=catalog.space, fitted=catalog.fitted)
        clicks = RecentClicks(partial(open_source, self._config.stream.to_address()))
        searcher = retrieve.Searcher(
            replicas,
            lambda: catalog.current,
            lookup,
            graphs,
            self._guarded,
            shortlist=serve.shortlist,
            keys=retrieve.KeySettings(serve.key_models, serve.refine_every, verdicts.now, self._of_keys),
            explainer=Explainer(fitted.blocks, fitted.own, clicks.clicks_on),
        )
        on_ledger = verdicts.take if space.keys.slots else None
        hooks = Hooks(searcher.prepare, searcher.warm, self._watcher.flipped, searcher.sample, on_ledger)
        following = FollowSettings(serve.look_every, serve.refine_every, serve.refine_share)
        for alias in serve.aliases:
            replicas[alias] = Replica(alias, source, following, hooks, step_log_of(self._config, alias))
        explorer = VersionCache(source, Hooks(searcher.prepare))
        vectors = VectorMaker(fitted)
        parts = catalog, replicas, searcher, explorer, verdicts, clicks, vectors, lookup, keeper
        self.opened = OpenedServing(space, fitted, *parts)
        catalog.listen(lambda snapshot: self._items_changed())
        catalog.start()
        for replica in replicas.values():
            replica.start()
        if keeper is not None:
            keeper.start()
        log.info("opened", space=space.space, dim=space.dim, aliases=list(replicas))

    def search(self, alias: str, queries: Sequence[Query], between: Callable[[], None]) -> Answers:
        """All answers from one model of the alias; QueryError 503 while there is none."""
        return self._there().searcher.search(alias, queries, between)

    def vectors(self, alias: str, queries: Sequence[Query], wanted: WantedVector) -> VectorAnswers:
        """Vectors of objects for an index that is not ours, by one model of the alias. Raises QueryError
        where it has none, and 503 while there is no model."""
        opened = self._there()
        if wanted == "folded" and (rows := _given_rows(queries, opened.vectors.views)) is not None:
            with _serving():
                quick = opened.vectors.fold_given(opened.replicas[alias].read, rows)
            if quick is not None:
                return _vector_answers(quick, list(as_numbers(quick.rows)))
        found = self._looked_up(opened, alias, queries, as_documents=wanted == "document")
        places = [place for place, one in enumerate(found) if not isinstance(one, QueryError)]
        mapped = concatenate([one for one in found if not isinstance(one, QueryError)]) if places else None
        try:
            with _serving():
                made = opened.vectors.make(
                    opened.replicas[alias].read, opened.empty if mapped is None else mapped, wanted
                )
        except NoVectorsError as error:
            status = 503 if error.code == "busy" else 422
            raise QueryError(error.code, str(error), "alias", error.remedy, status) from error
        if isinstance(made.rows, DenseBlock) and made.rows.values.size > MOST_NUMBERS:
            message = f"{len(queries)} vectors of {made.rows.dim:,} numbers are too many for one answer"
            raise QueryError("too_many", message, "", f"ask for {MOST_NUMBERS // made.rows.dim} at a time")
        results: list[Numbers | QueryError] = [one if isinstance(one, QueryError) else [] for one in found]
        for place, row in zip(places, as_numbers(made.rows), strict=True):
            results[place] = row
        return _vector_answers(made, results)

    def fold_few(
        self, alias: str, vectors: Sequence[Float32s]
    ) -> tuple[AnsweringModel, Sequence[Float32s]] | None:
        """Queries by their given vectors, folded, float32 [dim] each, and by which model; None where that is
        not one small product by a form that is there: then `vectors` does it, or says why not.

        For the event loop itself: it waits for nobody, and handing this to a thread would take as long.
        """
        opened = self.opened
        if opened is None:
            return None
        rows = _sound_rows(vectors, opened.vectors.views)
        if rows is None or rows.size * rows.shape[1] > MOST_PRODUCTS:
            return None
        try:
            made = opened.vectors.fold_given(opened.replicas[alias].read, rows, begin=False)
        except NotServing:
            return None
        if made is None or not isinstance(made.rows, DenseBlock):
            return None
        return made.model, list(made.rows.values)

    def sample_queries(self, most: int) -> list[Numbers] | None:
        """Folded queries of some objects, by the model that answers where none is named; None while there is
        no model, no object, or no such queries."""
        opened = self.opened
        mapped = None if opened is None else opened.searcher.sample(most)
        if opened is None or mapped is None:
            return None
        try:
            read = opened.replicas[self._config.serve.aliases[0]].read
            made = as_numbers(opened.vectors.make(read, mapped, "folded").rows)
            return [row for row in made if any(row["values"] if isinstance(row, dict) else row)]
        except (NotServing, NoVectorsError):
            return None

    def scores(self, alias: str, query: Query, documents: Sequence[Query]) -> ScoreAnswers:
        """The scores of these documents alone, by one model of the alias: by its order where it has one, else
        by the form in which it answers. Raises QueryError for the query, where there is one model per key,
        and 503 without a model.
        """
        opened = self._there()
        (asked,) = self._looked_up(opened, alias, [query])
        if isinstance(asked, QueryError):
            raise asked
        found = self._looked_up(opened, alias, documents, as_documents=True)
        items = concatenate([asked, *(one for one in found if not isinstance(one, QueryError))])
        with _serving("model"), opened.replicas[alias].read() as view:
            if isinstance(view.form, KeyedForm):
                message, remedy = "one model per key is learned here", "ask /v1/similar with a key"
                raise QueryError("one_model_per_key", message, "model", remedy)
            scores = iter(kept_scores(view.given_scores(asked, items)[0])[1:].tolist())
            model = view.model
            by: OrderedBy = "form" if view.order is None else "order"
        each = [one if isinstance(one, QueryError) else next(scores) for one in found]
        return ScoreAnswers(model, each, by)

    def held(self, ids: Sequence[str]) -> list[bool]:
        """Whether the catalog has each of these objects now."""
        snapshot = self.snapshot()
        return [False] * len(ids) if snapshot is None else (snapshot.find_many(ids)[1] >= 0).tolist()

    def _looked_up(
        self, opened: OpenedServing, alias: str, queries: Sequence[Query], *, as_documents: bool = False
    ) -> Sequence[Block | QueryError]:
        """The mapped vector of each, or why it has none; a document may be zero. Raises QueryError."""
        found = opened.lookup(queries, opened.catalog.current, opened.maps(alias))
        if as_documents:
            return found
        with _serving(), opened.replicas[alias].read() as view:
            return answerable(view, queries, found)

    def current(self, alias: str) -> AnsweringModel | None:
        """The model that answers for an alias now; None while there is none."""
        with suppress(NotServing):
            if self.opened is not None:
                with self.opened.replicas[alias].read() as view:
                    return view.model
        return None

    def statuses(self) -> list[ReplicaStatus]:
        """How each alias stands."""
        if self.opened is None:
            why = f"no version in {self._config.checkpoints.path} yet"
            return [ReplicaStatus(alias, None, None, why, "versions") for alias in self._config.serve.aliases]
        return [replica.status() for replica in self.opened.replicas.values()]

    def snapshot(self) -> IndexSnapshot | None:
        """The catalog as it is now; None before there is one."""
        return None if self.opened is None else self.opened.catalog.current

    def items(self) -> CatalogStatus | None:
        """How the serving catalog stands; None before there is one."""
        return None if self.opened is None else self.opened.catalog.status()

    def not_ready(self) -> str | None:
        """None when the alias that answers where none is named does, and the items are caught up."""
        first = self.statuses()[0]
        if first.model is None:
            return f"{first.alias}: {first.why_not_newer or 'being loaded'}"
        items = self.items()
        return None if items is None or items.ready else f"items: {items.reason}"

    def loading(self) -> bool:
        """Whether the first model is on its way and nothing is known to be in it."""
        first = self.statuses()[0]
        return first.model is None and not first.why_not_newer

    def close(self, *others: BackgroundThread) -> None:
        """End every thread, and others with them; waits for all of them `LEAVE_S` at most."""
        threads = list(others)
        if self.opened is not None:
            self.opened.clicks.close()
            replicas = self.opened.replicas.values()
            threads += [] if self.opened.keeper is None else [self.opened.keeper]
            threads += [self.opened.catalog, *(thread for one in replicas for thread in one.threads)]
        end_all(threads, lambda _: LEAVE_S)

    def graphs(self) -> retrieve.GraphStatus | None:
        """How graphs stand; None before there is a catalog, and where none are kept."""
        keeper = None if self.opened is None else self.opened.keeper
        return None if keeper is None else keeper.status()

    def _keeper(self, catalog: ServingCatalog, sparse: bool) -> retrieve.GraphKeeper | None:
        """What keeps graphs; None for sparse objects and where they are switched off. Raises UserError where
        they are asked for and cannot be built."""
        serve = self._config.serve
        installed = find_spec("faiss") is not None
        if serve.ann == "on" and not installed:
            remedy = "pip install 'tripletd[ann]', or set serve.ann to auto or off: search is then exact"
            raise UserError("serve.ann is on, but faiss is not installed", remedy, EX_UNAVAILABLE)
        if serve.ann == "off" or sparse or not installed:
            return None
        roots = [folder / GRAPHS for folder in folders(self._config)]
        return retrieve.GraphKeeper(roots, lambda: catalog.current, serve.ann_from, self._items_changed)

    def _guarded(self, found: retrieve.GuardResult) -> None:
        said = {"width": "exact" if found.width is None else found.width, "recall": round(found.recall, 3)}
        log.info("approximate search was measured", model=found.model, items=found.items, **said)
        self._show_guarded(found)

    def _items_changed(self) -> None:
        if self.opened is not None:
            for replica in self.opened.replicas.values():
                replica.prepare_again()


MOST_NUMBERS = 1 << 20
"""In the vectors of one answer: some 20 MB of JSON."""
MOST_PRODUCTS = 1 << 22
"""Multiplications that the event loop does by itself: one query of 2,048 dimensions, under a millisecond."""


def _given_rows(queries: Sequence[Query], views: Sequence[GivenView]) -> Float32s | None:
    """The given vectors of queries that have nothing else, float32 [n, dim]; None unless all are sound."""
    vectors = [one.only for one in queries if one.only is not None]
    if len(vectors) < len(queries) or len(queries) * sum(one.dim for one in views) > MOST_NUMBERS:
        return None
    return _sound_rows(vectors, views)


def _sound_rows(vectors: Sequence[Float32s], views: Sequence[GivenView]) -> Float32s | None:
    """Vectors of the only view, float32 [n, dim]; None unless all are sound, and none is zero."""
    if len(views) != 1 or {len(one) for one in vectors} != {views[0].dim}:
        return None
    rows = np.array(vectors, np.float32)
    return rows if np.abs(rows).max() <= MAX_MAGNITUDE and rows.any(axis=1).all() else None  # NaN is not


def _vector_answers(made: MadeVectors, results: Sequence[Numbers | QueryError]) -> VectorAnswers:
    views = [FoldedView(one.name, one.start, one.dim, one.unit) for one in made.views]
    about = made.similarity, made.symmetric, made.rows.dim
    return VectorAnswers(made.model, made.formed, results, *about, views, made.top)


@contextmanager
def _serving(field: str = "alias") -> Iterator[None]:
    """Raises QueryError 503 where there is no model. field: that names it."""
    try:
        yield
    except NotServing as error:
        raise QueryError("not_serving", str(error), field, "ask again shortly", 503) from error
