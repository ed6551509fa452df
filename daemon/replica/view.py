"""One consistent model, as readers see it between two flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from daemon.replica.model import ModelId
from learners.block import Block, Float32s


class Form(Protocol):
    """A serving form: of a version, or carried on from one."""

    @property
    def dim(self) -> int:
        """Dimension of the mapped vectors."""

    @property
    def normalised(self) -> bool:
        """Whether scores are divided by sqrt(S(q, q) S(p, p))."""

    def fold(self, queries: Block) -> Float32s:
        """S q of each row, float32 [m, d]."""

    def self_scores(self, items: Block) -> Float32s:
        """p^T S p of each row, clipped at 0, float32 [n]."""


@dataclass(frozen=True, slots=True)
class View:
    """A model to compute with, valid inside `with replica.read() as view` and not after it.

    map_id: id of the map that items and queries must be mapped with. formed: the state at which `prepared`
    and the form's correction were computed, in events applied behind version 0; the state itself is `total`
    events behind it, and what lies between is carried over. prepared: what `prepare` made of the model (norms of the
    items), None where no `prepare` was given.
    """

    model: ModelId
    map_id: str
    form: Form
    total: int
    formed: int
    prepared: Any = None

    @property
    def dim(self) -> int:
        """Dimension of the mapped vectors."""
        return self.form.dim

    @property
    def normalised(self) -> bool:
        """Whether scores are divided by sqrt(S(q, q) S(p, p))."""
        return self.form.normalised

    def fold(self, queries: Block) -> Float32s:
        """S q for each mapped query, float32 [m, d]; the inner product with an item is its raw score."""
        return self.form.fold(queries)

    def self_scores(self, items: Block) -> Float32s:
        """p^T S p for each mapped item, clipped at 0, float32 [n]: the square of its norm."""
        return self.form.self_scores(items)
