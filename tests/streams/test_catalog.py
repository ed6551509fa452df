"""Catalogs: written and read back, digests, and every way a file can be wrong."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from streams.catalog import Catalog, CatalogError, load_catalog
from streams.event import DenseColumn, SpaceSpec, SparseColumn, ViewSpec
from tests.harness.catalog_files import save_catalog

from .same import row_of_column, same_vector

SPACE = SpaceSpec("shop", (ViewSpec("words", "sparse", 20), ViewSpec("colour", "dense", 2)))
IDS = ["a", "ключ", "c"]


def views():
    return {
        "words": SparseColumn(
            np.array([0, 2, 2, 3]), np.array([1, 19, 4], np.int32), np.array([0.5, 1, 2], np.float32), 20
        ),
        "colour": DenseColumn(np.array([[1, 2], [3, 4], [5, 0.1]], np.float32)),
    }


def catalog(**changes):
    return Catalog(IDS, views() | changes, SPACE)


def same(one, two):
    assert one.ids == two.ids
    for name in one.views:
        for row in range(len(one)):
            assert same_vector(row_of_column(one.views[name], row), row_of_column(two.views[name], row))
    return True


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "catalog.safetensors"
    save_catalog(catalog(), path)
    return path


def rewrite(path, change, **metadata):
    """Save the arrays of a catalog again after `change`, with some metadata replaced."""
    arrays = load_file(path)
    change(arrays)
    own = {"format": "tripletd.catalog/1", "space": "shop", "dim.words": "20", "views": '["words", "colour"]'}
    save_file(arrays, path, {name: text for name, text in (own | metadata).items() if text is not None})


def test_round_trip_with_and_without_a_given_space(saved):
    for loaded in (load_catalog(saved), load_catalog(saved, SPACE)):
        assert loaded.space == SPACE
        assert same(loaded, catalog())
        assert loaded.digest == catalog().digest
        assert [loaded.row_of(one) for one in (*IDS, "nobody")] == [0, 1, 2, None]
        assert len(loaded) == 3


def test_half_precision_is_widened(tmp_path):
    path = tmp_path / "catalog.safetensors"
    save_catalog(catalog(), path, half=True)
    loaded = load_catalog(path, SPACE)
    assert loaded.views["colour"].values.dtype == np.float32
    assert loaded.views["colour"].values[2, 1] == np.float32(np.float16(0.1))
    assert loaded.views["words"].values.tolist() == [0.5, 1, 2]
    assert loaded.digest != catalog().digest


def test_the_digest_depends_on_ids_arrays_and_space():
    base = catalog().digest
    assert base == catalog().digest
    words = views()["words"]
    others = [
        Catalog(["a", "b", "c"], views(), SPACE),
        Catalog(IDS, views(), SpaceSpec("other", SPACE.views)),
        catalog(colour=DenseColumn(views()["colour"].values + np.float32(1e-6))),
        catalog(words=SparseColumn(np.array([0, 1, 2, 3]), words.indices, words.values, 20)),
        catalog(words=SparseColumn(words.indptr, np.array([1, 18, 4], np.int32), words.values, 20)),
    ]
    assert len({base, *(one.digest for one in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": DenseColumn(np.zeros((2, 2), np.float32))}, "has 2 rows for 3 ids"),
        ({"colour": DenseColumn(np.zeros((3, 5), np.float32))}, "dense with 5 coordinates in the catalog"),
        (
            {"colour": DenseColumn(np.full((3, 2), np.nan, np.float32))},
            "'colour', object 0: a number is not finite",
        ),
        ({"extra": DenseColumn(np.zeros((3, 2), np.float32))}, "make them agree"),
        ({"words": views()["colour"]}, "'words' is dense"),
    ],
)
def test_columns_that_do_not_fit(change, message):
    with pytest.raises(CatalogError, match=message):
        catalog(**change)


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "message"),
    [
        ([0, 2, 1, 3], [1, 2, 3], [1, 1, 1], "indptr"),
        ([1, 2, 2, 3], [1, 2, 3], [1, 1, 1], "indptr"),
        ([0, 2, 2, 4], [1, 2, 3], [1, 1, 1], "indptr"),
        ([0, 2, 2, 3], [1, 2, 3], [1, 1], "3 indices for 2 values"),
        ([0, 2, 2, 3], [1, 20, 3], [1, 1, 1], r"within 0\.\.19"),
        ([0, 2, 2, 3], [-1, 2, 3], [1, 1, 1], r"within 0\.\.19"),
        ([0, 2, 2, 3], [2, 2, 3], [1, 1, 1], "strictly increasing"),
        ([0, 0, 2, 3], [3, 2, 5], [1, 1, 1], "strictly increasing"),
    ],
)
def test_sparse_columns_that_are_wrong(indptr, indices, values, message):
    column = SparseColumn(np.array(indptr), np.array(indices, np.int32), np.array(values, np.float32), 20)
    with pytest.raises(CatalogError, match=message):
        catalog(words=column)


def test_a_new_row_may_start_lower_also_after_empty_rows():
    column = SparseColumn(
        np.array([0, 0, 2, 2, 4, 4]), np.array([3, 9, 1, 2], np.int32), np.ones(4, np.float32), 20
    )
    space = SpaceSpec("s", (ViewSpec("words", "sparse", 20),))
    assert len(Catalog(list("abcde"), {"words": column}, space)) == 5


def test_a_repeated_id():
    with pytest.raises(CatalogError, match="'a' twice"):
        Catalog(["a", "b", "a"], views(), SPACE)


@pytest.mark.parametrize(
    ("change", "metadata", "message"),
    [
        (lambda arrays: arrays.pop("ids"), {}, "array 'ids' is missing"),
        (lambda arrays: arrays.pop("view.words.indptr"), {}, "'view.words.indptr' is missing"),
        (lambda arrays: arrays.update({"ids_offsets": np.array([0, 1, 1, 10])}), {}, "'ids_offsets'"),
        (lambda arrays: arrays.update({"ids": np.full(10, 255, np.uint8)}), {}, "not UTF-8"),
        (
            lambda arrays: arrays.update({"view.colour": np.zeros((3, 2))}),
            {},
            "'view.colour' is missing or not f2 f4",
        ),
        (lambda arrays: None, {"format": "tripletd.catalog/9"}, "not 'tripletd.catalog/1'"),
        (lambda arrays: None, {"dim.words": "many"}, "'dim.words'"),
        (lambda arrays: None, {"dim.words": None}, "'dim.words'"),
        (lambda arrays: None, {"views": "[1"}, "metadata `views`"),
        (lambda arrays: None, {"views": '["words"]'}, "metadata `views`"),
        (lambda arrays: None, {"space": "other"}, "made for space 'other', not 'shop'"),
        (lambda arrays: arrays.update({"view.colour": np.zeros((4, 2), np.float32)}), {}, "4 rows for 3 ids"),
    ],
)
def test_files_that_are_wrong_name_themselves_and_the_array(saved, change, metadata, message):
    rewrite(saved, change, **metadata)
    with pytest.raises(CatalogError, match=message) as error:
        load_catalog(saved, SPACE)
    assert str(error.value).startswith(str(saved))


def test_views_without_their_order_come_sorted(saved):
    rewrite(saved, lambda arrays: None, views=None)
    assert [view.name for view in load_catalog(saved).space.views] == ["colour", "words"]


def test_files_that_are_no_catalog(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"not one")
    (tmp_path / "a.csv").write_text("id,x\na,1\n")
    (tmp_path / "empty.jsonl").write_text("\n")
    for name, message in (
        ("a.safetensors", "not a safetensors file"),
        ("none.safetensors", "No such file"),
        ("none.jsonl", "No such file"),
        ("a.csv", "no column of lists of numbers among id, x"),
        ("empty.jsonl", "no objects"),
    ):
        with pytest.raises(CatalogError, match=message) as error:
            load_catalog(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)


def write_lines(tmp_path, *lines):
    path = tmp_path / "catalog.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_json_lines_equal_the_binary_form(tmp_path):
    path = write_lines(
        tmp_path,
        {"id": "a", "views": {"words": {"indices": [1, 19], "values": [0.5, 1]}, "colour": [1, 2]}},
        "",
        {"id": "ключ", "views": {"words": {"indices": [], "values": []}, "colour": [3, 4]}},
        {"id": "c", "views": {"words": {"indices": [4], "values": [2]}, "colour": [5, 0.1]}},
    )
    loaded = load_catalog(path, SPACE)
    assert same(loaded, catalog())
    assert loaded.digest == catalog().digest
    assert load_catalog(path).space == SpaceSpec("default", SPACE.views)
    unnamed = load_catalog(write_lines(tmp_path, {"id": "a", "x": [1, 2]}))
    assert unnamed.space.views == (ViewSpec("x", "dense", 2),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        pytest.param("[" * 100_000, "not JSON", id="nested too deeply"),
        ("7", 'needs an "id"'),
        ({"x": [1, 2]}, 'needs an "id"'),
        ({"id": 5, "x": [1, 2]}, 'needs an "id"'),
        ('{"id": "\\ud800", "x": [1, 2]}', "half a character"),
        ({"id": "b"}, 'exactly one of "x" and "views"'),
        ({"id": "b", "x": [1, 2], "views": {}}, 'exactly one of "x" and "views"'),
        ({"id": "b", "views": {}}, "at least one view"),
        ({"id": "b", "x": [1, 2], "colour": 1}, "unknown key 'colour'"),
        ({"id": "b", "x": [1, "2"]}, "not a list of numbers"),
        ({"id": "b", "x": [1, True]}, "not a list of numbers"),
        ({"id": "b", "x": "12"}, "not a list of numbers"),
        ('{"id": "b", "x": [1, NaN]}', "not finite"),
        ({"id": "b", "x": [1, 1e39]}, "not finite"),
        ({"id": "b", "x": [1, 10**400]}, "too large"),
        ({"id": "b", "x": [1, 2, 3]}, "has 3 coordinates, the first object 2"),
        ({"id": "b", "views": {"y": [1, 2]}}, "the first object"),
        ({"id": "b", "x": {"indices": [1], "values": [1]}}, "dense in one object and sparse in another"),
        ({"id": "b", "x": {"indices": [1]}}, '"indices" and "values"'),
        ({"id": "b", "x": {"indices": [1.5], "values": [1]}}, "whole numbers"),
        ({"id": "b", "x": {"indices": [2, 1], "values": [1, 1]}}, "sort them"),
        ({"id": "b", "x": {"indices": [-1], "values": [1]}}, "negative or too large"),
        ({"id": "b", "x": {"indices": [2**31], "values": [1]}}, "negative or too large"),
        ({"id": "b", "x": {"indices": [2**70], "values": [1]}}, "too large"),
        ({"id": "b", "x": {"indices": [1, 2], "values": [1]}}, "2 indices for 1 values"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    path = write_lines(tmp_path, {"id": "a", "x": [1, 2]}, line)
    with pytest.raises(CatalogError, match=message) as error:
        load_catalog(path)
    assert f"{path}, line 2: " in str(error.value)


def test_lines_beyond_the_given_space(tmp_path):
    space = SpaceSpec("s", (ViewSpec("x", "sparse", 5),))
    path = write_lines(tmp_path, {"id": "a", "x": {"indices": [5], "values": [1]}})
    with pytest.raises(CatalogError, match=r"within 0\.\.4"):
        load_catalog(path, space)
    with pytest.raises(CatalogError, match="'a' twice"):
        load_catalog(write_lines(tmp_path, {"id": "a", "x": [1]}, {"id": "a", "x": [1]}))
