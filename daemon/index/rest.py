"""Stores that are asked in JSON over HTTP: Elasticsearch, OpenSearch and Qdrant.

Questions to Elasticsearch have unit length: its `dot_product` refuses any other, and no order depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote

import numpy as np
from pydantic_core import to_json

from daemon.index.protocol import (
    AskedVector,
    IndexHit,
    StoreAway,
    StoreMalformed,
    StoreRefused,
    StoreSpace,
    dense_of,
    hit_of,
    inside,
)
from streams.foreign_http import LATER, ForeignAnswer, ForeignError

_DENIED = (401, 403)


class AskingStore(Protocol):
    """What `BlockingClient` does. Any thread."""

    def ask(self, method: str, path: str, body: bytes | None = None) -> ForeignAnswer:
        """The answer to a question. Raises ForeignError."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class RestStore:
    """A store behind a client. name: for messages."""

    def __init__(self, client: AskingStore, name: str) -> None:
        self._client, self.name = client, name
        self.close = client.close

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, known: bool = True) -> Any:
        """The JSON of the answer to a GET, with a body to a POST. known: else None is the answer of a store
        that does not say this to us. Raises StoreError."""
        method, sent = ("GET", None) if body is None else ("POST", to_json(body))
        try:
            answer = self._client.ask(method, f"/{path}", sent)
            if answer.status in _DENIED and not known:
                return None
            if answer.status in LATER:
                raise self._away(f"it answers {answer.status}", _reason(answer))
            if answer.status != 200:
                message, remedy = f"{self.name} answers {answer.status}", "compare [index] with the store"
                raise StoreRefused(message, remedy, _reason(answer))
            return answer.json()
        except ForeignError as error:
            if error.reason in ("unreachable", "timeout"):
                raise self._away(str(error)) from error
            raise StoreMalformed(f"{self.name}: {error}", "see index.address: is it the store's?") from error

    def hits(self, answer: Any, *path: str) -> list[Any]:
        """The list at a path of an answer. Raises StoreMalformed."""
        found = inside(answer, *path)
        if not isinstance(found, list):
            message = f"{self.name}: an answer without {'.'.join(path)}"
            raise StoreMalformed(message, "see index.address: is it the store's?")
        return found

    def _away(self, why: str, detail: str = "") -> StoreAway:
        remedy = "look after the store, or see index.address"
        return StoreAway(f"{self.name} does not answer: {why}", remedy, detail)


def _reason(answer: ForeignAnswer) -> str:
    """What a store says is wrong, in one line."""
    try:
        said = answer.json()
    except ForeignError:
        return answer.text
    causes = inside(said, "error", "root_cause")
    first = causes[0] if isinstance(causes, list) and causes else None
    for path in (("error", "reason"), ("status", "error"), ("error",)):
        first = inside(first, "reason") or inside(said, *path) if not isinstance(first, str) else first
    return " ".join(str(first or said).split())[:300]


WIDEST = 10_000
"""The largest `num_candidates` of Elasticsearch, and `k` of both."""


@dataclass(frozen=True, slots=True)
class ElasticField:
    """Where the vectors are. id: a field, "" for the documents' own ids (`_id`). tags: a keyword field, ""
    without one."""

    kind: Literal["elasticsearch", "opensearch"]
    index: str
    vector: str
    id: str = ""
    tags: str = ""


