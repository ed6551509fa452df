"""One consistent model, as readers see it between two flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daemon.replica.model import ModelId
from learners.block import Block, Float32s
from learners.forms.diagonal import search_form
from learners.forms.quadratic import (
    FoldingForm,
    Pieces,
    ServedForm,
    by_distance,
    folds,
    has_terms,
    terms_of,
    whole,
)


@dataclass(frozen=True, slots=True)
class View:
    """A model to compute with, valid inside `with replica.read() as view` and not after it.

    map_id: id of the map that items and queries must be mapped with. formed: the state, in records since
    version 0, at which the form was computed and `prepared` was made of it; from there to `model.total` the
    form is carried over, and `prepared` is as it was. prepared: what `Hooks.prepare` made of the model (norms
    of the items), None where there is none.
    """

    model: ModelId
    map_id: str
    form: ServedForm
    formed: int
    prepared: Any = None

    @property
    def dim(self) -> int:
        """Dimension of the mapped vectors."""
        return self.form.dim

    @property
    def rescored(self) -> bool:
        """Whether what a search finds is a shortlist, of which `form.scores` makes the answer: where the form
        does not fold. Items are then searched by the cosine of their mapped vectors."""
        return not folds(self.form)

    @property
    def search(self) -> FoldingForm:
        """What items are searched by: the form itself where it folds."""
        return search_form(self.form)

    @property
    def normalised(self) -> bool:
        """Whether a search divides by sqrt(S(q, q) S(p, p))."""
        return self.search.normalised

    @property
    def by_distance(self) -> bool:
        """Whether a search ranks by minus a distance: see `learners.forms.quadratic.by_distance`."""
        return by_distance(self.search)

    @property
    def has_terms(self) -> bool:
        """Whether a search needs a number of each item beside its inner product with a folded query."""
        return has_terms(self.search)

    def terms(self, self_scores: Float32s) -> Float32s:
        """Those numbers, float32 [n], of the self scores of items: 1 / norm to multiply with where
        `normalised`, else what is added."""
        return terms_of(self.search, self_scores)

    def fold(self, queries: Block) -> Float32s:
        """S q for each mapped query, float32 [m, d]; the inner product with an item is its raw score, but for
        `terms`."""
        return self.search.fold(queries)

    def self_scores(self, items: Block, pieces: Pieces = whole) -> Float32s:
        """p^T S p for each mapped item, clipped at 0, float32 [n]: the square of its norm in a search.
        `pieces` changes no bit."""
        return self.search.self_scores(items, pieces)
