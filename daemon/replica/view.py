"""What readers get of a replica: the model, its name and space, and what a replica says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints.encoding import spec_of
from checkpoints.manifest import ArraySpec, Manifest
from daemon.config.learners import KeysConfig
from daemon.versions.algorithms import ALGORITHMS, NO_VIEWS, ONE_MODEL, Columns, added_later, keys_of
from daemon.versions.contents import learner_specs
from daemon.versions.order import Answering
from learners.block import Block, Float32s, Int64s, against, without_sense
from learners.forms.quadratic import (
    DiagonalForm,
    FoldingForm,
    IdentityForm,
    Pieces,
    ServedForm,
    apply_terms,
    by_distance,
    folds,
    has_terms,
    terms_of,
    whole,
)
from learners.maps.base import OwnRanking
from learners.maps.queries import QueryMaps
from learners.search import kept_scores

BY_FORM = Answering()
"""Lists are ordered and the catalog is searched by the serving form."""


@dataclass(frozen=True, slots=True)
class ModelId:
    """Which state an answer was computed with.

    version: the newest version (base) at or before that state. behind: records applied since that version, 0
    at it. watermark: newest event time in the state, ms since the epoch, None before any event.
    total: records applied since version 0, which orders the states of one line: "12+3400" and "13+200" may be
    the same one. `str` is "12" at a version and "12+3400" behind it. line: the line of history that these
    numbers are of, "" where it is not known.
    """

    version: int
    behind: int = 0
    watermark: int | None = None
    total: int = 0
    line: str = ""

    def __str__(self) -> str:
        return f"{self.version}+{self.behind}" if self.behind else str(self.version)


@dataclass(frozen=True, slots=True)
class ModelSpace:
    """What every version served over an item index must agree with: the objects' space, the frozen map
    that brought them there, the dimension it gives, the learner, and its arrays.

    columns: of each view in the mapped vectors, for learners that look at them. keys: [keys], whether there
    is one model per key. later: those of the arrays that versions of earlier releases lack, as they are then.
    own: the user's own ranking, None where the map loses something of it; a function of the map.
    """

    space: str
    map_id: str
    dim: int
    algorithm: str
    arrays: tuple[ArraySpec, ...]
    columns: Columns
    keys: KeysConfig = ONE_MODEL
    later: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)
    own: OwnRanking | None = field(default=None, compare=False)

    @property
    def grows(self) -> tuple[str, ...]:
        """Those of the arrays that are as long as what was learned."""
        return ALGORITHMS[self.algorithm].grows if self.algorithm in ALGORITHMS else ()

    @classmethod
    def of(
        cls, manifest: Manifest, dim: int, columns: Columns = NO_VIEWS, own: OwnRanking | None = None
    ) -> ModelSpace:
        """The space of a version; `dim`, `columns` and `own` are its map's."""
        name = str(manifest.learner.get("name"))
        keys, later = keys_of(manifest), added_later(manifest, dim, columns)
        held = {spec.name: spec for spec in learner_specs(manifest)}
        arrays = tuple({**{array: spec_of(array, one) for array, one in later.items()}, **held}.values())
        return cls(manifest.space, str(manifest.map.get("id")), dim, name, arrays, columns, keys, later, own)


class NotServing(Exception):
    """Nothing can be answered yet under this alias; the message says why."""