class ElasticIndex:
    """Asks one index. width: `num_candidates` or `ef_search`, how far a search looks at least."""

    def __init__(self, store: RestStore, place: ElasticField, width: int) -> None:
        self._store, self._place, self._width = store, place, width
        self._space: StoreSpace | None = None

    @property
    def name(self) -> str:
        """The store and what is asked of it, for people."""
        return self._store.name

    def close(self) -> None:
        """Let go of the connections."""
        self._store.close()

    def search(
        self,
        vector: AskedVector,
        k: int,
        tags: Sequence[str] = (),
        *,
        exact: bool = False,
        similarity: str = "",
    ) -> list[IndexHit]:
        """As `VectorIndex.search`."""
        place = self._place
        if tags and not place.tags:
            raise StoreRefused(f"{self.name}: no field of tags is named", "name it in index.tags")
        values = dense_of(vector, self.name)
        space = self._space or self._look()
        space.require(self.name, vector, similarity)
        self._space = space  # one that does not fit is looked at again: it may be mended
        length = float(np.linalg.norm(values))
        unit = (values / length if length else values).tolist()
        k = min(k, WIDEST)
        body: dict[str, Any] = {"size": k, "_source": False}
        if place.id:
            body["fields"] = [place.id]
        terms = [{"term": {place.tags: tag}} for tag in tags]
        if exact:
            body["query"] = self._exact(unit, terms, space.distance)
        elif place.kind == "elasticsearch":
            body["knn"] = self._knn(unit, k, terms)
        else:
            body["query"] = {"knn": {place.vector: self._neural(unit, k, terms)}}
        answer = self._store.ask(f"{quote(place.index, safe='')}/_search", body)
        return [self._candidate(hit) for hit in self._store.hits(answer, "hits", "hits")]

    def _knn(self, unit: list[float], k: int, terms: list[dict[str, Any]]) -> dict[str, Any]:
        """The `knn` part of Elasticsearch."""
        width = min(WIDEST, max(k, self._width))
        asked = {"field": self._place.vector, "query_vector": unit, "k": k, "num_candidates": width}
        return asked | ({"filter": terms} if terms else {})

    def _neural(self, unit: list[float], k: int, terms: list[dict[str, Any]]) -> dict[str, Any]:
        """The `knn` query of OpenSearch."""
        asked = {"vector": unit, "k": k, "method_parameters": {"ef_search": max(k, self._width)}}
        return asked | ({"filter": {"bool": {"must": terms}}} if terms else {})

    def _exact(self, unit: list[float], terms: list[dict[str, Any]], distance: str) -> dict[str, Any]:
        """A query that scores every document, by the distance of the field."""
        field = self._place.vector
        inner = {"bool": {"filter": [{"exists": {"field": field}}, *terms]}}
        if self._place.kind == "opensearch":
            params = {"field": field, "query_value": unit, "space_type": distance or "l2"}
            script = {"source": "knn_score", "lang": "knn", "params": params}
        else:
            source = _SCRIPTS.get(distance, _COSINE).replace("FIELD", field.replace("'", ""))
            script = {"source": source, "params": {"q": unit}}
        return {"script_score": {"query": inner, "script": script}}

    def _look(self) -> StoreSpace:
        """What the field is, from its mapping; who may only search is not told."""
        place = self._place
        index, field = quote(place.index, safe=""), quote(place.vector, safe="")
        found = self._store.ask(f"{index}/_mapping/field/{field}", known=False)
        if found is None:
            return StoreSpace(None, "")
        of_indexes = found.values() if isinstance(found, dict) else ()
        fields = (inside(one, "mappings", place.vector, "mapping") for one in of_indexes)
        mapping = next((inside(one, place.vector.rpartition(".")[2]) for one in fields if one), None)
        if mapping is None:
            raise StoreRefused(f"{self.name}: there is no field {place.vector}", "name it in index.vector")
        if place.kind == "opensearch":
            named = inside(mapping, "method", "space_type") or inside(mapping, "space_type") or "l2"
            return StoreSpace.read(inside(mapping, "dimension"), named)
        return StoreSpace.read(inside(mapping, "dims"), inside(mapping, "similarity") or "cosine")

    def _candidate(self, hit: Any) -> IndexHit:
        name = inside(hit, "fields", self._place.id) if self._place.id else inside(hit, "_id")
        name = name[0] if isinstance(name, list) and name else name
        return hit_of(self.name, name, inside(hit, "_score"))


_COSINE = "cosineSimilarity(params.q, 'FIELD') + 1.0"
_SCRIPTS = {
    "cosine": _COSINE,
    "dot_product": _COSINE,
    "max_inner_product": "double d = dotProduct(params.q, 'FIELD'); return d < 0 ? 1 / (1 - d) : d + 1;",
    "l2_norm": "1 / (1 + l2norm(params.q, 'FIELD'))",
}
"""Scores that rank as the field's similarity does; none may be negative."""


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
        self._space: StoreSpace | None = None

    @property
    def name(self) -> str:
        """The store and what is asked of it, for people."""
        return self._store.name

    def close(self) -> None:
        """Let go of the connections."""
        self._store.close()

    def search(
        self,
        vector: AskedVector,
        k: int,
        tags: Sequence[str] = (),
        *,
        exact: bool = False,
        similarity: str = "",
    ) -> list[IndexHit]:
        """As `VectorIndex.search`."""
        place = self._place
        if tags and not place.tags:
            raise StoreRefused(f"{self.name}: no key of tags is named", "name it in index.tags")
        path = f"collections/{quote(place.collection, safe='')}"
        space = self._space or self._look(path)
        space.require(self.name, vector, similarity)
        self._space = space  # one that does not fit is looked at again: it may be mended
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
        answer = self._store.ask(f"{path}/points/query", body)
        sign = -1.0 if space.distance in _DISTANCES else 1.0  # Qdrant's own distances: smaller is nearer
        return [self._candidate(point, sign) for point in self._store.hits(answer, "result", "points")]

    def _look(self, path: str) -> StoreSpace:
        """What the vectors of the collection are; a sparse one has neither size nor distance."""
        found = inside(self._store.ask(path, known=False), "result", "config", "params", "vectors")
        one = inside(found, self._place.vector) if self._place.vector else found
        return StoreSpace.read(inside(one, "size"), inside(one, "distance"))

    def _candidate(self, point: Any, sign: float) -> IndexHit:
        name = inside(point, "payload", self._place.id) if self._place.id else inside(point, "id")
        hit = hit_of(self.name, name, inside(point, "score"))
        return IndexHit(hit.id, sign * hit.score)


_DISTANCES = ("Euclid", "Manhattan")
