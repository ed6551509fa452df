"""Objects that are searched again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemon.replica.view import View
from learners.block import Block, Float32s
from learners.forms.quadratic import featured
from learners.search import as_items


@dataclass(frozen=True, slots=True)
class Ready:
    """Items under one model. terms: what `View.terms` gives of each, float32 [n], None where scores need
    nothing. features: float32 [n, F], see `learners.forms.quadratic.FeaturedForm`; None where there are
    none."""

    terms: Float32s | None
    features: Float32s | None = None


class Items:
    """Objects mapped once, to be searched again and again: made by `Model.items`.

    Their norms are computed anew for each model before it answers, off the path of callers.
    """

    def __init__(self, mapped: Block, ids: Sequence[str]) -> None:
        if len(ids) not in (0, len(mapped)):
            raise ValueError(f"{len(ids)} ids for {len(mapped)} items: give one each, or none")
        self.mapped = mapped
        self.search = as_items(mapped)
        self.ids = tuple(ids)

    def __len__(self) -> int:
        return len(self.mapped)

    def ready(self, view: View, lasting: bool) -> Ready:
        """What is computed of the items for a model. lasting: it will be used again, so that features are
        worth their time."""
        terms = view.terms(view.self_scores(self.mapped)) if view.has_terms else None
        known = view.form.features(self.mapped) if lasting and featured(view.form) else None
        return Ready(terms, known)
