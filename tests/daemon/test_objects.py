"""Objects in the learner's space: kept beside their binary where there are many, with the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daemon import catalogs as objects
from daemon.catalogs import as_blocks, map_catalog
from learners.block import DenseBlock, SparseBlock
from learners.maps import SpaceMap, ViewConfig
from streams.catalog import Catalog
from streams.catalog_cache import CatalogSource, open_catalog
from streams.event import DenseColumn, SpaceSpec, SparseColumn, ViewSpec
from tests.harness.catalog_files import save_catalog

ROWS, DIM = 60, 5


def catalog_of(kind: str) -> Catalog:
    values = np.random.default_rng(3).normal(size=(ROWS, DIM)).astype(np.float32)
    ids = [f"o{row}" for row in range(ROWS)]
    space = SpaceSpec("shop", (ViewSpec("x", kind, DIM),))
    if kind == "dense":
        return Catalog(ids, {"x": DenseColumn(values)}, space)
    values[values < 0.5] = 0
    rows, columns = np.nonzero(values)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=ROWS))]).astype(np.int64)
    column = SparseColumn(indptr, columns.astype(np.int32), values[rows, columns], DIM)
    return Catalog(ids, {"x": column}, space)


@pytest.mark.parametrize(("kind", "scaling"), [("dense", "precondition"), ("sparse", "unit")])
def test_mapped_objects_are_kept_with_the_same_bits(
    kind: str, scaling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_catalog(catalog_of(kind), tmp_path / "objects.safetensors")
    kept = tmp_path / "kept"
    source = CatalogSource(tmp_path / "objects.safetensors")
    catalog = open_catalog(source, [kept], lambda told: None)
    fitted = SpaceMap({"x": ViewConfig(scaling)}).fit(as_blocks(catalog.views))
    plain = map_catalog(catalog, fitted)
    assert len(list(kept.glob("*.safetensors"))) == 1, "few objects are mapped in no time"
    monkeypatch.setattr(objects, "LEAST_NUMBERS", 1)
    map_catalog(catalog, fitted, keep=False)
    assert len(list(kept.glob("*.safetensors"))) == 1
    for _ in range(2):
        found = map_catalog(open_catalog(source, [kept], lambda told: None), fitted)
        assert len(list(kept.glob("*.safetensors"))) == 2
        assert not found.values.flags.writeable
        assert found.values.tobytes() == plain.values.tobytes()
        if kind == "sparse":
            assert isinstance(found, SparseBlock)
            assert isinstance(plain, SparseBlock)
            assert found.indices.tobytes() == plain.indices.tobytes()
            assert found.indptr.tobytes() == plain.indptr.tobytes()
        else:
            assert isinstance(found, DenseBlock)
