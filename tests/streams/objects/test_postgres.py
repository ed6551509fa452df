"""Objects of a Postgres table: those of any other kind, asked of the database only where they changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg
import pytest

from streams.catalog import Catalog, CatalogError
from streams.catalog_cache import KEPT, CatalogSource, open_catalog
from streams.event import DenseColumn, SpaceSpec, SparseColumn, ViewSpec
from streams.items import unpack_display
from streams.objects.columns import ObjectColumns, SparsePair
from streams.objects.from_postgres import PostgresPlace, PostgresRows
from streams.objects.from_tables import TableReader
from streams.objects.rows import BATCH_ROWS, CatalogAway
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.xdist_group("postgres")
ROWS, DIM = 2500, 3  # more rows than a batch has
VALUES = np.random.default_rng(5).normal(size=(ROWS, DIM)).astype(np.float32)
IDS = [f"o{row:04}" for row in range(ROWS)]
MAPPED = ObjectColumns(id="sku", views={"look": "embedding"}, title="name", tags=("tags", "colour"))
SHOP = SpaceSpec("shop", (ViewSpec("look", "dense", DIM),))


@pytest.fixture(scope="module")
def shop(postgres: Postgres) -> Postgres:
    """A table `shop.items` of the objects, in an order of its own."""
    postgres.execute(
        "CREATE EXTENSION IF NOT EXISTS vector",
        "CREATE SCHEMA IF NOT EXISTS shop",
        "DROP TABLE IF EXISTS shop.items",
        f"CREATE TABLE shop.items (sku text PRIMARY KEY, name varchar, tags text[], colour text, stock int, "
        f"embedding vector({DIM}))",
    )
    with (
        psycopg.connect(postgres.uri) as connection,
        connection.cursor().copy("COPY shop.items FROM STDIN") as copy,
    ):
        for row in np.random.default_rng(0).permutation(ROWS).tolist():
            tags = ["round"] if row % 2 else []
            copy.write_row((IDS[row], f"Thing {row}", tags, "red", row, str(VALUES[row].tolist())))
    return postgres


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read, row by row, in order."""
    read: list[str] = []
    batches = PostgresRows.batches

    def noted(self: PostgresRows, columns: list[str], rows: int = 1024) -> Iterator:
        read.append(str(self._place))
        return batches(self, columns, rows)

    monkeypatch.setattr(PostgresRows, "batches", noted)
    return read


def opened(
    shop: Postgres,
    folder: Path,
    table: str = "shop.items",
    columns: ObjectColumns = MAPPED,
    space: SpaceSpec | None = SHOP,
    pinned: str = "",
) -> Catalog:
    place = PostgresPlace(shop.uri, table)
    return open_catalog(CatalogSource(place, None, columns, space, pinned), [folder], lambda told: None)


def test_the_objects_of_a_table_in_the_order_of_their_ids(shop: Postgres, tmp_path: Path) -> None:
    found = opened(shop, tmp_path)
    assert found.ids == IDS
    assert np.array_equal(found.views["look"].values, VALUES)
    assert found.digest == Catalog(IDS, {"look": DenseColumn(VALUES)}, SHOP).digest
    assert found.shown is not None
    seen = unpack_display(found.shown[2049])
    assert (seen.title, seen.tags) == ("Thing 2049", ("round", "red"))


def test_a_batch_of_rows_is_in_memory_and_the_others_wait_in_the_server(shop: Postgres) -> None:
    place = PostgresPlace(shop.uri, "shop.items")
    with place.opened(MAPPED, SHOP, None, lambda told: None) as (_, reader):
        assert isinstance(reader, TableReader)
        assert reader.rows() == ROWS
        assert isinstance(reader._table, PostgresRows)
        batches = reader.batches()
        assert len(next(batches)) == BATCH_ROWS
        cursors = reader._table._connection.execute("SELECT name FROM pg_cursors").fetchall()
        assert cursors == [("objects",)]
        assert [len(one) for one in batches] == [BATCH_ROWS, ROWS - 2 * BATCH_ROWS]


