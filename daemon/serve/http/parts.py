"""What the application is made of: its parts, and the ports through which it asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from daemon.runtime.doors import Gate
from daemon.runtime.watchdog import Pulse
from daemon.serve.http.batching import Searching
from daemon.serve.http.indexed import FindingInIndex
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.texts import EmbeddingModel
from daemon.serve.interleave import ListMaker
from daemon.serve.query import AnsweringModel, Query, ScoreAnswers, VectorAnswers
from daemon.serve.store import StoreActions
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.telemetry.server import Health
from streams.foreign_http import ForeignServer

Float32s: TypeAlias = NDArray[np.float32]
WantedVector: TypeAlias = Literal["folded", "embedded", "document"]


class MakingVectors(Protocol):
    """Makes vectors of objects, and scores of documents. Any thread."""

    def fold_few(
        self, alias: str, vectors: Sequence[Float32s]
    ) -> tuple[AnsweringModel, Sequence[Float32s]] | None:
        """Given vectors of queries folded, where that takes no longer than to hand it to a thread."""

    def vectors(self, alias: str, queries: Sequence[Query], wanted: WantedVector) -> VectorAnswers:
        """Make them by one model of the alias. Raises QueryError when it has none."""

    def scores(self, alias: str, query: Query, documents: Sequence[Query]) -> ScoreAnswers:
        """Score documents by one model of the alias. Raises QueryError when it has none, or for the query."""


@dataclass(frozen=True, slots=True)
class Writes:
    """What takes impressions and clicks. origins: whose pages may write. batch_max: records of a request."""

    queue: WriteQueue
    metrics: WriteMetrics
    origins: Sequence[str] = ()
    batch_max: int = 1000


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model in this process that embeds texts. timeout_s: for all texts of a request."""

    model: EmbeddingModel
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What the application is made of.

    searcher: finds nearest objects. vectors: makes those of other indexes, and scores documents. answered:
    called with the alias and the model of every answer; quick. store: what is said of the versions, and done
    with them. aliases: names that may be asked, the first where none is named. registry: what /metrics shows;
    the HTTP side adds its own families. gate: whose token opens what. hosts: names under which it may be
    asked, beside addresses and localhost. page: more routes, such as those of the page. pulse: sign of life
    of the compute thread. lists: makes lists by chance and signs them, None where that is off. writes: takes
    impressions and clicks, None where that is switched off. index: the store that questions go to first,
    `index_threads` at once; None asks the searcher alone. embedding: what embeds texts, None where nothing
    does; models: its models by the names of ours. current: the model of an alias now, None while there is
    none; behind_s: how long a question waits for a state that it names (`X-Tripletd-At-Least`).
    """

    searcher: Searching
    vectors: MakingVectors
    answered: Callable[[str, AnsweringModel], None]
    store: StoreActions
    aliases: Sequence[str]
    health: Health
    registry: CollectorRegistry
    gate: Gate = field(default_factory=Gate)
    hosts: Sequence[str] = ()
    limits: HttpLimits = field(default_factory=HttpLimits)
    page: Sequence[BaseRoute] = ()
    pulse: Pulse | None = None
    lists: ListMaker | None = None
    writes: Writes | None = None
    index: FindingInIndex | None = None
    index_threads: int = 1
    embedding: ForeignServer | LocalModel | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    current: Callable[[str], AnsweringModel | None] | None = None
    behind_s: float = 0.5
