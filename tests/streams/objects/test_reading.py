"""Objects come from the files that people have: the same objects are the same catalog, whatever the file."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from streams.catalog import Catalog, CatalogError, load_catalog
from streams.event import SpaceSpec, ViewSpec
from streams.items import unpack_display
from streams.objects.columns import ObjectColumns, SparsePair
from tests.harness.catalog_files import save_catalog

ROWS, DIM = 2500, 3  # more rows than a batch has
IDS = [f"{row:04}" for row in range(ROWS)]  # texts, though they look like numbers
VALUES = np.random.default_rng(5).normal(size=(ROWS, DIM)).astype(np.float32)
SHOP = SpaceSpec("shop", (ViewSpec("look", "dense", DIM),))
MAPPED = ObjectColumns(id="sku", views={"look": "embedding"}, title="name", tags=("brand", "colours"))


def table(values: pa.Array, **more: list) -> pa.Table:
    names = [f"Thing {row}" for row in range(ROWS)]
    colours = [["red", "round"] if row % 2 else [] for row in range(ROWS)]
    columns = {"sku": IDS, "name": names, "brand": ["b1"] * ROWS, "colours": colours, "embedding": values}
    return pa.table({**columns, **more})


def listed(kind: pa.DataType) -> pa.Array:
    return pa.array(VALUES.astype(np.float64).tolist(), kind)


FIXED = pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), DIM)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The same objects of JSON lines."""
    path = tmp_path_factory.mktemp("lines") / "objects.jsonl"
    with path.open("w") as file:
        for object_id, vector in zip(IDS, VALUES.astype(np.float64).tolist(), strict=True):
            file.write(json.dumps({"id": object_id, "views": {"look": vector}}) + "\n")
    return load_catalog(path, SHOP)


def as_parquet(folder: Path) -> Path:
    pyarrow.parquet.write_table(table(FIXED), folder / "o.parquet", row_group_size=700)
    return folder / "o.parquet"


def as_parquet_of_doubles(folder: Path) -> Path:
    pyarrow.parquet.write_table(table(listed(pa.list_(pa.float64()))), folder / "o.parquet")
    return folder / "o.parquet"


def as_feather(folder: Path) -> Path:
    pyarrow.feather.write_feather(table(listed(pa.large_list(pa.float32()))), folder / "o.feather")
    return folder / "o.feather"


def as_folder(folder: Path) -> Path:
    (folder / "parts").mkdir()
    whole = table(FIXED)
    for part in range(3):
        piece = whole.slice(part * 900, 900)
        pyarrow.parquet.write_table(piece, folder / "parts" / f"part-{part}.parquet")
    return folder / "parts"


def as_csv(folder: Path) -> Path:
    texts = [json.dumps(row) for row in VALUES.astype(np.float64).tolist()]
    plain = table(pa.array(texts)).set_column(
        3, "colours", [[json.dumps(["red", "round"][: 2 * (row % 2)]) for row in range(ROWS)]]
    )
    pyarrow.csv.write_csv(plain, folder / "o.csv")
    return folder / "o.csv"


