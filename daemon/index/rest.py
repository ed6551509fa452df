"""Stores that are asked in JSON over HTTP: Elasticsearch, OpenSearch and Qdrant.

Connections are kept and bounded in time, with another try where that can help. Questions to Elasticsearch
have unit length: its `dot_product` refuses any other, and no order depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np

from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.index.protocol import AskedVector, IndexHit, StoreAway, StoreRefused, dense_of

if TYPE_CHECKING:
    import httpx

TRIES = 2
REST_S = 0.05
"""Between two tries."""
LATER = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses of a store that may answer the same question later."""
_LONGEST = 300


class RestStore:
    """A store at an address. name: for messages. transport: in the place of the network. timeout_s: of each
    try, to connect and to answer.

    Raises UserError where httpx is not installed.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        connections: int,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._httpx = load_httpx()
        self.name = name
        limits = self._httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client: httpx.Client = self._httpx.Client(
            base_url=address.rstrip("/") + "/",
            headers=dict(headers),
            timeout=timeout_s,
            limits=limits,
            transport=transport,
            trust_env=False,  # a proxy of the environment stands between us and the world, not the store
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def get(self, path: str) -> Any:
        """The JSON of an answer. Raises StoreAway and StoreRefused."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The same of a question with a body."""
        return self._asked("POST", path, body)

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        for left in reversed(range(TRIES)):
            try:
                answer = self._client.request(method, path, json=body)
            except self._httpx.TimeoutException as error:
                raise self._away("it took too long") from error
            except self._httpx.TransportError as error:
                if not left:
                    raise self._away(str(error) or type(error).__name__) from error
            else:
                if answer.status_code not in LATER:
                    return self._read(answer)
                if not left:
                    raise self._away(f"{answer.status_code}: {_reason(answer)}")
            time.sleep(REST_S)
        raise AssertionError("the last try returns or raises")

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code >= 300:
            message = f"{self.name}: {answer.status_code}: {_reason(answer)}"
            raise StoreRefused(message, "compare [index] with the store")
        try:
            return answer.json()
        except ValueError as error:
            raise StoreRefused(
                f"{self.name}: what answers speaks no JSON", "see index.address: is it the store's own?"
            ) from error

    def _away(self, why: str) -> StoreAway:
        return StoreAway(f"{self.name} does not answer: {why}", "look after the store, or see index.address")


def _reason(answer: httpx.Response) -> str:
    """What a store says is wrong, in one line."""
    try:
        said: Any = answer.json()
        for name in ("error", "status"):
            said = said.get(name, said) if isinstance(said, dict) else said
        if isinstance(said, dict):
            causes = [*(said.get("root_cause") or []), said]
            reason = next((one["reason"] for one in causes if one.get("reason")), None)
            said = reason or said.get("error", said)
    except ValueError:
        said = answer.text
    return " ".join(str(said).split())[:_LONGEST]


def load_httpx() -> Any:
    """The library. Raises UserError where it is not installed."""
    try:
        import httpx
    except ImportError as error:
        raise UserError(
            f"a store over HTTP is configured, but httpx cannot be imported: {error}",
            "pip install 'tripletd[index]'",
            EX_UNAVAILABLE,
        ) from error
    return httpx


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
        self._similarity: str | None = None

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
            raise StoreRefused(f"{self.name}: no field of tags is named", "name it in index.tags")
        values = dense_of(vector, self.name)
        length = float(np.linalg.norm(values))
        unit = (values / length if length else values).tolist()
        k = min(k, WIDEST)
        body: dict[str, Any] = {"size": k, "_source": False}
        if place.id:
            body["fields"] = [place.id]
        terms = [{"term": {place.tags: tag}} for tag in tags]
        if exact:
            body["query"] = self._exact(unit, terms)
        elif place.kind == "elasticsearch":
            body["knn"] = self._knn(unit, k, terms)
        else:
            body["query"] = {"knn": {place.vector: self._neural(unit, k, terms)}}
        answer = self._store.post(f"{quote(place.index, safe='')}/_search", body)
        try:
            return [self._candidate(hit) for hit in answer["hits"]["hits"]]
        except (KeyError, TypeError, IndexError) as error:
            message = f"{self.name}: an answer without {error}"
            raise StoreRefused(message, "see index.id and index.address") from error

    def _knn(self, unit: list[float], k: int, terms: list[dict[str, Any]]) -> dict[str, Any]:
        """The `knn` part of Elasticsearch."""
        width = min(WIDEST, max(k, self._width))
        asked = {"field": self._place.vector, "query_vector": unit, "k": k, "num_candidates": width}
        return asked | ({"filter": terms} if terms else {})

    def _neural(self, unit: list[float], k: int, terms: list[dict[str, Any]]) -> dict[str, Any]:
        """The `knn` query of OpenSearch."""
        asked = {"vector": unit, "k": k, "method_parameters": {"ef_search": max(k, self._width)}}
        return asked | ({"filter": {"bool": {"must": terms}}} if terms else {})

    def _exact(self, unit: list[float], terms: list[dict[str, Any]]) -> dict[str, Any]:
        """A query that scores every document, by the similarity of the field."""
        field = self._place.vector
        inside = {"bool": {"filter": [{"exists": {"field": field}}, *terms]}}
        if self._similarity is None:
            self._similarity = self._look()
        if self._place.kind == "opensearch":
            params = {"field": field, "query_value": unit, "space_type": self._similarity}
            script = {"source": "knn_score", "lang": "knn", "params": params}
        else:
            source = _SCRIPTS[self._similarity].replace("FIELD", field.replace("'", ""))
            script = {"source": source, "params": {"q": unit}}
        return {"script_score": {"query": inside, "script": script}}

    def _look(self) -> str:
        """The similarity of the field, from its mapping."""
        place = self._place
        index, field = quote(place.index, safe=""), quote(place.vector, safe="")
        found = self._store.get(f"{index}/_mapping/field/{field}")
        leaf = place.vector.rpartition(".")[2]
        fields = (one.get("mappings", {}).get(place.vector) for one in found.values())
        mapping = next((one["mapping"][leaf] for one in fields if one), None)
        if mapping is None:
            raise StoreRefused(f"{self.name}: there is no field {place.vector}", "name it in index.vector")
        if place.kind == "opensearch":
            return str(mapping.get("method", {}).get("space_type", mapping.get("space_type", "l2")))
        similarity = str(mapping.get("similarity", "cosine"))
        return similarity if similarity in _SCRIPTS else "cosine"

    def _candidate(self, hit: Mapping[str, Any]) -> IndexHit:
        name = hit["fields"][self._place.id][0] if self._place.id else hit["_id"]
        return IndexHit(str(name), float(hit["_score"]))


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
            message = f"{self.name}: an answer without {error}"
            raise StoreRefused(message, "see index.id and index.address") from error

    def _candidate(self, point: Mapping[str, Any]) -> IndexHit:
        name = point["payload"][self._place.id] if self._place.id else point["id"]
        return IndexHit(str(name), float(point["score"]))
