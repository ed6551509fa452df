"""Objects from a table, a view or a query of Postgres, their vectors also of pgvector.

Everything is read in one transaction that sees one moment, so that the state that is named is that of the
objects that are read. Rows come through a cursor of the server, a batch at a time, in the order of their ids:
the same objects are the same catalog wherever the database has put them.

The state of a plain table is that of its rows' versions: where each is and which transaction wrote it, which
the database keeps with every row, so that no vector is read. While one server runs, a row that was written
cannot have both as another had before. Views, queries and tables of other servers have no such versions:
there the server computes a checksum of what would be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from streams.event import SpaceSpec
from streams.objects.arrow_vectors import RowError
from streams.objects.columns import ObjectColumns, listed
from streams.objects.from_tables import TableReader
from streams.objects.rows import CatalogAway, CatalogError, ObjectReader, Tell
from streams.tables import BATCH_ROWS, Batch, TableError

if TYPE_CHECKING:
    import pyarrow
    from psycopg import Connection, sql

CONNECT = {"connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10"}
"""Seconds, where the address says nothing of them: a server that is gone is found while it is waited for."""

_VERSIONED = ("r", "m")
"""Kinds of relations whose rows have versions of their own: tables, materialized views."""

_TABLE = """
SELECT c.relkind::text, c.relhassubclass,
  concat_ws('/', extract(epoch FROM pg_postmaster_start_time()), c.oid, c.relfilenode,
  (SELECT string_agg(concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod,
     pg_get_expr(d.adbin, d.adrelid)), ',' ORDER BY a.attnum)
   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE a.attrelid = c.oid AND a.attnum > 0))
FROM pg_class c WHERE c.oid = {}::regclass
"""
_VERSIONS = "SELECT count(*), sum(hashtextextended(concat(ctid, ' ', xmin), 0))::text FROM {}"
_CHECKSUM = """
SELECT count(*),
  concat(sum(('x' || left(h, 16))::bit(64)::bigint), ' ', sum(('x' || right(h, 16))::bit(64)::bigint))
FROM (SELECT encode(sha256(record_send(ROW({}))), 'hex') AS h FROM {} AS o) AS hashed
"""


@dataclass(frozen=True, slots=True, repr=False)
class PostgresPlace:
    """A table, also as `schema.table`, or a query that begins with SELECT or WITH, at an address of libpq."""

    address: str
    table: str
    password: str = ""

    def __str__(self) -> str:
        table = " ".join(self.table.split())
        return f"{self.address}#{table if len(table) <= 60 else table[:59] + '…'}"

    def __repr__(self) -> str:
        return f"{urlsplit(self.address).path}#{self.table}"

    @contextmanager
    def opened(
        self, columns: ObjectColumns, space: SpaceSpec | None, folder: Path | None, tell: Tell
    ) -> Iterator[tuple[str, ObjectReader]]:
        """As `LivePlace.opened`."""
        with self._connected() as connection:
            rows = PostgresRows(self, connection)
            reader = TableReader(str(self), columns, space, rows)
            yield rows.state(reader.needed()), reader

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """A connection in a transaction that writes nothing and sees one moment."""
        try:
            import psycopg
        except ImportError as error:
            raise CatalogAway(
                f"{self}: psycopg cannot be imported: {error}; pip install 'tripletd[pgvector]'"
            ) from None
        from psycopg.conninfo import conninfo_to_dict

        try:
            given: dict[str, Any] = CONNECT | conninfo_to_dict(self.address)
            given |= {"password": self.password} if self.password else {}
            connection = psycopg.connect(**given | {"application_name": "tripletd"})
        except psycopg.Error as error:
            raise _not_connected(self, error) from None
        try:
            with connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise CatalogError(f"{self}: {_told(error)}; GRANT SELECT on it to the user") from None
        except psycopg.OperationalError as error:
            raise CatalogAway(
                f"{self}: {_told(error)}; nothing of it was kept: check the database, and start again"
            ) from None
        except psycopg.Error as error:
            raise CatalogError(f"{self}: {_told(error)}; correct the address, or what it names") from None


_ANSWERED = ("authentication failed", "no password supplied", "does not exist", "pg_hba.conf", "invalid")
"""What a server says that will say the same the next time."""


def _not_connected(place: PostgresPlace, error: Exception) -> CatalogError:
    message = _told(error)
    if "password" in message:
        remedy = "give it in TRIPLETD_CATALOG__SECRET, or in the file that PGPASSFILE names"
        return CatalogError(f"{place}: {message}; {remedy}")
    if any(one in message for one in _ANSWERED):
        return CatalogError(f"{place}: {message}; correct the address")
    return CatalogAway(f"{place} does not answer: {message}; start the database, or correct the address")


def _told(error: Exception) -> str:
    lines = [one.strip() for one in str(error).splitlines() if one.strip() and "^" not in one]
    message = next((one for one in lines if "FATAL:" in one), lines[0] if lines else type(error).__name__)
    return message.rpartition("FATAL:")[2].strip().rstrip(".")


class PostgresRows:
    """What a place names, as a `ReadableTable`, within the transaction of its connection."""

    def __init__(self, place: PostgresPlace, connection: Connection[Any]) -> None:
        from psycopg import sql

        self._place, self._connection, self._sql = place, connection, sql
        table = place.table.strip().rstrip(";")
        self._is_query = table.split(None, 1)[0].lower() in ("select", "with", "(select", "(with")
        self._from: sql.Composable
        if self._is_query:
            self._from = sql.SQL("({})").format(sql.SQL(table))
        else:
            self._from = sql.Identifier(*table.split("."))
        described = connection.execute(
            sql.SQL("SELECT * FROM {} AS o LIMIT 0").format(self._from)
        ).description
        found = described or []
        names = "SELECT oid, typname FROM pg_type WHERE oid = ANY(%s)"
        types = dict(connection.execute(names, ([one.type_code for one in found],)).fetchall())
        self._types = {one.name: str(types[one.type_code]) for one in found}
        self.columns = tuple(self._types)
        self._count: int | None = None

    def rows(self) -> int | None:
        """How many there are, once `state` has counted them."""
        return self._count

    def kind(self, column: str) -> pyarrow.DataType:
        """What a column's values become; raises TableError where there is none of this name."""
        if column not in self._types:
            raise TableError(f"{self._place} has no column {column!r}", f"it has {listed(self.columns)}")
        return _form(self._types[column])[1]

    def state(self, columns: Sequence[str]) -> str:
        """The same text for the same rows of these columns."""
        sql, ask = self._sql, self._connection.execute
        what = ""
        if not self._is_query:
            table = sql.Literal(self._from.as_string(self._connection))
            found = ask(sql.SQL(_TABLE).format(table)).fetchone()
            if found is not None and found[0] in _VERSIONED and not found[1]:
                what = str(found[2])
        if what:
            question = sql.SQL(_VERSIONS).format(self._from)
        else:
            names = sql.SQL(", ").join(sql.Identifier("o", one) for one in columns)
            question = sql.SQL(_CHECKSUM).format(names, self._from)
        counted = ask(question).fetchone()
        assert counted is not None
        self._count = int(counted[0])
        return f"{what} {counted[0]} {counted[1]}"

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """The rows in the order of the first of the columns, which also says where one is."""
        sql = self._sql
        forms = [_form(self._types[one]) for one in columns]
        values = sql.SQL(", ").join(
            sql.SQL("{}{}").format(sql.Identifier(name), sql.SQL(cast))
            for name, (cast, _) in zip(columns, forms, strict=True)
        )
        question = sql.SQL("SELECT {} FROM {} AS o ORDER BY {}").format(
            values, self._from, sql.Identifier("o", columns[0])
        )
        before = 0
        with self._connection.cursor("objects", binary=True) as cursor:
            cursor.execute(question)
            while found := cursor.fetchmany(rows):
                by_column = list(zip(*found, strict=True))
                batch = _IdBatch(before + 1, {}, str(self._place), before, columns[0], by_column[0])
                for name, cells, (_, kind) in zip(columns, by_column, forms, strict=True):
                    try:
                        batch.columns[name] = _array(cells, self._types[name], kind)
                    except RowError as error:
                        raise CatalogError(f"{batch.place(error.row)}, column {name!r}: {error}") from None
                    except ValueError as error:
                        raise CatalogError(f"{batch.place(0)} or below, column {name!r}: {error}") from None
                yield batch
                before += len(found)


