"""What the page is made of: live numbers of every role, what is served, objects, and versions looked at:
nearest objects under any, what changed between two, models of keys."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry

from checkpoints import Ledger, VersionStore
from daemon.config.schema import Config
from daemon.config.values import LIVE, SCHEMES
from daemon.exits import UserError
from daemon.look.live import LearnStatus, RoleStatus, UpStatus, is_of, status_at, together
from daemon.look.overview import KeyRow, key_rows
from daemon.look.series import Ask, Series
from daemon.models.compare import CompareOptions, diff_of, form_of_key, matrix_of, what_is_compared
from daemon.models.diff import Diff, K, Queries, moved_queries
from daemon.replica.view import NotServing, ReplicaStatus, View
from daemon.serve.http.offload import LowPriorityExecutor, TimeBudget
from daemon.serve.http.similar import why_of
from daemon.serve.live import Live, OpenedServing
from daemon.serve.page.answers import CannotAnswer
from daemon.serve.page.objects import ImageFolder, PageObjects, sample_ids
from daemon.serve.page.rating import RatingSources
from daemon.serve.query import Answers, ExplainedId, Query, QueryError
from daemon.telemetry.server import Health, status_of
from daemon.versions.forms import KeyedForm
from learners.block import Int64s
from learners.errors import LearnerError


@dataclass(frozen=True)
class PageSources:
    """Everything the page shows; asked from the server's threads, never from its event loop.

    series: the ring of live numbers. statuses: how each alias stands. aliases: the names that the explorer
    offers besides version numbers. keys: None where one model answers all. own: what the user's own index
    computes ("cosine"), where version 0 is exactly that; else None. ratings: the study that people take part
    in; None where that is switched off.
    """

    versions: VersionStore
    ledger: Ledger
    series: Series
    statuses: Callable[[], Sequence[ReplicaStatus]]
    explorer: PageExplorer
    comparer: PageComparer
    objects: PageObjects
    aliases: Sequence[str]
    keys: Callable[[], KeysShown | None] = lambda: None
    own: Callable[[], str | None] = lambda: None
    ratings: RatingSources | None = None


def page_sources(
    config: Config, versions: VersionStore, ledger: Ledger, live: Live, series: Series
) -> PageSources:
    """Everything the page shows. Pictures are below the folder of `serve.display`, else of the catalog."""
    places = config.serve.display, config.serve.catalog, config.catalog.path
    elsewhere = (*LIVE, *(f"{scheme}://" for scheme in SCHEMES))
    listed = next((one for one in places if one and not one.startswith(elsewhere)), "")
    executor, budget = LowPriorityExecutor("tripletd-looking"), TimeBudget()
    objects = PageObjects(live, ImageFolder(Path(listed).parent) if listed else None, executor)
    explorer = PageExplorer(live, executor, budget)
    return PageSources(
        versions,
        ledger,
        series,
        live.statuses,
        explorer,
        PageComparer(live, budget),
        objects,
        config.serve.aliases,
        partial(keys_shown, live),
        partial(own_similarity, live),
    )


def live_series(config: Config, registry: CollectorRegistry, health: Health) -> Series:
    """The live numbers of every role: of the others by their ports, of this one from its registry; and why
    one does not run, from the port of `up`.
    """
    http, place = config.http, config.checkpoints.path

    def other(role: str, port: int) -> RoleStatus | None:
        found = status_at(http, port)
        return found if found is not None and is_of(found, role, place) else None

    def trouble() -> Mapping[str, str]:
        up = other("up", http.up_port)
        return up.trouble() if isinstance(up, UpStatus) else {}

    def learning() -> RoleStatus | None:
        ports = http.learning_ports(config.shards.count)
        if not config.shards.count:
            return other("learn", ports[0])
        asked = {f"shard {number}": other("learn", port) for number, port in enumerate(ports)}
        return together({name: one if isinstance(one, LearnStatus) else None for name, one in asked.items()})

    roles: dict[str, Ask] = {"learn": learning, "validate": partial(other, "validate", http.validate_port)}
    return Series({**roles, "serve": lambda: status_of(registry, health)}, trouble=trouble)


TURN_SECONDS = 5.0
"""Longest wait for another look: a version that is loaded for it may take as long."""
LOOK_SECONDS = 55.0
"""Longest look, with a large version that is loaded for it."""


@dataclass(frozen=True, slots=True)
class NearestObjects:
    """Nearest objects of one query under one model, best first; `model` is what answered. why: the reasons of
    a hit by its id, as /v1/similar tells them."""

    model: str
    hits: tuple[tuple[str, float], ...]
    why: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeysShown:
    """The models of single keys in `model`: `used` of `slots`, those with most events first."""

    model: str
    slots: int
    used: int
    rows: tuple[KeyRow, ...]


class PageExplorer:
    """Searches off the compute thread: one at a time in `executor`, loading versions within `budget`."""

    def __init__(self, live: Live, executor: LowPriorityExecutor, budget: TimeBudget) -> None:
        self._live, self._executor, self._budget = live, executor, budget

    def neighbours(self, side: str, query: str, k: int, key: str | None) -> NearestObjects:
        """Top `k` of the object `query` under `side`, an alias or a version number written out; by the model
        of `key`, where one is learned per key.

        The query itself is left out. Raises CannotAnswer: unknown object, unknown version, not serving yet;
        Busy.
        """
        opened = opened_of(self._live)

        def look() -> Answers:
            return self._asked(opened, side, [Query(id=query, k=k, key=key, explain=True)])

        with _answerable():
            answers = self._executor.call(look, TURN_SECONDS, LOOK_SECONDS)
        result = answers.results[0]
        if isinstance(result, QueryError):
            raise CannotAnswer(result.code, str(result))
        why = {hit.id: why_of(hit)["why"] for hit in result if isinstance(hit, ExplainedId)}
        return NearestObjects(str(answers.model), tuple((hit.id, hit.score) for hit in result), why)

    def lists(self, side: str, ids: Sequence[str], k: int, key: str | None) -> Answers:
        """The top `k` of each of these objects under `side`, all by one model; in the caller's thread.

        Raises CannotAnswer: unknown version, not serving yet; Busy.
        """
        with _answerable():
            return self._asked(opened_of(self._live), side, [Query(id=one, k=k, key=key) for one in ids])

    def _asked(self, opened: OpenedServing, side: str, queries: Sequence[Query]) -> Answers:
        if not side.isdecimal():
            if side not in opened.replicas:
                raise CannotAnswer("unknown_alias", f"{side[:40]!r} is neither a version nor served here")
            return opened.searcher.search(side, queries)
        number = int(side)
        spending: AbstractContextManager[None] = nullcontext()
        if not opened.explorer.is_open(number):
            spending = self._budget.spending()
        with spending, opened.explorer.read(number) as view:
            return opened.searcher.search_view(view, queries)


def opened_of(live: Live) -> OpenedServing:
    """The opened parts of a version. Raises CannotAnswer until there is a version."""
    if live.opened is None:
        raise CannotAnswer("not_serving", "there is no version yet")
    return live.opened


ASKED = CompareOptions(entries=12, directions=4, queries=100, moved=12)
KEPT = 8
PASS = 16
"""Queries that share one pass over the items."""

Pair = tuple[int, int]


class PageComparer:
    """What changed between two versions, made in a thread within `budget`; the newest KEPT are kept.

    Versions never change, so a comparison of two stays right but for the objects, which come and go.
    """

    def __init__(self, live: Live, budget: TimeBudget) -> None:
        self._live, self._budget = live, budget
        self._executor = LowPriorityExecutor("tripletd-comparing", waiting=1)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Pair, Diff] = OrderedDict()
        self._running: tuple[Pair, Future[Diff]] | None = None

    def difference(self, before: int, after: int) -> Diff | None:
        """The same as `tripletd models diff` says, of the objects that are served; None while it is made.

        Raises CannotAnswer: `busy` while two others are compared, or what went wrong; Busy.
        """
        pair = before, after
        with self._lock:
            self._settle(pair)
            if pair in self._kept:
                self._kept.move_to_end(pair)
                return self._kept[pair]
            if self._running is None:
                opened = opened_of(self._live)
                self._running = pair, self._executor.start(lambda: self._made(opened, pair))
            elif self._running[0] != pair:
                raise CannotAnswer("busy", "two other versions are being compared; ask again in a moment")
        return None

    def _settle(self, pair: Pair) -> None:
        """Keep what has come to its end; raises what it ended with for those who ask for it."""
        if self._running is None or not self._running[1].done():
            return
        (made, future), self._running = self._running, None
        error = future.exception()
        if error is None:
            self._kept[made] = future.result()
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        elif made == pair:
            raise error

    def _made(self, opened: OpenedServing, pair: Pair) -> Diff:
        try:
            return self._compared(opened, pair)
        except (UserError, LearnerError) as error:
            raise CannotAnswer("cannot_compare", str(error)) from None

    def _compared(self, opened: OpenedServing, pair: Pair) -> Diff:
        with (
            _answerable(),
            self._budget.spending(),
            opened.explorer.read_state(pair[0]) as (old, A),
            opened.explorer.read_state(pair[1]) as (new, B),
        ):
            form_of_key(old.form, pair[0], None)  # many models are not compared at once
            queries = _queries(opened, old, new)
            matrices = matrix_of(A, lambda: old.form, pair[0]), matrix_of(B, lambda: new.form, pair[1])
            left_out = what_is_compared(A, matrices)
            return diff_of(pair, matrices, opened.fitted, asked=ASKED, queries=queries, skipped=left_out)


@contextmanager
def _answerable() -> Iterator[None]:
    """What goes wrong with versions and queries inside becomes CannotAnswer."""
    try:
        yield
    except NotServing as error:
        raise CannotAnswer("not_serving", str(error)) from None
    except QueryError as refused:
        raise CannotAnswer(refused.code, str(refused)) from None


def _queries(opened: OpenedServing, old: View, new: View) -> Queries | None:
    """How the nearest objects of a sample of what is served moved; None where nothing is served."""
    snapshot = opened.catalog.current
    ids = sorted(sample_ids(snapshot, ASKED.queries, random.Random(ASKED.seed)))  # noqa: S311  no secret
    if not ids:
        return None
    numbers: dict[str, int] = {}
    rows = np.array([numbers.setdefault(one, len(numbers)) for one in ids], np.int64)
    lists = [_nearest(opened, view, ids, numbers) for view in (old, new)]
    known = list(numbers)
    return moved_queries(known, rows, (lists[0], lists[1]), ASKED.seed, ASKED.moved)


def _nearest(opened: OpenedServing, view: View, ids: Sequence[str], numbers: dict[str, int]) -> Int64s:
    """The K nearest objects of each, as their numbers, int64 [len(ids), K]; -1 where there are fewer."""
    found = np.full((len(ids), K), -1, np.int64)
    for start in range(0, len(ids), PASS):
        asked = [Query(id=one, k=K) for one in ids[start : start + PASS]]
        for at, hits in enumerate(opened.searcher.search_view(view, asked).results, start):
            if isinstance(hits, QueryError):
                continue  # removed meanwhile: it has no neighbours in either list
            found[at, : len(hits)] = [numbers.setdefault(hit.id, len(numbers)) for hit in hits]
    return found


def own_similarity(live: Live) -> str | None:
    """What the user's own index computes, where version 0 is exactly that; None where it is not, or nothing
    is served yet."""
    own = None if live.opened is None else live.opened.fitted.own
    return None if own is None else own.similarity


def keys_shown(live: Live) -> KeysShown | None:
    """Those of the newest model that is served; None where there is one model for all, or nothing yet."""
    opened = live.opened
    if opened is None or not opened.space.keys.slots:
        return None
    served = [status for status in live.statuses() if status.model is not None]
    if not served:
        return None
    newest = max(served, key=lambda status: 0 if status.model is None else status.model.total)
    try:
        with opened.replicas[newest.alias].read() as view:
            assert isinstance(view.form, KeyedForm)
            events, model = view.form.learner.events(), view.model
    except NotServing:
        return None
    rows = key_rows(events, opened.verdicts.now().at(model.version))
    return KeysShown(str(model), opened.space.keys.slots, len(events), tuple(rows))
