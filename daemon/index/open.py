"""The adapter that [index] configures. To add a store: a class as in `rest.py`, and its name here."""

from __future__ import annotations

import base64

from daemon.config.services import IndexConfig
from daemon.index.pgvector import PgVectorIndex
from daemon.index.protocol import VectorIndex
from daemon.index.rest import ElasticIndex, QdrantIndex
from streams.foreign_http import BlockingClient, ForeignServer

ANSWER_BYTES = 8 << 20
"""Of a store: ids and scores of 10,000 objects are a tenth of it."""


def open_index(config: IndexConfig, client: BlockingClient | None = None) -> VectorIndex | None:
    """The configured store, None where none is. It need not be there yet. client: in the place of the
    network. Raises UserError where a library is missing."""
    if not config.store:
        return None
    if config.store == "pgvector":
        return PgVectorIndex(config)
    asked = ForeignServer(
        config.address, headers_of(config), config.timeout, config.connections, ANSWER_BYTES, tries=2
    )
    kind = QdrantIndex if config.store == "qdrant" else ElasticIndex
    return kind(client or BlockingClient(asked), config)


def headers_of(config: IndexConfig) -> dict[str, str]:
    """Who asks: an API key, or a user and a password where `user` is given."""
    secret = config.secret.get_secret_value()
    if not secret:
        return {}
    if config.store == "qdrant":
        return {"api-key": secret}
    if config.user:
        pair = base64.b64encode(f"{config.user}:{secret}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"ApiKey {secret}"}
