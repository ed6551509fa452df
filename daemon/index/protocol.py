"""What every vector store is asked, and how it says that it cannot answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

AskedVector: TypeAlias = list[float] | Mapping[str, Any]
"""A vector as JSON has it: its numbers, or `indices` and `values` of a sparse one."""
_LARGEST = 1e300
_WORDS = {"inner_product": "inner product", "squared_euclidean": "Euclidean distance"}
_FITTING: Mapping[str, tuple[str, ...]] = {
    "inner_product": (
        *("Dot", "Cosine", "dot_product", "max_inner_product", "innerproduct", "cosine", "cosinesimil", "ip"),
    ),
    "squared_euclidean": ("Euclid", "l2_norm", "l2"),
}
"""By similarity of vectors: distances of the stores that order as it does, in their words."""


@dataclass(frozen=True, slots=True)
class IndexHit:
    """An object that a store found. score: the store's own number of it, larger is nearer."""

    id: str
    score: float


class StoreError(Exception):
    """A store did not answer a question. `remedy`: what to do about it. `detail`: the store's words, for the
    operator alone: they may tell of our credentials."""

    def __init__(self, message: str, remedy: str, detail: str = "") -> None:
        super().__init__(f"{message}: {detail}" if detail else message)
        self.message, self.remedy = message, remedy


class StoreAway(StoreError):
    """It is not reached, or not in time: the same question may be answered later."""


class StoreRefused(StoreError):
    """It will not answer this question: a setting names what is not there, or vectors do not fit."""


class StoreMalformed(StoreError):
    """Its answer is not what its interface promises."""


class VectorIndex(Protocol):
    """Finds the nearest of what it holds to a vector. Any thread. Everything it does is bounded in time."""

    @property
    def name(self) -> str:
        """The store and what is asked of it, for people: `pgvector items`."""

    def search(
        self,
        vector: AskedVector,
        k: int,
        tags: Sequence[str] = (),
        *,
        exact: bool = False,
        similarity: str = "",
    ) -> list[IndexHit]:
        """At most k objects, best first. tags: each of them is carried by every one. exact: all objects are
        looked at. similarity: by which the vector is to be compared, "" where that does not matter; a store
        that compares otherwise, or holds vectors of another size, is not asked. Raises StoreError."""

    def close(self) -> None:
        """Let go of its connections; bounded."""


def hit_of(name: str, identity: Any, score: Any) -> IndexHit:
    """A hit as a store wrote it. name: of the store. Raises StoreMalformed for what is no id, or no finite
    score."""
    finite = type(score) in (int, float) and abs(score) <= _LARGEST
    if type(identity) not in (int, str) or not finite:
        message = f"{name}: a hit without {'an id' if finite else 'a finite score'}"
        raise StoreMalformed(message, "see index.id and index.address")
    return IndexHit(str(identity), float(score))


def inside(value: Any, *path: str) -> Any:
    """What is at a path of names in an answer, None where nothing is."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


@dataclass(frozen=True, slots=True)
class StoreSpace:
    """What a store compares: how many numbers a vector has, None where that is not known, and by which
    distance, in the store's word for it."""

    size: int | None
    distance: str

    @classmethod
    def read(cls, size: Any, distance: Any) -> StoreSpace:
        """Of what a store says of itself."""
        return cls(size if type(size) is int else None, distance if isinstance(distance, str) else "")

    @classmethod
    def of(cls, size: int | None, distances: Sequence[str], similarity: str) -> StoreSpace:
        """By that of several distances which fits a similarity, else by the first; of none by no distance."""
        fitting = [one for one in distances if one in _FITTING.get(similarity, ())]
        return cls(size, [*fitting, *distances, ""][0])

    def require(self, name: str, vector: AskedVector, similarity: str) -> None:
        """Raises StoreRefused where a vector cannot be compared by it. name: of the store."""
        size = None if isinstance(vector, Mapping) else len(vector)
        if size is not None and self.size not in (None, size):
            message = f"{name} holds vectors with {self.size} dimensions, and this space has {size}"
            raise StoreRefused(message, "fill it with vectors of the model that embedded the catalog")
        fitting = _FITTING.get(similarity, (self.distance,))
        if self.distance and self.distance not in fitting:
            message = f"{name} uses the distance {self.distance}, and this ranking needs {_WORDS[similarity]}"
            raise StoreRefused(message, f"create its collection or index again by {' or '.join(fitting)}")


def dense_of(vector: AskedVector, name: str) -> NDArray[np.float64]:
    """The numbers of a dense vector, float64 [d]. Raises StoreRefused for a sparse one."""
    if isinstance(vector, Mapping):
        remedy = "use sparsevec of pgvector or a sparse vector of Qdrant, or remove [index]"
        raise StoreRefused(f"{name} holds dense vectors, and those of this space are sparse", remedy)
    return np.array(vector, np.float64)
