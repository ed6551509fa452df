"""What is asked and answered, shared by HTTP, retrieval and items: plain data that knows none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class AnsweringModel(Protocol):
    """Which model answered; `str` gives "12" at a version and "12+3400" behind it."""

    @property
    def version(self) -> int:
        """The newest version at or before the model's state."""
        ...

    @property
    def total(self) -> int:
        """Records applied since version 0."""
        ...

    @property
    def line(self) -> str:
        """The line of history that these numbers are of, "" where it is not known."""
        ...

    @property
    def watermark(self) -> int | None:
        """Newest event time learned, Unix milliseconds; None before any event."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """One question: the `k` objects nearest to an object.

    Exactly one of `id` (an object of the serving catalog, which is left out of its own answer), `x` (the view
    called "x"), `views` (name -> vector) and `only` (float32 [dim], of the space's only view) is given. A
    vector is a list of finite numbers (dense) or `{"indices": [...], "values": [...]}` (sparse), as JSON
    gives it; its size and its view's name are not checked yet. `include` are the only objects allowed,
    `exclude` never are, `tags` must all be carried; None and empty ask for nothing, except that an empty
    `include` allows no object at all. `key`: whose model is asked, where one is learned per key; None asks
    the untrained one there. `explain`: whether each hit is to be an `ExplainedId`.
    """

    id: str | None = None
    x: Any = None
    views: Mapping[str, Any] | None = None
    k: int = 10
    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    key: str | None = None
    explain: bool = False
    only: Any = None


class QueryError(Exception):
    """A question without an answer, because of the question: HTTP answers with `status`.

    Args:
        code: short name for programs, such as `unknown_object`.
        message: what was found, for people.
        field: path of the field inside the query (`id`, `x`, `views.text`, `filter.include[3]`), or "".
        remedy: what to do about it.
        status: 404 for something that is not there, 422 for a value that does not fit, 503 for not yet.
    """

    def __init__(self, code: str, message: str, field: str = "", remedy: str = "", status: int = 422) -> None:
        super().__init__(message)
        self.code, self.message, self.field, self.remedy, self.status = code, message, field, remedy, status


@dataclass(frozen=True, slots=True)
class ScoredId:
    """One object of an answer and its score."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one view contributes to a score, or two of them together."""

    views: tuple[str, ...]
    contribution: float


@dataclass(frozen=True, slots=True)
class PairClicks:
    """Lists in which an object was clicked or passed over. clicked, passed_over: of this query, None where it
    has no id. near_clicked, near_passed_over: of queries near it. records: newest ones that were counted.
    """

    clicked: int | None
    passed_over: int | None
    near_clicked: int
    near_passed_over: int
    records: int


@dataclass(frozen=True, slots=True)
class ExplainedId(ScoredId):
    """A hit with its reasons. shares: they sum to the score up to rounding; None where the score is no such
    sum. zero_score, zero_rank: what version 0 gives this object for the same query, its rank from 1. clicks:
    None where they are not known (yet).
    """

    shares: tuple[Share, ...] | None
    zero_score: float
    zero_rank: int
    clicks: PairClicks | None = None


OWN, VERSION_0 = "own", "version_0"


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """Which model answered a query with a key: its `OWN`, or `VERSION_0`, the untrained one. why: None, or
    "unknown_key" (it has no model), or "not_learned" (the verdict on it). formed: records since version 0 at
    which its own model was as it answers, before the newest where steps are followed; None of version 0.
    """

    key: str
    model: str
    why: str | None
    formed: int | None


@dataclass(frozen=True, slots=True)
class IndexUse:
    """How an answer came from a store that is not ours. store: its name. mode: what it was asked, or
    `catalog`: the catalog was searched instead. candidates: objects it found. why: of the mode, for people.
    """

    store: str
    mode: str
    candidates: int
    why: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to one query. result: at most k hits, descending by score, or why there are none: one bad
    question never spoils the others of its batch. exact: whether every object was looked at; False where an
    approximate search took part, which finds most of the k best. The score of a hit is the same either way.
    recall: where a graph found the hits, the share of the exact ones that is estimated to be among them. by:
    which model answered, None where the query names no key. index: how a store took part, None where it did
    not.
    """

    result: Sequence[ScoredId] | QueryError
    exact: bool = True
    recall: float | None = None
    by: KeyChoice | None = None
    index: IndexUse | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to several queries by one consistent model, in their order.

    formed: records since version 0 at which the form of the scores was computed: those of the model where
    versions are served whole. Where steps are followed it may lie before `model.total`, also when the model
    has just come to be called a version. Then, with b for `formed` and t for `model.total`, a score is that
    of the form of W_b carried over to W_t (`learners.forms.carried` says how), divided by the object's norm
    under the form of W_b: with b, t and the step log it can be computed again. (When the learner has just
    restarted from an older version, b is a state of the line it has left until the next form is made; it may
    then exceed t.)
    """

    model: AnsweringModel
    formed: int
    each: Sequence[Answered]

    @property
    def results(self) -> list[Sequence[ScoredId] | QueryError]:
        """The hits of each query, or why it has none."""
        return [one.result for one in self.each]


@dataclass(frozen=True, slots=True)
class IndexFound:
    """What a vector store found. model, formed: whose vector it was asked with. hits: the answer; None: the
    catalog is searched, among `ids` alone, or among all where that is None too."""

    model: AnsweringModel
    formed: int
    use: IndexUse
    hits: Sequence[ScoredId] | None = None
    ids: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """Where a view lies in a folded vector, and whether an index is to hold it at unit length."""

    name: str
    start: int
    dim: int
    unit: bool


Numbers = list[float] | dict[str, list[Any]]
"""A vector as JSON gives it: dense, or `indices` and `values`."""


@dataclass(frozen=True, slots=True)
class VectorAnswers:
    """Vectors of several objects by one model, in their order, for an index that is not ours.

    results[i]: its numbers, or the `QueryError` of object i alone. similarity, symmetric, dim: of all, see
    `daemon.replica.vectors`. views: of folded vectors, () of others.
    """

    model: AnsweringModel
    formed: int
    results: Sequence[Numbers | QueryError]
    similarity: str
    symmetric: bool
    dim: int
    views: Sequence[ViewPlace] = ()


@dataclass(frozen=True, slots=True)
class ScoreAnswers:
    """Scores of documents for one query by one model, in their order, or the `QueryError` of one alone."""

    model: AnsweringModel
    results: Sequence[float | QueryError]
