"""Stores that are asked in JSON over HTTP: Elasticsearch, OpenSearch and Qdrant.

Questions to Elasticsearch have unit length: its `dot_product` refuses any other, and no order depends on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from pydantic_core import to_json

from daemon.config.services import IndexConfig
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
from streams.foreign_http import LATER, BlockingClient, ForeignAnswer, ForeignError


class RestIndex(ABC):
    """A store that is asked through a client, for what [index] names. Any thread."""

    def __init__(self, client: BlockingClient, config: IndexConfig) -> None:
        self._client, self._config = client, config
        self.name = f"{config.store} {config.collection}"
        self.close = client.close
        self._path = quote(config.collection, safe="")
        self._space: StoreSpace | None = None

    @abstractmethod
    def _look(self) -> StoreSpace:
        """What it says of its vectors. Raises StoreError."""

    @abstractmethod
    def _found(
        self, vector: AskedVector, k: int, tags: Sequence[str], space: StoreSpace, *, exact: bool
    ) -> list[IndexHit]:
        """What it finds for a vector that can be compared in this space. Raises StoreError."""

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
        if tags and not self._config.tags:
            raise StoreRefused(f"{self.name}: index.tags is not set", "set it to the field with tags")
        space, self._space = self._space or self._look(), None
        space.require(self.name, vector, similarity)
        self._space = space  # one that does not fit is looked at again: it may be mended
        return self._found(vector, k, tags, space, exact=exact)

    def _asked(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of the answer to a question; None where there is no body and the store refuses to describe
        itself (401, 403). Raises StoreError."""
        method, sent = ("GET", None) if body is None else ("POST", to_json(body))
        try:
            answer = self._client.ask(method, f"/{path}", sent)
            if answer.status in (401, 403) and body is None:
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

    def _hits(self, answer: Any, *path: str) -> list[Any]:
        """The list at a path of an answer. Raises StoreMalformed."""
        found = inside(answer, *path)
        if not isinstance(found, list):
            message = f"{self.name}: an answer without {'.'.join(path)}"
            raise StoreMalformed(message, "see index.address: is it the store's?")
        return found

    def _away(self, why: str, detail: str = "") -> StoreAway:
        remedy = "start the store, or correct index.address"
        return StoreAway(f"{self.name} does not answer: {why}", remedy, detail)


def _reason(answer: ForeignAnswer) -> str:
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


class ElasticIndex(RestIndex):
    """Asks one index. `index.width` is `num_candidates` or `ef_search`, how far a search looks at least."""

    @property
    def _field(self) -> str:
        return self._config.vector or "embedding"

    def _found(
        self, vector: AskedVector, k: int, tags: Sequence[str], space: StoreSpace, *, exact: bool
    ) -> list[IndexHit]:
        config, values = self._config, dense_of(vector, self.name)
        length = float(np.linalg.norm(values))
        unit = (values / length if length else values).tolist()
        k = min(k, WIDEST)
        body: dict[str, Any] = {"size": k, "_source": False}
        if config.id:
            body["fields"] = [config.id]
        terms = [{"term": {config.tags: tag}} for tag in tags]
        if exact:
            body["query"] = self._exact(unit, terms, space.distance)
        elif config.store == "elasticsearch":
            body["knn"] = self._knn(unit, k, terms)
        else:
            body["query"] = {"knn": {self._field: self._neural(unit, k, terms)}}
        answer = self._asked(f"{self._path}/_search", body)
        return [self._candidate(hit) for hit in self._hits(answer, "hits", "hits")]

    def _knn(self, unit: list[float], k: int, terms: list[dict[str, Any]]) -> dict[str, Any]:
        """The `knn` part of Elasticsearch."""
        width = min(WIDEST, max(k, self._config.width))
        asked = {"field": self._field, "query_vector": unit, "k": k, "num_candidates": width}
        return asked | ({"filter": terms} if terms else {})

    def _neural(self, unit: list[float], k: int, terms: list[dict[str, Any]]) -> dict[str, Any]:
        """The `knn` query of OpenSearch."""
        asked = {"vector": unit, "k": k, "method_parameters": {"ef_search": max(k, self._config.width)}}
        return asked | ({"filter": {"bool": {"must": terms}}} if terms else {})

    def _exact(self, unit: list[float], terms: list[dict[str, Any]], distance: str) -> dict[str, Any]:
        field = self._field
        inner = {"bool": {"filter": [{"exists": {"field": field}}, *terms]}}
        if self._config.store == "opensearch":
            params = {"field": field, "query_value": unit, "space_type": distance or "l2"}
            script = {"source": "knn_score", "lang": "knn", "params": params}
        else:
            source = _SCRIPTS.get(distance, _COSINE).replace("FIELD", field.replace("'", ""))
            script = {"source": source, "params": {"q": unit}}
        return {"script_score": {"query": inner, "script": script}}

    def _look(self) -> StoreSpace:
        """What the field is, from its mapping; who may only search is not told."""
        name = self._field
        found = self._asked(f"{self._path}/_mapping/field/{quote(name, safe='')}")
        if found is None:
            return StoreSpace(None, "")
        of_indexes = found.values() if isinstance(found, dict) else ()
        fields = (inside(one, "mappings", name, "mapping") for one in of_indexes)
        mapping = next((inside(one, name.rpartition(".")[2]) for one in fields if one), None)
        if mapping is None:
            raise StoreRefused(f"{self.name}: there is no field {name}", "name it in index.vector")
        if self._config.store == "opensearch":
            named = inside(mapping, "method", "space_type") or inside(mapping, "space_type") or "l2"
            return StoreSpace.read(inside(mapping, "dimension"), named)
        return StoreSpace.read(inside(mapping, "dims"), inside(mapping, "similarity") or "cosine")

    def _candidate(self, hit: Any) -> IndexHit:
        name = inside(hit, "fields", self._config.id) if self._config.id else inside(hit, "_id")
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


class QdrantIndex(RestIndex):
    """Asks one collection. `index.width` is `hnsw_ef`, how far an approximate search looks at least."""

    def _found(
        self, vector: AskedVector, k: int, tags: Sequence[str], space: StoreSpace, *, exact: bool
    ) -> list[IndexHit]:
        config = self._config
        body: dict[str, Any] = {
            "query": vector,
            "limit": k,
            "params": {"exact": True} if exact else {"hnsw_ef": max(k, self._config.width)},
            "with_payload": [config.id] if config.id else False,
            "with_vector": False,
        }
        if config.vector:
            body["using"] = config.vector
        if tags:
            body["filter"] = {"must": [{"key": config.tags, "match": {"value": tag}} for tag in tags]}
        answer = self._asked(f"collections/{self._path}/points/query", body)
        sign = -1.0 if space.distance in _DISTANCES else 1.0  # Qdrant's own distances: smaller is nearer
        return [self._candidate(point, sign) for point in self._hits(answer, "result", "points")]

    def _look(self) -> StoreSpace:
        """What the vectors of the collection are; a sparse one has neither size nor distance."""
        found = inside(self._asked(f"collections/{self._path}"), "result", "config", "params", "vectors")
        one = inside(found, self._config.vector) if self._config.vector else found
        return StoreSpace.read(inside(one, "size"), inside(one, "distance"))

    def _candidate(self, point: Any, sign: float) -> IndexHit:
        name = inside(point, "payload", self._config.id) if self._config.id else inside(point, "id")
        hit = hit_of(self.name, name, inside(point, "score"))
        return IndexHit(hit.id, sign * hit.score)


_DISTANCES = ("Euclid", "Manhattan")
