"""What every vector store is asked, and how it says that it cannot answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

AskedVector: TypeAlias = list[float] | Mapping[str, Any]
"""A vector as JSON has it: its numbers, or `indices` and `values` of a sparse one."""


@dataclass(frozen=True, slots=True)
class IndexHit:
    """An object that a store found. score: the store's own number of it, larger is nearer."""

    id: str
    score: float


class StoreError(Exception):
    """A store did not answer a question. `remedy`: what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


class StoreAway(StoreError):
    """It is not reached, or not in time: the same question may be answered later."""


class StoreRefused(StoreError):
    """It will not answer this question: a setting names what is not there, or vectors do not fit."""


class VectorIndex(Protocol):
    """Finds the nearest of what it holds to a vector. Any thread. Everything it does is bounded in time."""

    @property
    def name(self) -> str:
        """The store and what is asked of it, for people: `pgvector items`."""
        ...

    def search(
        self, vector: AskedVector, k: int, tags: Sequence[str] = (), *, exact: bool = False
    ) -> list[IndexHit]:
        """At most k objects, best first. tags: each of them is carried by every one. exact: all objects are
        looked at. Raises StoreError."""
        ...

    def close(self) -> None:
        """Let go of its connections; bounded."""
        ...


def dense_of(vector: AskedVector, name: str) -> NDArray[np.float64]:
    """The numbers of a dense vector, float64 [d]. Raises StoreRefused for a sparse one."""
    if isinstance(vector, Mapping):
        raise StoreRefused(
            f"{name} holds dense vectors, and those of this space are sparse",
            "use sparsevec of pgvector or a sparse vector of Qdrant, or remove [index]",
        )
    return np.array(vector, np.float64)