@dataclass(frozen=True, slots=True)
class _IdBatch(Batch):
    """Rows that are known by their ids, as a table of a database has no order."""

    column: str
    ids: Sequence[Any]

    def place(self, row: int) -> str:
        """See `Batch`."""
        return f"{self.file}, {self.column} {self.ids[row]!r}"


_BINARY = ("vector", "halfvec", "bit", "varbit", "sparsevec")
"""Types that come as the server sends them, in bytes of their own."""
_REALS = ("_float4", "_float8", "_numeric")
_WHOLES = ("_int2", "_int4", "_int8")


def _form(type_name: str) -> tuple[str, pyarrow.DataType]:
    import pyarrow as pa

    if type_name in _BINARY:
        numbers = pa.list_(pa.float32())
        sparse = pa.struct({"indices": pa.list_(pa.int32()), "values": numbers})
        return "", sparse if type_name == "sparsevec" else numbers
    if type_name in _REALS:
        return "::double precision[]", pa.list_(pa.float64())
    if type_name in _WHOLES:
        return "::bigint[]", pa.list_(pa.int64())
    if type_name in ("int2", "int4", "int8"):
        return "", pa.int64()
    if type_name in ("float4", "float8", "numeric"):
        return "::double precision", pa.float64()
    return ("::text[]", pa.list_(pa.string())) if type_name.startswith("_") else ("::text", pa.string())


def _array(cells: Sequence[Any], type_name: str, kind: pyarrow.DataType) -> pyarrow.Array[Any]:
    """The values of one column. Raises RowError for a vector that is missing, ValueError."""
    import pyarrow as pa

    if type_name not in _BINARY:
        return pa.array(cells, kind)
    if None in cells:
        raise RowError(
            cells.index(None), "has no vector (NULL); fill it in, or name a query without such rows"
        )
    if type_name == "sparsevec":  # its size, how many entries, nothing, places from 0, values
        counts = [int.from_bytes(one[4:8], "big") for one in cells]
        places = [np.frombuffer(one, ">i4", n, 12) for one, n in zip(cells, counts, strict=True)]
        values = [np.frombuffer(one, ">f4", n, 12 + 4 * n) for one, n in zip(cells, counts, strict=True)]
        return pa.StructArray.from_arrays(
            [_lists(places, "<i4"), _lists(values, "<f4")], ["indices", "values"]
        )
    if type_name in ("bit", "varbit"):  # how many, and the bits
        return _lists(
            [
                np.unpackbits(np.frombuffer(one, "u1", -1, 4))[: int.from_bytes(one[:4], "big")]
                for one in cells
            ],
            "<f4",
        )
    number = ">f4" if type_name == "vector" else ">f2"  # behind its size, and nothing
    return _lists([np.frombuffer(one, number, -1, 4) for one in cells], "<f4")


def _lists(rows: Sequence[np.ndarray[Any, Any]], number: str) -> pyarrow.Array[Any]:
    import pyarrow as pa

    bounds = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(one) for one in rows], out=bounds[1:])
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array(np.concatenate(rows).astype(number)))