@pytest.mark.parametrize("table", ["shop.items", "SELECT * FROM shop.items WHERE stock >= 0;"])
def test_it_is_read_again_where_it_changed_and_only_there(
    shop: Postgres, tmp_path: Path, readings: list[str], table: str
) -> None:
    first = opened(shop, tmp_path, table)
    assert opened(shop, tmp_path, table).digest == first.digest
    assert len(readings) == 1
    shop.execute("UPDATE shop.items SET embedding = '[9,9,9]' WHERE sku = 'o0007'")
    try:
        changed = opened(shop, tmp_path, table)
        assert changed.views["look"].values[7].tolist() == [9, 9, 9]
        assert len(readings) == 2
        # As many rows as before, and the newest transaction is one that deletes.
        shop.execute(
            "INSERT INTO shop.items VALUES ('new', 'New', '{}', 'red', 1, '[1,2,3]')",
            "DELETE FROM shop.items WHERE sku = 'o0008'",
        )
        assert opened(shop, tmp_path, table).ids == ["new", *IDS[:8], *IDS[9:]]
    finally:
        shop.execute("DELETE FROM shop.items WHERE sku IN ('new', 'o0007', 'o0008')")
        for row in (7, 8):
            values = f"('{IDS[row]}', 'Thing {row}', '{{}}', 'red', {row}, '{VALUES[row].tolist()}')"
            shop.execute(f"INSERT INTO shop.items VALUES {values}")
    assert opened(shop, tmp_path, table).digest == first.digest


def test_columns_that_change_their_names_are_read_again(shop: Postgres, tmp_path: Path) -> None:
    shop.execute(
        "CREATE TABLE two (id int PRIMARY KEY, a vector(1), b vector(1))",
        "INSERT INTO two VALUES (1, '[1]', '[2]')",
    )
    columns = ObjectColumns(x="a")
    assert opened(shop, tmp_path, "two", columns, None).views["x"].values.tolist() == [[1]]
    shop.execute(
        "ALTER TABLE two RENAME a TO c", "ALTER TABLE two RENAME b TO a", "ALTER TABLE two RENAME c TO b"
    )
    assert opened(shop, tmp_path, "two", columns, None).views["x"].values.tolist() == [[2]]


def test_a_change_of_what_is_not_read_costs_a_query_nothing(
    shop: Postgres, tmp_path: Path, readings: list[str]
) -> None:
    query = "SELECT sku AS id, embedding FROM shop.items"
    opened(shop, tmp_path, query, ObjectColumns(x="embedding"))
    shop.execute("UPDATE shop.items SET stock = stock + 1 WHERE sku < 'o0100'")
    opened(shop, tmp_path, query, ObjectColumns(x="embedding"))
    assert len(readings) == 1


def test_what_is_pinned_is_not_asked_for_again(shop: Postgres, tmp_path: Path, readings: list[str]) -> None:
    first = opened(shop, tmp_path, pinned="checkpoints")
    shop.execute("UPDATE shop.items SET stock = 0 WHERE sku = 'o0001'")
    place = PostgresPlace("postgresql://nobody@127.0.0.1:1/gone", "shop.items")
    assert opened(shop, tmp_path, pinned="checkpoints").digest == first.digest
    assert len(readings) == 1
    with pytest.raises(CatalogAway, match=r"127\.0\.0\.1:1/gone#shop\.items does not"):
        open_catalog(CatalogSource(place, space=SHOP), [tmp_path], lambda told: None)


def test_what_is_pinned_outlives_others_and_a_copy_without_its_times(
    shop: Postgres, tmp_path: Path, readings: list[str]
) -> None:
    first = opened(shop, tmp_path / "kept", pinned="checkpoints")
    for row in range(KEPT + 1):
        opened(shop, tmp_path / "kept", columns=replace(MAPPED, tags=(), text=("sku", "colour")[row % 2]))
        opened(shop, tmp_path / "kept", f"SELECT * FROM shop.items WHERE sku > 'o000{row}'")
    shutil.copytree(tmp_path / "kept", tmp_path / "copy", copy_function=shutil.copyfile)
    del readings[:]
    shop.execute("UPDATE shop.items SET stock = stock + 1 WHERE sku = 'o0005'")
    for folder in ("kept", "copy", "copy"):
        again = opened(shop, tmp_path / folder, pinned="checkpoints")
        assert again.digest == first.digest
    assert readings == []


