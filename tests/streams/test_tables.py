"""Tables: every kind of file gives the same rows in order; what cannot be read is said with its place."""

import gzip
import random
from pathlib import Path

import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from streams.tables import Table, TableError, is_table, text_values

ROWS = 1_000
TABLE = pyarrow.table(
    {
        "sku": [f"{row:04}" for row in range(ROWS)],
        "price": [row / 4 for row in range(ROWS)],
    }
)


def write(path: Path) -> Path:
    if path.name.endswith(".parquet"):
        pyarrow.parquet.write_table(TABLE, path, row_group_size=300)
    elif path.name.endswith((".arrow", ".feather")):
        pyarrow.feather.write_feather(TABLE, path, compression="uncompressed")
    else:
        separator = "\t" if ".tsv" in path.name else ","
        text = "".join(
            separator.join(map(str, row)) + "\n"
            for row in [TABLE.column_names, *zip(*TABLE.to_pydict().values(), strict=True)]
        )
        path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(
    "name", ["t.parquet", "t.arrow", "t.feather", "t.csv", "t.tsv", "T.CSV.gz", "t.tsv.gz"]
)
def test_every_kind_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    table = Table(write(tmp_path / name), text=["sku"])
    assert table.columns == ("sku", "price")
    assert table.rows() in (ROWS, None)
    expected = 1
    skus, prices = [], []
    for batch in table.batches(["price", "sku"], rows=128):
        assert batch.first == expected
        assert list(batch.columns) == ["price", "sku"]
        assert len(batch.columns["sku"]) <= 128 or "sv" in name.lower()
        expected += len(batch.columns["sku"])
        skus += text_values(batch.columns["sku"])
        prices += batch.columns["price"].to_pylist()
    assert skus == TABLE["sku"].to_pylist()
    assert prices == TABLE["price"].to_pylist()


def test_of_a_folder_the_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    parts = list(range(12))
    random.Random(0).shuffle(parts)
    for part in parts:
        folder = tmp_path / f"day={part // 4}"
        folder.mkdir(exist_ok=True)
        pyarrow.parquet.write_table(TABLE.slice(part * 50, 50), folder / f"part-{part:03}.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert is_table(tmp_path)
    table = Table(tmp_path)
    assert table.rows() == 600
    found = [one for batch in table.batches(["sku"]) for one in batch.columns["sku"].to_pylist()]
    assert found == TABLE["sku"].to_pylist()[:600]


def test_a_dotted_name_is_a_field_unless_a_column_is_called_so(tmp_path: Path) -> None:
    rows = {"a": [{"b": {"c": 1}}, None], "a.b": ["first", "second"], "a.b.d": [3, 4]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    table = Table(tmp_path / "t.parquet")
    (batch,) = table.batches(["a.b", "a.b.c", "a.b.d"])
    assert {name: column.to_pylist() for name, column in batch.columns.items()} == {
        "a.b": ["first", "second"],
        "a.b.c": [1, None],
        "a.b.d": [3, 4],
    }
    assert table.kind("a.b.c") == pyarrow.int64()


def test_ids_are_texts(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,title\n007,"two\nlines"\n,x\n')
    (batch,) = Table(tmp_path / "t.csv", text=["id"]).batches(["id", "title"])
    assert text_values(batch.columns["id"]) == ["007", None]
    assert text_values(batch.columns["title"]) == ["two\nlines", "x"]
    assert text_values(pyarrow.array([7, None])) == ["7", None]
    assert text_values(pyarrow.array([7, None], pyarrow.decimal128(38, 0))) == ["7", None]
    assert text_values(pyarrow.array(["a", "b", "a"]).dictionary_encode()) == ["a", "b", "a"]
    with pytest.raises(ValueError, match="double"):
        text_values(pyarrow.array([7.0]))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.parquet", b"hello" * 10, "not a parquet file"),
        ("t.arrow", b"hello" * 10, "cannot be read"),
        ("t.csv", b"", "Empty CSV"),
        ("t.csv", b"a,b\n1,2\n3\n", "Row #3"),
        ("t.csv", b"a,b\n1,2\n\xff\xfe,3\n", "UTF8"),
        ("t.csv.gz", b"no gzip at all", "cannot be read"),
        ("t.txt", b"a,b\n", "is no table"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_file(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError) as raised:
        list(Table(path, text=["a"]).batches(["a", "b"]))
    assert name in raised.value.message
    assert raised.value.remedy
    assert said in raised.value.message


def test_a_file_cut_short_or_missing_is_an_error_and_not_fewer_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet")
    whole = path.read_bytes()
    for keep in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        with pytest.raises(TableError, match=r"t\.parquet"):
            list(Table(path).batches(["sku"]))
    with pytest.raises(TableError, match="does not exist"):
        Table(tmp_path / "none.parquet")
    with pytest.raises(TableError, match=r"no column 'id'.*it has sku, price"):
        Table(write(tmp_path / "t.csv")).batches(["id"])
