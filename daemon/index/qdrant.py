"""Qdrant: the nearest points of a collection, by its REST interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from daemon.index.protocol import AskedVector, IndexHit, StoreRefused
from daemon.index.rest import RestStore


@dataclass(frozen=True, slots=True)
class QdrantCollection:
    """Where the vectors are. id: a key of the payload, "" for the points' own ids. vector: a named vector,
    "" for the unnamed one. tags: a key of the payload, "" without one."""

    collection: str
    id: str = ""
    vector: str = ""
    tags: str = ""


class QdrantIndex:
    """Asks one collection. width: `hnsw_ef`, how far an approximate search looks at least."""

    def __init__(self, store: RestStore, place: QdrantCollection, width: int) -> None:
        self._store, self._place, self._width = store, place, width

    @property
    def name(self) -> str:
        """The store and what is asked of it, for people."""
        return self._store.name

    def close(self) -> None:
        """Let go of the connections."""
        self._store.close()

    def search(
        self, vector: AskedVector, k: int, tags: Sequence[str] = (), *, exact: bool = False
    ) -> list[IndexHit]:
        """As `VectorIndex.search`."""
        place = self._place
        if tags and not place.tags:
            raise StoreRefused(f"{self.name}: no key of tags is named", "name it in index.tags")
        body: dict[str, Any] = {
            "query": {"indices": vector["indices"], "values": vector["values"]}
            if isinstance(vector, Mapping)
            else vector,
            "limit": k,
            "params": {"exact": True} if exact else {"hnsw_ef": max(k, self._width)},
            "with_payload": [place.id] if place.id else False,
            "with_vector": False,
        }
        if place.vector:
            body["using"] = place.vector
        if tags:
            body["filter"] = {"must": [{"key": place.tags, "match": {"value": tag}} for tag in tags]}
        answer = self._store.post(f"collections/{quote(place.collection, safe='')}/points/query", body)
        try:
            return [self._candidate(point) for point in answer["result"]["points"]]
        except (KeyError, TypeError) as error:
            told = f"{self.name}: an answer without {error}"
            raise StoreRefused(told, "see index.id and index.address") from error

    def _candidate(self, point: Mapping[str, Any]) -> IndexHit:
        name = point["payload"][self._place.id] if self._place.id else point["id"]
        return IndexHit(str(name), float(point["score"]))
