"""Objects that are searched again and again."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.replica.view import View
from learners.block import Block, Float32s
from learners.search import as_items


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

    def terms(self, view: View) -> Float32s | None:
        """What `View.terms` gives of each item under a model, float32 [n]; None where scores need nothing."""
        return view.terms(view.self_scores(self.mapped)) if view.has_terms else None
