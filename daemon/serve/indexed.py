"""Questions to the vector store that people already have: which vector it is asked with, and what its answer
becomes.

`rescored`: the store finds candidates, and the search of the catalog puts these alone in order, by the same
code and with the same norms as any answer. So vectors of candidates come from the catalog: it holds them
mapped, with the norms of the model that answers, where the store holds them as given and would send a
megabyte of them per question. What the store has beyond the catalog is not answered then.

The store's recall is measured, too: what it finds against what its own exact search finds. Learned queries
lie elsewhere than the vectors that its graph was built for, and move further away as learning continues. An
approximate search then misses more, and nothing else would show it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import structlog

from daemon.config.services import IndexConfig
from daemon.index import StoreAway, StoreError, StoreMalformed, VectorIndex
from daemon.index.protocol import AskedVector, IndexHit
from daemon.index.verdicts import ModeChoice
from daemon.runtime.watchdog import BackgroundThread
from daemon.serve.metrics import IndexMetrics
from daemon.serve.query import IndexFound, OfIndex, Query, QueryError, ScoredId, VectorAnswers

log = structlog.get_logger("tripletd.index")

ModeOf: TypeAlias = Callable[[int], ModeChoice]
"""Takes the number of the version that answers."""
_SAY_AGAIN_S = 60.0
_KINDS: dict[type[StoreError], str] = {StoreAway: "away", StoreMalformed: "malformed"}
MOST_LEFT_OUT = 1000
"""Excluded ids that are made up for by asking for more."""
MOST_ASKED, WIDER = 10_000, 4
"""Objects that a store is asked for at most, and how many times as many where most of them are removed."""


class AskedCatalog(Protocol):
    """Makes vectors of queries, and knows which objects there are. Any thread."""

    def held(self, ids: Sequence[str]) -> Sequence[bool]:
        """Whether the catalog has each of these objects now."""

    def vectors(
        self, alias: str, queries: Sequence[Query], wanted: Literal["folded", "embedded", "own"]
    ) -> VectorAnswers:
        """Make them by one model of the alias. Raises QueryError when it has none."""


class IndexSearch:
    """Asks the store. Any thread; every call is bounded by the store's own limits.

    mode_of: which mode is used where the configuration leaves it to verdicts.
    """

    def __init__(
        self,
        index: VectorIndex,
        config: IndexConfig,
        maker: AskedCatalog,
        mode_of: ModeOf,
        observe: IndexMetrics | None = None,
    ) -> None:
        self._index, self._config, self._maker = index, config, maker
        self._mode_of, self._observe = mode_of, observe
        self._said_at = float("-inf")

    def find(self, alias: str, query: Query) -> IndexFound:
        """What the store finds for a query without ids to include. Raises QueryError."""
        choice, asked = self._asked(alias, query)
        if choice.mode == "catalog":
            use = OfIndex(self._index.name, choice.mode, 0, choice.why)
            return IndexFound(asked.model, asked.formed, use)
        vector = asked.results[0]
        if isinstance(vector, QueryError):
            raise vector
        if query.explain and choice.mode != "rescored":
            message = f"the store answers in the mode {choice.mode}, of which no hit is explained"
            raise QueryError(
                "not_explained", message, "explain", "leave it out, or set index.mode = rescored"
            )
        left_out = (query.id is not None) + min(len(query.exclude), MOST_LEFT_OUT)
        wanted = query.k
        if choice.mode == "rescored":
            wanted = max(wanted, self._config.candidates, asked.top or 0)
        began = time.perf_counter()
        try:
            seen, kept = self._living(vector, asked.similarity, wanted + left_out, query)
        except StoreError as error:
            use = self._without(error)
            return IndexFound(asked.model, asked.formed, use)
        if self._observe is not None:
            self._observe.answered(choice.mode, time.perf_counter() - began)
        use = OfIndex(self._index.name, choice.mode, seen, choice.why)
        if choice.mode == "rescored":
            return IndexFound(asked.model, asked.formed, use, ids=frozenset(one.id for one in kept))
        return IndexFound(
            asked.model, asked.formed, use, [ScoredId(one.id, one.score) for one in kept[: query.k]]
        )

    def _living(
        self, vector: AskedVector, similarity: str, wanted: int, query: Query
    ) -> tuple[int, list[IndexHit]]:
        """How many objects the store found, and those of them that may be answered: the catalog has them, so
        they were not removed. While these are fewer than `k`, the store is asked for more. Raises StoreError.
        """
        while True:
            found = self._index.search(vector, wanted, sorted(query.tags), similarity=similarity)
            held = self._maker.held([one.id for one in found])
            left_out = {query.id, *query.exclude}
            kept = [one for one, there in zip(found, held, strict=True) if there and one.id not in left_out]
            if len(kept) >= query.k or len(found) < wanted or wanted >= MOST_ASKED:
                return len(found), kept
            wanted = min(WIDER * wanted, MOST_ASKED)

    def _asked(self, alias: str, query: Query) -> tuple[ModeChoice, VectorAnswers]:
        mode, named = self._config.mode, "index.mode names it"
        if mode == "embedded":
            made = self._maker.vectors(alias, [query], "embedded")
            if made.model.version != self._config.version:
                message = (
                    f"the store holds vectors of version {self._config.version}, and {alias} is at "
                    f"{made.model.version}"
                )
                remedy = "write them again, and set index.version"
                raise QueryError("other_version", message, "alias", remedy, 503)
            return ModeChoice("embedded", named), made
        if self._config.holds_exported:
            return self._exported(alias, query)
        if mode == "own":
            return ModeChoice("own", named), self._maker.vectors(alias, [query], "own")
        made = self._maker.vectors(alias, [query], "folded")
        if made.top is not None:
            return ModeChoice("rescored", _why_own(made)), made
        choice = self._mode_of(made.model.version) if mode == "auto" else ModeChoice(mode, named)
        return choice, made if choice.mode != "own" else self._maker.vectors(alias, [query], "own")

    def _exported(self, alias: str, query: Query) -> tuple[ModeChoice, VectorAnswers]:
        """The same of a store of exported vectors: where these are not of the model that answers, or not held
        up, the catalog is searched."""
        own = self._maker.vectors(alias, [query], "own")
        choice = self._mode_of(own.model.version)
        if own.top is not None:
            return ModeChoice("catalog", _why_own(own)), own
        if choice.mode != "embedded":
            return choice, own
        try:
            made = self._maker.vectors(alias, [query], "embedded")
        except QueryError as refused:
            return ModeChoice("catalog", refused.message), own
        if made.model.version != self._config.version:
            why = f"the store holds vectors of version {self._config.version}, not of {made.model.version}"
            return ModeChoice("catalog", why), made
        return choice, made

    def _without(self, error: StoreError) -> OfIndex:
        """What is used in the place of a store that does not answer. Raises QueryError where nothing is."""
        kind = _KINDS.get(type(error), "refused")
        if self._observe is not None:
            self._observe.failed(kind)
        now = time.monotonic()
        if now - self._said_at > _SAY_AGAIN_S:
            self._said_at = now
            log.warning("the store cannot be used", index=self._index.name, why=str(error))
        if kind == "away" and self._config.fallback == "catalog":
            return OfIndex(self._index.name, "catalog", 0, error.message)
        status = 503 if kind == "away" else 502
        raise QueryError(f"index_{kind}", error.message, "", error.remedy, status) from error


def _why_own(made: VectorAnswers) -> str:
    shown = f"version {made.model.version} is shown to order lists, not to search"
    if made.top == 1:
        return f"{shown}: your own ranking searches, as it is"
    return f"{shown}: the first {made.top} of your own ranking are put in order"


TOP = 10
QUERIES = 20
"""Objects that ask for their neighbours; recall is then known to about .02."""
FIRST_S = 5.0
"""How soon after the start, and how often until there is something to ask with."""

AskedSample = Callable[[int], Sequence[AskedVector] | None]
"""Gives so many learned queries, None while there is no model."""


def found_share(exact: Sequence[str], found: Sequence[str]) -> float:
    """Share of the first `TOP` of the exact search that the other one found; 1 of nothing. Pure."""
    wanted = set(exact[:TOP])
    return len(wanted & set(found)) / len(wanted) if wanted else 1.0


class StoreRecall(BackgroundThread):
    """Measures it now and then, one question after the other. measured: called with the mean. A question
    under way at the end is not waited for."""

    name, end_s = "index-recall", 0.5

    def __init__(
        self, index: VectorIndex, config: IndexConfig, sample: AskedSample, measured: Callable[[float], None]
    ) -> None:
        super().__init__()
        self._index, self._config, self._sample, self._measured = index, config, sample, measured
        self._ending = threading.Event()

    def start(self) -> None:
        """Begin, unless it is switched off."""
        if self._config.recall_every is not None:
            super().start()

    def stop(self) -> None:
        """Ask nothing more."""
        self._ending.set()

    def measure(self) -> float | None:
        """The mean over the sample, logged when it is low; None while there is nothing to ask with. Raises
        StoreError."""
        queries = self._sample(QUERIES)
        if not queries:
            return None
        reach = TOP if self._config.mode in ("own", "folded") else max(TOP, self._config.candidates)
        shares = []
        for query in queries:
            if self._ending.is_set():
                return None
            exact = [one.id for one in self._index.search(query, TOP, exact=True)]
            shares.append(found_share(exact, [one.id for one in self._index.search(query, reach)]))
        mean = sum(shares) / len(shares)
        self._measured(mean)
        if mean < self._config.recall:
            log.warning(
                f"the store finds {mean:.0%} of its own exact first {TOP} for learned queries; "
                "raise index.width or index.candidates, or rebuild its index",
                index=self._index.name,
                recall=round(mean, 3),
                wanted=self._config.recall,
            )
        else:
            log.info("recall of the store was measured", index=self._index.name, recall=round(mean, 3))
        return mean

    def _run(self) -> None:
        every = self._config.recall_every
        assert every is not None
        rest_s = min(FIRST_S, every)
        while not self._ending.wait(rest_s):
            rest_s = every
            try:
                if self.measure() is None:
                    rest_s = min(FIRST_S, every)
            except StoreError as error:
                log.warning("recall of the store was not measured", index=self._index.name, why=str(error))
            except Exception:
                log.exception("recall of the store was not measured")
