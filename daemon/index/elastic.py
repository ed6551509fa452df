"""Elasticsearch and OpenSearch: the nearest documents of an index, by their REST interfaces.

Questions have unit length: `dot_product` of Elasticsearch refuses any other, and no order depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import numpy as np

from daemon.index.protocol import AskedVector, IndexHit, StoreRefused, dense_of
from daemon.index.rest import RestStore

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
            told = f"{self.name}: an answer without {error}"
            raise StoreRefused(told, "see index.id and index.address") from error

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
