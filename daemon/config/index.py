"""[index]: the vector store that is already there, and how it is asked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from daemon.config.values import OptionalSeconds, PositiveSeconds, Section


class IndexConfig(Section):
    """[index]: the vector store that is already there, asked with what was learned."""

    store: Literal["", "pgvector", "qdrant", "elasticsearch", "opensearch"] = Field(
        "", description="where your vectors are; empty: /v1/similar searches the catalog itself"
    )
    address: str = Field(
        "", description="postgresql://USER@HOST/DATABASE, or http(s)://HOST:PORT; without a password"
    )
    user: str = Field("", description="elasticsearch, opensearch: of basic authentication; empty: an API key")
    secret: SecretStr = Field(SecretStr(""), description="password or API key of the store")
    collection: str = Field("", description="table, collection or index that holds the vectors")
    id: str = Field(
        "", description="column or field of objects' ids; empty: id of pgvector, else the store's own"
    )
    vector: str = Field(
        "", description="column, field or named vector; empty: embedding, of qdrant the unnamed one"
    )
    tags: str = Field(
        "", description="column (text[]), key or field that filter.tags is looked up in; empty: none"
    )
    mode: Literal["auto", "own", "folded", "rescored", "embedded"] = Field(
        "auto",
        description="what the store is asked: own, your ranking; folded, the learned one up to each object's"
        " norm; rescored, the learned one of the candidates; embedded, where it holds exported vectors; auto:"
        " rescored or folded where `tripletd index judge` holds it up, else own",
    )
    version: int = Field(-1, ge=-1, description="embedded: the version whose exported vectors it holds")
    candidates: int = Field(
        200, ge=1, le=10_000, description="objects fetched per question, of which the best are answered"
    )
    width: int = Field(
        400,
        ge=0,
        le=10_000,
        description="how far an approximate search looks at least: hnsw.ef_search, hnsw_ef, num_candidates",
    )
    timeout: PositiveSeconds = Field(1.0, description="longest wait for the store")
    connections: int = Field(8, ge=1, le=256, description="most questions to the store at once")
    fallback: Literal["none", "catalog"] = Field(
        "none", description="while the store is away: none, answer 503; catalog, search the catalog itself"
    )
    recall: float = Field(
        0.95,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="least share of the exact first 10 that the store should find; below it, a warning",
    )
    recall_every: OptionalSeconds = Field(600.0, description="how often that is measured; empty never")

    @field_validator("address")
    @classmethod
    def _without_password(cls, address: str) -> str:
        before = address.partition("://")[2].partition("/")[0].rpartition("@")[0]
        if before.partition(":")[2] or "password=" in address:
            raise ValueError("an address holds no password; give it in index.secret")
        return address

    @model_validator(mode="after")
    def _goes_together(self) -> IndexConfig:
        if not self.store:
            return self
        for name in ("address", "collection"):
            if not getattr(self, name):
                raise ValueError(f"store = {self.store!r} needs index.{name}")
        over_http = self.address.startswith(("http://", "https://"))
        if (self.store == "pgvector") == over_http:
            wanted = "postgresql://..." if self.store == "pgvector" else "http://... or https://..."
            raise ValueError(f"address: expected {wanted} for store = {self.store!r}")
        if self.mode == "embedded" and self.version < 0:
            raise ValueError("mode = 'embedded' needs index.version, whose vectors the store holds")
        return self
