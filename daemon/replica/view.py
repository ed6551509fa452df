"""One consistent model, as readers see it between two flips."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    search: FoldingForm = field(init=False, repr=False)
    """What items are searched by: the form itself where it folds, else the cosine of their mapped vectors."""
    rescored: bool = field(init=False, repr=False)
    """Whether what a search finds is a shortlist, of which `form.scores` makes the answer: the form does not
    fold."""
    normalised: bool = field(init=False, repr=False)
    """Whether a search divides by sqrt(S(q, q) S(p, p))."""
    by_distance: bool = field(init=False, repr=False)
    """Whether a search ranks by minus a distance: see `learners.forms.quadratic.by_distance`."""
    has_terms: bool = field(init=False, repr=False)
    """Whether a search needs a number of each item besides its inner product with a folded query."""

    def __post_init__(self) -> None:
        """Ask the form once what every request needs to know of it."""
        search = search_form(self.form)
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