def test_every_type_of_vectors(shop: Postgres, tmp_path: Path) -> None:
    shop.execute(
        "CREATE TABLE kinds (id uuid, half halfvec(2), real real[], double double precision[], whole int[], "
        "bits bit(3), sparse sparsevec(9), x_0 float8, x_1 int, at int[], of real[], written text)",
        "INSERT INTO kinds VALUES ('11111111-1111-1111-1111-111111111111', '[1,2]', '{1,2}', '{1,2}', "
        "'{1,2}', '101', '{2:5,9:7}/9', 1, 2, '{1,8}', '{5,7}', '[1, 2]')",
    )
    for column in ("half", "real", "double", "whole", "x_*", "written"):
        found = opened(shop, tmp_path, "kinds", ObjectColumns(x=column), None)
        assert found.views["x"].values.tolist() == [[1, 2]], column
        assert found.ids == ["11111111-1111-1111-1111-111111111111"]
    bits = opened(shop, tmp_path, "kinds", ObjectColumns(x="bits"), None)
    assert bits.views["x"].values.tolist() == [[1, 0, 1]]
    for where in ("sparse", SparsePair("at", "of")):
        sparse = opened(shop, tmp_path, "kinds", ObjectColumns(x=where), None).views["x"]
        assert isinstance(sparse, SparseColumn)
        assert (sparse.indices.tolist(), sparse.values.tolist()) == ([1, 8], [5, 7])


BAD = [
    (
        "SELECT sku, NULL::vector AS embedding, name, tags, colour FROM shop.items",
        r"sku 'o0000', column 'embedding': has no vector \(NULL\)",
    ),
    (
        "SELECT sku, '{1,NULL}'::real[] AS embedding, name, tags, colour FROM shop.items",
        "a number is missing",
    ),
    ("SELECT sku, '[1,2]'::vector AS embedding, name, tags, colour FROM shop.items", "dense with 2 coord"),
    (
        "SELECT sku, CASE WHEN sku < 'o2000' THEN embedding ELSE '[1]' END AS embedding, name, tags, colour "
        "FROM shop.items",
        "sku 'o2000', column 'embedding': has 1 coordinates, others 3",
    ),
    ("SELECT 'same' AS sku, embedding, name, tags, colour FROM shop.items", "holds id 'same' twice"),
    ("SELECT NULL AS sku, embedding, name, tags, colour FROM shop.items", "no id; give every object one"),
    ("SELECT * FROM shop.items WHERE false", "no objects; there must be one at least"),
    ("SELECT sku, name, tags, colour FROM shop.items", "has no column 'embedding'; it has sku, name"),
    ("SELECT 1 +", "syntax error"),
    ("nowhere", 'relation "nowhere" does not exist'),
]


@pytest.mark.parametrize(("table", "told"), BAD)
def test_what_cannot_be_used_is_named_with_its_place(
    shop: Postgres, tmp_path: Path, table: str, told: str
) -> None:
    with pytest.raises(CatalogError, match=told) as found:
        opened(shop, tmp_path, table)
    assert str(found.value).startswith("postgresql://")
    assert not list(tmp_path.glob("*.safetensors"))


def test_who_may_not_read_is_told_what_to_grant(shop: Postgres, tmp_path: Path) -> None:
    shop.execute("CREATE ROLE visitor LOGIN PASSWORD 'secret'")
    uri = shop.uri.replace("postgres:", "visitor:", 1).replace("postgres@", "visitor@")
    with pytest.raises(CatalogError, match=r"permission denied.*GRANT") as found:
        open_catalog(
            CatalogSource(PostgresPlace(uri, "shop.items", "secret"), None, MAPPED, SHOP), [tmp_path], print
        )
    assert "secret" not in str(found.value)


def test_what_is_written_meanwhile_is_not_of_what_is_read(
    shop: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that is named, and every batch, are of one moment."""
    batches = PostgresRows.batches

    def raced(self: PostgresRows, columns: list[str], rows: int = 1024) -> Iterator:
        shop.execute("UPDATE shop.items SET name = 'Meanwhile' WHERE sku = 'o0003'")
        return batches(self, columns, rows)

    before = opened(shop, tmp_path / "before")
    shop.execute("UPDATE shop.items SET name = 'Before' WHERE sku = 'o0003'")
    with monkeypatch.context() as patched:
        patched.setattr(PostgresRows, "batches", raced)
        during = opened(shop, tmp_path / "during")
    after = opened(shop, tmp_path / "during")
    titles = [unpack_display(one.shown[3]).title for one in (before, during, after) if one.shown]
    assert titles == ["Thing 3", "Before", "Meanwhile"]
