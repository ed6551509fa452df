"""pgvector: the nearest rows of a Postgres table.

The order is by the bare operator of the index that is there, since an index of pgvector serves no other
expression; without one, by that of the ranking. What a question needs (how far to look, a limit of time, a
plan that knows the numbers) is set for its transaction alone, so that a pooler between us and the database
may share connections; all of it goes in one round trip.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from daemon.config.services import IndexConfig
from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.index.protocol import AskedVector, IndexHit, StoreAway, StoreRefused, StoreSpace, hit_of

if TYPE_CHECKING:
    from psycopg import Connection, sql
    from psycopg_pool import ConnectionPool

WIDEST = 1000
"""The largest `hnsw.ef_search` that pgvector takes."""
ITERATIVE = (0, 8)
"""The first pgvector whose scans continue until a filter has left enough rows."""
OPERATORS: Mapping[str, str] = {"ip": "<#>", "cosine": "<=>", "l2": "<->"}
"""By the middle of an operator class' name, such as `vector_ip_ops`."""
TRIES = 2
_CLOSE_S = 2.0

_COLUMN = """
SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attname = %s AND NOT a.attisdropped
"""
_INDEXES = """
SELECT o.opcname FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
JOIN pg_opclass o ON o.oid = i.indclass[0]
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = %s::regclass AND a.attname = %s AND i.indisvalid AND m.amname IN ('hnsw', 'ivfflat')
ORDER BY i.indexrelid
"""
_VERSION = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table is. kind: the type of its vectors. iterative: whether scans can continue. size: of its
    vectors, where that is known. distances: of its indexes."""

    kind: str
    iterative: bool
    size: int | None
    distances: Sequence[str]


class PgVectorIndex:
    """Asks one table. `index.width` is `hnsw.ef_search`, how far an approximate search looks at least.

    Raises UserError where psycopg is not installed. The database need not be there yet.
    """

    def __init__(self, config: IndexConfig) -> None:
        pool, self._sql = load_psycopg()
        self._config, timeout_s, password = config, config.timeout, config.secret.get_secret_value()
        self._id, self._vector = config.id or "id", config.vector or "embedding"
        self.name = f"pgvector {config.collection}"
        self._shape: Shape | None = None
        label = f"index-{uuid4().hex[:8]}"
        self._pool_warnings = _LastWarning(label)
        logging.getLogger("psycopg.pool").addHandler(self._pool_warnings)
        given: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": max(2, round(timeout_s)),  # of libpq, which takes no less
            "tcp_user_timeout": round(timeout_s * 1e3),
            "application_name": "tripletd",
        }
        if password:
            given["password"] = password
        self._pool: ConnectionPool[Connection[Any]] = pool(
            config.address,
            kwargs=given,
            min_size=1,
            max_size=config.connections,
            timeout=timeout_s,
            reconnect_timeout=timeout_s,  # then the next question tries, not a clock of growing rests
            name=label,
            open=False,
        )
        self._open = threading.Lock()

    def close(self) -> None:
        """Let go of the connections."""
        with suppress(Exception):
            self._pool.close(_CLOSE_S)
        logging.getLogger("psycopg.pool").removeHandler(self._pool_warnings)

    def search(
        self,
        vector: AskedVector,
        k: int,
        tags: Sequence[str] = (),
        *,
        exact: bool = False,
        similarity: str = "",
    ) -> list[IndexHit]:
        """As `VectorIndex.search`. A lost connection is opened again, once."""
        import psycopg
        from psycopg_pool import PoolClosed, PoolTimeout

        if tags and not self._config.tags:
            raise StoreRefused(f"{self.name}: no column of tags is named", "name it in index.tags")
        with self._open:
            if self._pool.closed:
                self._pool.open()
        for left in reversed(range(TRIES)):
            try:
                with self._pool.connection() as connection:
                    shape, self._shape = self._shape or self._look(connection), None
                    space = StoreSpace.of(shape.size, shape.distances, similarity)
                    space.require(self.name, vector, similarity)
                    self._shape = shape  # one that does not fit is looked at again: it may be mended
                    bare = "l2" if similarity == "squared_euclidean" else "ip"
                    question = self._question(shape.kind, OPERATORS[space.distance or bare], vector, k, tags)
                    return self._asked(connection, self._settings(shape, k, exact), *question)
            except (PoolTimeout, PoolClosed) as error:
                raise self._away(self._pool_warnings.last or str(error)) from error
            except psycopg.errors.QueryCanceled as error:
                raise self._away(_first_line(error)) from error
            except psycopg.OperationalError as error:
                self._shape = None
                if not left:
                    raise self._away(_first_line(error)) from error
                with suppress(Exception):
                    self._pool.check()
            except psycopg.Error as error:
                self._shape = None  # after the table is mended no restart is needed
                message, remedy = f"{self.name} refuses the question", "compare [index] with the table"
                raise StoreRefused(message, remedy, _first_line(error)) from error
        raise AssertionError("the last try returns or raises")

    def _asked(
        self, connection: Connection[Any], settings: Mapping[str, str], question: sql.Composed, given: Any
    ) -> list[IndexHit]:
        with connection.pipeline(), connection.transaction():
            for name, value in settings.items():
                connection.execute("SELECT set_config(%s, %s, true)", (name, value))
            rows = connection.execute(question, given, prepare=True).fetchall()
        hits = [hit_of(self.name, row[0], -float(row[1])) for row in rows if row[1] == row[1]]
        hits.sort(key=lambda hit: -hit.score)  # continued scans return a few rows out of order
        return hits  # less rows of zeros, whose cosine is not a number

    def _settings(self, shape: Shape, k: int, exact: bool) -> dict[str, str]:
        settings = {
            "statement_timeout": str(max(1, round(self._config.timeout * 1e3))),
            # A plan for any number of rows is one for a tenth of the table: no index.
            "plan_cache_mode": "force_custom_plan",
        }
        if exact:
            return {**settings, "enable_indexscan": "off"}
        settings["hnsw.ef_search"] = str(min(WIDEST, max(k, self._config.width)))
        if shape.iterative:
            settings |= {"hnsw.iterative_scan": "relaxed_order", "ivfflat.iterative_scan": "relaxed_order"}
        return settings

    def _question(
        self, kind: str, operator: str, vector: AskedVector, k: int, tags: Sequence[str]
    ) -> tuple[sql.Composed, dict[str, Any]]:
        sql, config = self._sql, self._config
        column = sql.Identifier(self._vector)
        distance = sql.SQL("{} {} %(vector)s::{}").format(
            column, sql.SQL(operator), sql.SQL(kind.partition("(")[0])
        )
        where = sql.SQL("{} IS NOT NULL").format(column)
        if tags:
            where += sql.SQL(" AND {} @> %(tags)s::text[]").format(sql.Identifier(config.tags))
        question = sql.SQL("SELECT {}::text, {} FROM {} WHERE {} ORDER BY {} LIMIT %(k)s").format(
            sql.Identifier(self._id), distance, sql.Identifier(*config.collection.split(".")), where, distance
        )
        return question, {"vector": text_of(vector, kind), "tags": list(tags), "k": k}

    def _look(self, connection: Connection[Any]) -> Shape:
        version = connection.execute(_VERSION).fetchone()
        if version is None:
            raise StoreRefused(f"{self.name}: the database has no pgvector", "CREATE EXTENSION vector")
        table = self._sql.Identifier(*self._config.collection.split(".")).as_string(connection)
        column = connection.execute(_COLUMN, (table, self._vector)).fetchone()
        if column is None:
            raise StoreRefused(f"{self.name}: there is no column {self._vector}", "name it in index.vector")
        kind, _, size = column[0].partition("(")
        if kind not in ("vector", "halfvec", "sparsevec"):
            message = f"{self.name}: the column {self._vector} is of the type {column[0]}"
            raise StoreRefused(message, "name one of vector, halfvec or sparsevec in index.vector")
        classes = connection.execute(_INDEXES, (table, self._vector))
        known = [one for (name,) in classes if (one := name.split("_")[1]) in OPERATORS]
        installed = tuple(int(part) for part in version[0].split(".")[:2] if part.isdecimal())
        return Shape(column[0], installed >= ITERATIVE, int(size[:-1]) if size else None, known)

    def _away(self, why: str) -> StoreAway:
        remedy = "start the database, or correct index.address"
        return StoreAway(f"{self.name} does not answer", remedy, why)


def text_of(vector: AskedVector, kind: str) -> str:
    """A vector as pgvector reads it. kind: the column's type, such as `sparsevec(1000)`, whose dimension
    stands behind the numbers. Raises StoreRefused for one of the other kind."""
    sparse = kind.startswith("sparsevec")
    if isinstance(vector, Mapping) != sparse:
        found = "sparse" if isinstance(vector, Mapping) else "dense"
        raise StoreRefused(f"vectors of this space are {found}, the column is {kind}", "see index.vector")
    if isinstance(vector, Mapping):
        pairs = zip(vector["indices"], vector["values"], strict=True)
        dim = kind.partition("(")[2].rstrip(")")
        return "{" + ",".join(f"{place + 1}:{value!r}" for place, value in pairs) + "}/" + dim
    return "[" + ",".join(map(repr, vector)) + "]"


def load_psycopg() -> tuple[Any, Any]:
    """The class of connection pools, and the module that composes SQL. Raises UserError where they are not
    installed."""
    try:
        from psycopg import sql
        from psycopg_pool import ConnectionPool
    except ImportError as error:
        message = f"a Postgres table is configured, but psycopg cannot be imported: {error}"
        raise UserError(message, "pip install 'tripletd[pgvector]'", EX_UNAVAILABLE) from error
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # a lost connection is reported in the answer
    return ConnectionPool, sql


class _LastWarning(logging.Handler):
    """Keeps the last thing that a pool said of itself, which is why it has no connection."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self._name, self.last = name, ""
        logger = logging.getLogger("psycopg.pool")
        logger.setLevel(logging.WARNING)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        _, _, message = record.getMessage().partition(f"{self._name!r}: ")
        if message:
            self.last = message.splitlines()[0]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