@dataclass(frozen=True, slots=True)
class CarryError:
    """The error of a form that was updated to first order, measured on a sample when it was computed again.

    fold: relative error of folded queries, norms: the largest one of an item's norm, 0 is exact; overlap:
    mean share of the top 10 that stays, 1 is exact. records: applied between the two forms. seconds: of
    processor time that the new form and what is prepared of it took.
    """

    fold: float
    norms: float
    overlap: float
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The state of a replica at one moment.

    model: what answers, None for nothing yet; since: when its version or its last steps came, seconds since
    the epoch. why_not_newer: why nothing newer is served, "" when there is nothing newer. following: "steps"
    while the learner is followed step by step, else "versions". refusals: versions refused, by reason.
    fallbacks: how often the step log was lost, by reason. swaps: flips by what changed (version, steps,
    relabel, refine). swap_seconds: of the last version swapped in, by phase (load, prepare, follow, warm,
    flip). carried: the last measured error, None before any. stuck: readers who do not leave the old side.
    behind_since: since when something newer has been there than what answers, seconds since the epoch, None
    while it is the newest. folder: how the checkpoint folder is lost (`checkpoints.versions`), "" while it
    has what answers or something newer; folder_losses: how often it was, by how. answers: how the version
    orders and searches.
    """

    alias: str
    model: ModelId | None
    since: float | None
    why_not_newer: str
    following: str
    refusals: Mapping[str, int] = field(default_factory=dict)
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    swaps: Mapping[str, int] = field(default_factory=dict)
    swap_seconds: Mapping[str, float] = field(default_factory=dict)
    carried: CarryError | None = None
    stuck: tuple[str, ...] = ()
    behind_since: float | None = None
    folder: str = ""
    folder_losses: Mapping[str, int] = field(default_factory=dict)
    answers: Answering = BY_FORM


@dataclass(frozen=True, slots=True)
class View:
    """A model to compute with, valid inside `with replica.read() as view` and not after it.

    map_id: id of the map that items and queries must be mapped with. formed: the state, in records since
    version 0, at which the form was computed and `prepared` was made of it; from there to `model.total` the
    form is carried over, and `prepared` is as it was. prepared: what `Hooks.prepare` made of the model (norms
    of the items), None where there is none. queries: what takes queries of other models to the space.

    answers: how the ledger says that the version answers. order: what given lists are scored by, None where
    that is the form. Where the version does not reach, the form is the user's own ranking, and `reordered`
    makes answers of it.
    """

    model: ModelId
    map_id: str
    form: ServedForm
    formed: int
    prepared: Any = None
    queries: QueryMaps = field(default_factory=dict)
    answers: Answering = BY_FORM
    order: ServedForm | None = None
    search: FoldingForm = field(init=False, repr=False)
    """What items are searched by: the form itself where it folds, else the cosine of their mapped vectors."""
    rescored: bool = field(init=False, repr=False)
    """Whether a search finds a shortlist only, put in order by `form.scores`: the form does not fold."""
    normalised: bool = field(init=False, repr=False)
    """Whether a search divides by sqrt(S(q, q) S(p, p))."""
    by_distance: bool = field(init=False, repr=False)
    """Whether a search ranks by minus a distance: see `learners.forms.quadratic.by_distance`."""
    has_terms: bool = field(init=False, repr=False)
    """Whether a search needs a number of each item besides its inner product with a folded query."""

    def __post_init__(self) -> None:
        """Ask the form once what every request needs to know of it."""
        # without folding, items are searched by the cosine of the vectors
        search = self.form if folds(self.form) else IdentityForm(self.form.dim, normalised=True)
        known = {
            "search": search,
            "rescored": not folds(self.form),
            "normalised": search.normalised,
            "by_distance": by_distance(search),
            "has_terms": has_terms(search),
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """Dimension of the mapped vectors."""
        return self.form.dim

    def by_owner(self, own: OwnRanking | None) -> DiagonalForm:
        """The owner's ranking in the place of what was learned; where the map lost it, the similarity that
        learning began from."""
        if own is not None:
            return own.form()
        return DiagonalForm(np.ones(self.dim, np.float32), self.form.normalised, by_distance(self.form))

    def terms(self, self_scores: Float32s) -> Float32s:
        """Those numbers of self scores, float32 [n]: 1 / norm where `normalised`, else what is added."""
        return terms_of(self.search, self_scores)

    def fold(self, queries: Block) -> Float32s:
        """S q for each mapped query, float32 [m, d]; its product with an item scores, but for `terms`."""
        return self.search.fold(queries)

    def self_scores(self, items: Block, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each mapped item, >= 0, float32 [n]: its squared norm. `pieces` changes no bit."""
        return self.search.self_scores(items, pieces)

    def pair_scores(self, queries: Block, items: Block, terms: Float32s | None = None) -> Float32s:
        """Scores of all pairs, float32 [queries, items]. terms: what `terms` gives of the items, where it is
        known. NaN for an object that holds a value that is not finite."""
        if self.rescored:
            return self.form.scores(queries, items)
        scores = against(self.fold(queries), items)
        if self.has_terms:
            known = self.terms(self.self_scores(items)) if terms is None else terms
            scores = self.with_queries(queries, apply_terms(self.search, scores, known))
        return without_sense(scores, queries, items)

    def given_scores(self, queries: Block, items: Block, terms: Float32s | None = None) -> Float32s:
        """The same of lists that are given: by the order of the version where it has one."""
        if self.order is None:
            return self.pair_scores(queries, items, terms)
        return without_sense(self.order.scores(queries, items), queries, items)

    @property
    def top(self) -> int | None:
        """`OrderChoice.top` of a version that does not search; None where it does."""
        return None if self.answers.reach or self.answers.order is None else self.answers.order.top

    @property
    def reordered_first(self) -> int:
        """How many objects of the user's own ranking are put in order; 0 where the version searches, or
        leaves that ranking as it is."""
        return top if (top := self.top or 0) > 1 else 0

    def reordered(self, query: Block, first: Block, own: Float32s) -> tuple[Int64s, Float32s]:
        """A ranking by the form as a version answers that does not reach: its places int64 [n], and scores.

        query: of one row. first: the vectors of the first `reordered_first` objects, or of all. own: the
        scores of all, descending, float32 [n]. Behind `first` the own ranking stays; a score there is the
        last one of `first`, less what the own score is lower by.
        """
        if not len(first):
            return np.arange(len(own)), own
        scores = kept_scores(self.given_scores(query, first)[0])
        places = np.argsort(-scores, kind="stable")
        rest = scores[places[-1]] - (own[len(first) - 1] - own[len(first) :])
        places = np.concatenate([places, np.arange(len(first), len(own))])
        return places, np.concatenate([scores[places[: len(first)]], rest])

    def with_queries(self, queries: Block, scores: Float32s) -> Float32s:
        """Scores [queries, any] with what is the queries' own."""
        if not self.has_terms:
            return scores
        return apply_terms(self.search, scores, self.terms(self.self_scores(queries))[:, None])