def as_zipped_tsv(folder: Path) -> Path:
    rows = ["sku\tname\tbrand\tcolours\tembedding"]
    for row, vector in enumerate(VALUES.astype(np.float64).tolist()):
        tags = '"[""red"", ""round""]"' if row % 2 else ""
        rows.append(f"{IDS[row]}\tThing {row}\tb1\t{tags}\t{' '.join(map(repr, vector))}")
    (folder / "o.tsv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    return folder / "o.tsv.gz"


def as_lines(folder: Path) -> Path:
    with (folder / "o.jsonl").open("w") as file:
        for row in table(FIXED).to_pylist():
            file.write(json.dumps(row) + "\n")
    return folder / "o.jsonl"


@pytest.mark.parametrize(
    "write",
    [as_parquet, as_parquet_of_doubles, as_feather, as_folder, as_csv, as_zipped_tsv, as_lines],
)
def test_every_kind_gives_the_catalog_of_json_lines(tmp_path: Path, lines: Catalog, write) -> None:
    found = load_catalog(write(tmp_path), SHOP, columns=MAPPED)
    assert found.digest == lines.digest
    assert found.ids == IDS
    seen = unpack_display(found.shown[2049])
    assert (seen.title, seen.tags) == ("Thing 2049", ("b1", "red", "round"))
    assert unpack_display(found.shown[2]).tags == ("b1",)


def test_arrays_with_ids_beside_them(tmp_path: Path, lines: Catalog) -> None:
    np.save(tmp_path / "v.npy", VALUES)
    with pytest.raises(CatalogError, match=r"catalog\.ids"):
        load_catalog(tmp_path / "v.npy", SHOP)
    (tmp_path / "names").write_text("\n".join(IDS) + "\n")
    assert load_catalog(tmp_path / "v.npy", SHOP, ids=tmp_path / "names").digest == lines.digest
    np.save(tmp_path / "v.ids.npy", np.array(IDS))
    assert load_catalog(tmp_path / "v.npy", SHOP).digest == lines.digest
    np.save(tmp_path / "v.ids.npy", np.array(IDS[:-1]))
    with pytest.raises(CatalogError, match="2,499 ids for 2,500 rows"):
        load_catalog(tmp_path / "v.npy", SHOP)


def test_several_arrays_in_one_file(tmp_path: Path, lines: Catalog) -> None:
    np.savez(tmp_path / "v.npz", ids=np.array(IDS), look=VALUES.astype(np.float64), other=VALUES)
    assert load_catalog(tmp_path / "v.npz", SHOP).digest == lines.digest
    columns = ObjectColumns(x="other")
    assert load_catalog(tmp_path / "v.npz", SHOP, columns=columns).digest == lines.digest
    with pytest.raises(CatalogError, match="2 arrays of vectors among ids, look, other"):
        load_catalog(tmp_path / "v.npz")


def test_what_is_saved_and_read_again_is_the_same(tmp_path: Path, lines: Catalog) -> None:
    shown = load_catalog(as_parquet(tmp_path), SHOP, columns=MAPPED)
    save_catalog(shown, tmp_path / "own.safetensors")
    again = load_catalog(tmp_path / "own.safetensors", SHOP)
    assert again.digest == lines.digest
    assert again.shown[7] == shown.shown[7]


def test_without_names_the_usual_ones_and_the_only_vectors_are_taken(tmp_path: Path, lines: Catalog) -> None:
    plain = pa.table({"id": IDS, "title": ["t"] * ROWS, "price": [1.5] * ROWS, "vector": FIXED})
    pyarrow.parquet.write_table(plain, tmp_path / "o.parquet")
    found = load_catalog(tmp_path / "o.parquet", SHOP)
    assert found.digest == lines.digest
    assert unpack_display(found.shown[0]).title == "t"
    assert [view.name for view in load_catalog(tmp_path / "o.parquet").space.views] == ["x"]


def test_a_column_for_each_coordinate(tmp_path: Path, lines: Catalog) -> None:
    numbered = {f"dim_{place}": VALUES[:, place] for place in range(DIM)}
    pyarrow.csv.write_csv(pa.table({"id": IDS, "price": [2] * ROWS, **numbered}), tmp_path / "o.csv")
    for where in ("dim_*", ("dim_0", "dim_1", "dim_2")):
        found = load_catalog(tmp_path / "o.csv", SHOP, columns=ObjectColumns(x=where))
        assert found.digest == lines.digest


WORDS = SpaceSpec("words", (ViewSpec("text", "sparse", 50),))
INDICES = [[1, 7], [], [49], [0, 2, 3]]
WEIGHTS = [[0.5, 1.0], [], [2.0], [1.0, 1.0, 4.0]]


@pytest.mark.parametrize("form", ["pair", "struct", "text"])
def test_sparse_vectors(tmp_path: Path, form: str) -> None:
    names = ["a", "b", "c", "d"]
    pairs = [{"indices": i, "values": v} for i, v in zip(INDICES, WEIGHTS, strict=True)]
    with (tmp_path / "o.jsonl").open("w") as file:
        for name, one in zip(names, pairs, strict=True):
            file.write(json.dumps({"id": name, "views": {"text": one}}) + "\n")
    expected = load_catalog(tmp_path / "o.jsonl", WORDS).digest
    columns, path = ObjectColumns(x="v"), tmp_path / "o.parquet"
    if form == "pair":
        pyarrow.parquet.write_table(pa.table({"id": names, "i": INDICES, "w": WEIGHTS}), path)
        columns = ObjectColumns(x=SparsePair("i", "w"))
    elif form == "struct":
        pyarrow.parquet.write_table(pa.table({"id": names, "v": pairs}), path)
    else:
        path = tmp_path / "o.csv"
        pyarrow.csv.write_csv(pa.table({"id": names, "v": [json.dumps(one) for one in pairs]}), path)
    assert load_catalog(path, WORDS, columns=columns).digest == expected


def test_keys_of_lines_may_lie_deeper(tmp_path: Path, lines: Catalog) -> None:
    with (tmp_path / "o.jsonl").open("w") as file:
        for row, vector in enumerate(VALUES.astype(np.float64).tolist()):
            product = {"sku": IDS[row], "ml": {"embedding": vector}, "unknown": None}
            file.write(json.dumps({"product": product}) + "\n")
    columns = ObjectColumns(id="product.sku", x="product.ml.embedding")
    assert load_catalog(tmp_path / "o.jsonl", SHOP, columns=columns).digest == lines.digest
    with pytest.raises(CatalogError, match=r"o\.jsonl, line 1: there is no 'sku'; the line has product"):
        load_catalog(tmp_path / "o.jsonl", SHOP, columns=ObjectColumns(id="sku", x="e"))


def broken(**columns: list) -> pa.Table:
    rows = {"id": ["a", "b", "c"], "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]} | columns
    return pa.table(rows)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": [[1.0, 2.0], [3.0], [5.0, 6.0]]}, "row 2, column 'v': has 1 coordinates, others 2"),
        ({"v": [[1.0, 2.0], [3.0, None], [5.0, 6.0]]}, "row 2, column 'v': a number is missing"),
        ({"v": [[1.0, 2.0], [3.0, 4.0], None]}, "row 3, column 'v': has no vector"),
        ({"v": [[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]]}, "row 2, view 'x': a number is not finite"),
        ({"v": [[1.0, 2.0], [3.0, 1e300], [5.0, 6.0]]}, "row 2, view 'x': a number is not finite"),
        ({"v": ["[1, 2]", "[3, 4", "[5, 6]"]}, "no column of lists of numbers among id, v; name"),
        ({"id": ["a", None, "c"]}, "row 2, column 'id': no id"),
        ({"id": ["a", "", "c"]}, "row 2, column 'id': no id"),
        ({"id": [0.5, 1.5, 2.5]}, "column 'id': is of type double"),
        ({"id": ["a", "b", "a"]}, "'a' twice"),
        ({"image": ["x", "y" * 5000, "z"]}, "row 2: image: .*; shorten it, or leave it out"),
        ({"w": [[1.0], [1.0], [1.0]]}, r"2 columns of vectors \(v, w\) among id, v, w; name"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_place(tmp_path: Path, columns, message: str) -> None:
    pyarrow.parquet.write_table(broken(**columns), tmp_path / "o.parquet")
    with pytest.raises(CatalogError, match=message) as caught:
        load_catalog(tmp_path / "o.parquet")
    assert str(caught.value).startswith(f"{tmp_path / 'o.parquet'}")


def test_a_text_that_is_no_vector_is_named(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(broken(v=["[1, 2]", "[3, 4", "[5, 6]"]), tmp_path / "o.csv")
    with pytest.raises(CatalogError, match=r"row 2, column 'v': '\[3, 4' is no vector"):
        load_catalog(tmp_path / "o.csv", columns=ObjectColumns(x="v"))


def test_in_a_folder_the_file_is_named(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(broken(), tmp_path / "1.parquet")
    pyarrow.parquet.write_table(broken(id=["d", None, "f"]), tmp_path / "2.parquet")
    with pytest.raises(CatalogError, match=r"2\.parquet, row 2, column 'id'"):
        load_catalog(tmp_path)


def test_a_column_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(broken(), tmp_path / "o.parquet")
    with pytest.raises(CatalogError, match="no column 'sku'; it has id, v; say which is which under"):
        load_catalog(tmp_path / "o.parquet", columns=ObjectColumns(id="sku"))
    with pytest.raises(CatalogError, match=r"no column fits 'dim_\*'; there are id, v"):
        load_catalog(tmp_path / "o.parquet", columns=ObjectColumns(x="dim_*"))
    with pytest.raises(
        CatalogError, match="view 'look' is dense with 2 coordinates, dense with 3 in the space"
    ):
        load_catalog(tmp_path / "o.parquet", SHOP)


def test_bytes_are_vectors_of_float32(tmp_path: Path, lines: Catalog) -> None:
    packed = [row.tobytes() for row in VALUES.astype("<f4")]
    for kind in (pa.binary(), pa.large_binary(), pa.binary(4 * DIM)):
        pyarrow.parquet.write_table(table(pa.array(packed, kind)), tmp_path / "o.parquet")
        found = load_catalog(tmp_path / "o.parquet", SHOP, columns=MAPPED)
        assert found.digest == lines.digest
    packed[1700] += b"abc"
    pyarrow.parquet.write_table(table(pa.array(packed)), tmp_path / "o.parquet")
    with pytest.raises(CatalogError, match=r"row 1701.*embedding.*15 bytes; a vector is 4 bytes"):
        load_catalog(tmp_path / "o.parquet", SHOP, columns=MAPPED)


def safetensors(path: Path, code: str, data: bytes) -> Path:
    """A file with one array of `ROWS` x `DIM`, of a type that numpy may lack, and its ids."""
    about = {"dtype": code, "shape": [ROWS, DIM], "data_offsets": [0, len(data)]}
    header = json.dumps({"look": about}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    path.with_name("o.ids.txt").write_bytes(b"\xef\xbb\xbf" + "\n".join(IDS).encode())
    return path


@pytest.mark.parametrize("code", ["BF16", "F16", "F32", "F64", "I8", "U16", "I64"])
def test_types_of_numbers_of_safetensors(tmp_path: Path, code: str) -> None:
    rounded = VALUES.astype(np.float16).astype(np.float32)
    kinds = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "|i1", "U16": "<u2", "I64": "<i8"}
    if code == "BF16":
        rounded = (VALUES.view(np.uint32) & 0xFFFF_0000).view(np.float32)
        stored = (rounded.view(np.uint32) >> 16).astype("<u2")
    else:
        rounded = np.abs(np.round(rounded * 9)) if code[0] != "F" else rounded
        stored = rounded.astype(kinds[code])
    found = load_catalog(safetensors(tmp_path / "o.safetensors", code, stored.tobytes()), SHOP)
    np.testing.assert_array_equal(found.views["look"].values, rounded)
    assert list(found.ids) == IDS


def test_numbers_that_mean_nothing_without_a_scale_are_named(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "o.safetensors", "F8_E4M3", bytes(ROWS * DIM))
    with pytest.raises(CatalogError, match="'look' is of type F8_E4M3, which is not read; save it as BF16"):
        load_catalog(path, SHOP)


def test_lines_of_another_encoding_are_one_error(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"id": "a", "x": [1]}\n')
    assert list(load_catalog(path).ids) == ["a"]
    path.write_bytes('{"id": "a", "x": [1]}\n'.encode("utf-16"))
    with pytest.raises(CatalogError, match="UTF-16 text; save it as UTF-8"):
        load_catalog(path)


def test_arrays_of_python_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[1.0], [2.0]], object), allow_pickle=True)
    (tmp_path / "ids.txt").write_text("a\nb\n")
    with pytest.raises(CatalogError, match="it holds Python objects"):
        load_catalog(tmp_path / "v.npy")


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(broken(text=["x", "ä" * 5000, "z"]), tmp_path / "o.parquet")
    text = unpack_display(load_catalog(tmp_path / "o.parquet").shown[1]).text
    assert 4090 < len(text.encode()) <= 4096
    assert text.endswith("ä…")


@pytest.mark.parametrize("name", ["o.xlsx", "nothing"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir() if name == "nothing" else path.write_text("")
    with pytest.raises(CatalogError, match=r"ends in \.parquet"):
        load_catalog(path)
