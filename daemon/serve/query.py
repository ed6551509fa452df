"""What is asked and answered, shared by HTTP, retrieval and items: plain data that knows none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as described


class AnsweringModel(Protocol):
    """Which model answered; `str` gives "12" at a version and "12+3400" behind it."""

    @property
    def version(self) -> int:
        """The newest version at or before the model's state."""

    @property
    def total(self) -> int:
        """Records applied since version 0."""

    @property
    def line(self) -> str:
        """The line of history that these numbers are of, "" where it is not known."""

    @property
    def watermark(self) -> int | None:
        """Newest event time learned, Unix milliseconds; None before any event."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question: the `k` objects nearest to an object.

    Exactly one of `id` (an object of the serving catalog, which is left out of its own answer), `x` (the view
    called "x"), `views` (name -> vector) and `only` (float32 [dim], of the space's only view) is given. A
    vector is a list of finite numbers (dense) or `{"indices": [...], "values": [...]}` (sparse), as JSON
    gives it; its size and its view's name are not checked yet. `include` are the only objects allowed,
    `exclude` never are, `tags` must all be carried; None and empty ask for nothing, except that an empty
    `include` allows no object at all. `found`: whether `include` is what a search found, and is answered like
    one; otherwise it is a list to be put in order. `key`: whose model is asked, where one is learned per key;
    None asks the untrained one there. `explain`: whether each hit is to be an `ExplainedId`.
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
    found: bool = False


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


_DESCRIBED = ConfigDict(extra="forbid")
"""Of what HTTP answers with as it is: the OpenAPI document is made of these, too."""


@described(frozen=True, slots=True, config=_DESCRIBED)
class ViewShare:
    """What one view contributes to a score, or two together: learning can let one view speak to another."""

    views: Annotated[
        tuple[str, ...], Field(description="names of one view or two; `view/0` is the first kernel of a view")
    ]
    contribution: float


@described(frozen=True, slots=True, config=_DESCRIBED)
class HitClicks:
    """Lists of the newest records of the training topic in which this object was clicked or passed over."""

    clicked: Annotated[int | None, Field(description="of this very query; null for a query without an id")]
    passed_over: Annotated[int | None, Field(description="of this very query")]
    near_clicked: Annotated[
        int, Field(description="of the 20 objects nearest to the query by version 0, as queries")
    ]
    near_passed_over: Annotated[int, Field(description="of these 20")]
    records: Annotated[int, Field(description="records that were looked through, the newest")]


@dataclass(frozen=True, slots=True)
class ExplainedId(ScoredId):
    """A hit with its reasons. shares: they sum to the score up to rounding; None where the score is no such
    sum. zero_score, zero_rank: what version 0 gives this object for the same query, its rank from 1. clicks:
    None where they are not known (yet).
    """

    shares: tuple[ViewShare, ...] | None
    zero_score: float
    zero_rank: int
    clicks: HitClicks | None = None


OrderedBy: TypeAlias = Literal["order", "form"]
"""What the hits of a version are in order by: the arm that clicks chose for lists, or its serving form."""
OWN: Final = "own"
VERSION_0: Final = "version_0"


@described(frozen=True, slots=True, config=_DESCRIBED)
class ByKey:
    """Which model answered a question with a key."""

    name: Annotated[str, Field(description="the key")]
    model: Annotated[Literal["own", "version_0"], Field(description="its own, or the untrained similarity")]
    why: Annotated[
        Literal["unknown_key", "not_learned"] | None,
        Field(description="why not its own: it has no model, or its verdict is that it learned nothing yet"),
    ]
    formed: Annotated[
        int | None,
        Field(
            description="records at which its own model was as it answers; equal to `records`, except where "
            "steps are followed (latest)"
        ),
    ]


@described(frozen=True, slots=True, config=_DESCRIBED)
class OfIndex:
    """How the store of [index] took part in an answer."""

    store: Annotated[str, Field(description="the store, and what was asked of it")]
    mode: Annotated[
        Literal["own", "folded", "rescored", "embedded", "catalog"],
        Field(description="what it was asked; `catalog`: it was away, and the catalog was searched instead"),
    ]
    candidates: Annotated[int, Field(description="objects it found; those of `rescored` are scored as ever")]
    why: Annotated[str, Field(description="why this mode")]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to one query. result: at most k hits, descending by score, or why there are none: one bad
    question never spoils the others of its batch. exact: whether every object was looked at; False where an
    approximate search took part, which finds most of the k best. The score of a hit is the same either way.
    recall: where a graph found the hits, the share of the exact ones that is estimated to be among them. by:
    which model answered, None where the query names no key. index: how a store took part, None where it did
    not. ordered_by: None of a version that has no order of its own.
    """

    result: Sequence[ScoredId] | QueryError
    exact: bool = True
    recall: float | None = None
    by: ByKey | None = None
    index: OfIndex | None = None
    ordered_by: OrderedBy | None = None


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
    use: OfIndex
    hits: Sequence[ScoredId] | None = None
    ids: frozenset[str] | None = None


@described(frozen=True, slots=True, config=_DESCRIBED)
class FoldedView:
    """Where a view lies in a folded vector."""

    name: str
    start: Annotated[int, Field(description="first number, from 0")]
    dim: int
    unit: Annotated[bool, Field(description="whether the index is to hold this view at unit length")]


Numbers = list[float] | dict[str, list[Any]]
"""A vector as JSON gives it: dense, or `indices` and `values`."""


@dataclass(frozen=True, slots=True)
class VectorAnswers:
    """Vectors of several objects by one model, in their order, for an index that is not ours.

    results[i]: its numbers, or the `QueryError` of object i alone. similarity, symmetric, dim: of all, see
    `daemon.replica.vectors`. views: of folded vectors, () of others. top: how many of the user's own
    ranking the version re-ranks, which it folds by then; None where it searches.
    """

    model: AnsweringModel
    formed: int
    results: Sequence[Numbers | QueryError]
    similarity: str
    symmetric: bool
    dim: int
    views: Sequence[FoldedView] = ()
    top: int | None = None


@dataclass(frozen=True, slots=True)
class ScoreAnswers:
    """Scores of documents for one query by one model, in their order, or the `QueryError` of one alone."""

    model: AnsweringModel
    results: Sequence[float | QueryError]
    ordered_by: OrderedBy = "form"
