"""Catalog files become parts of their own, of bounded size, with tags from the display file."""

import numpy as np
import pytest

from daemon.serve.items.decoding import catalog_rows
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.index import ItemIndex
from learners.block import SparseBlock
from streams.catalog import Catalog
from streams.event import DenseColumn, SparseColumn
from streams.items import Display, pack_display
from tests.daemon.serve.items.objects import (
    DENSE,
    MIXED,
    SPARSE,
    block_of,
    contents,
    dense,
    identity,
    row_of,
    sparse,
)


def catalog_of(space, count):
    ids = [f"item {n}" for n in range(count)]
    rows = block_of([sparse(n) for n in range(count)])
    assert isinstance(rows, SparseBlock)
    column = SparseColumn(rows.indptr, rows.indices, rows.values, 20)
    if space is DENSE:
        return Catalog(ids, {"x": DenseColumn(np.stack([dense(n) for n in range(count)]))}, space)
    if space is SPARSE:
        return Catalog(ids, {"x": column}, space)
    words = SparseColumn(rows.indptr, rows.indices, rows.values, 10)
    return Catalog(ids, {"image": DenseColumn(np.ones((count, 3), np.float32)), "words": words}, space)


@pytest.mark.parametrize("space", [DENSE, SPARSE, MIXED], ids=["dense", "sparse", "mixed"])
def test_parts_hold_every_object_and_no_more(space):
    catalog, fitted = catalog_of(space, 50), identity(space)
    index = ItemIndex("map", DisplayFile())
    index.load(catalog_rows(catalog, fitted, DisplayFile(), 200))
    parts = index.snapshot.parts
    assert len(parts) > 3
    whole = fitted.transform({name: _block(column) for name, column in catalog.views.items()})
    assert contents(index.snapshot) == {one: row_of(whole, row) for row, one in enumerate(catalog.ids)}
    for part in parts:
        if isinstance(part.vectors, SparseBlock):
            assert part.vectors.indptr[0] == 0
            assert part.vectors.indptr[-1] == len(part.vectors.indices)
        assert part.nbytes < 3000


def _block(column):
    from daemon.catalogs import as_blocks

    return as_blocks({"one": column})["one"]


def test_tags_are_those_of_the_display_file():
    shown = DisplayFile({"item 3": pack_display(Display("Three", tags=("red",)))})
    index = ItemIndex("map", shown)
    index.load(catalog_rows(catalog_of(DENSE, 6), identity(DENSE), shown, 48))
    snapshot = index.snapshot
    tagged = [
        snapshot.tagged(["red"])[n][row] for n, part in enumerate(snapshot.parts) for row in range(len(part))
    ]
    assert sum(tagged) == 1
    part, row = snapshot.find("item 3")
    assert snapshot.tagged(["red"])[part][row]
    assert snapshot.display("item 3") == Display("Three", tags=("red",))
    assert snapshot.display("item 4") == Display()


def test_an_empty_catalog_has_no_parts():
    catalog = Catalog([], {"x": DenseColumn(np.zeros((0, 4), np.float32))}, DENSE)
    index = ItemIndex("map", DisplayFile())
    index.load(catalog_rows(catalog, identity(DENSE), DisplayFile(), 100))
    assert index.snapshot.parts == ()
    assert index.snapshot.find("a") is None
    assert index.snapshot.tagged(["a"]) == []
