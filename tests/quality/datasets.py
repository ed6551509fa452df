"""Real objects with real classes: the demo's photos, and short texts as tf-idf vectors."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer

from daemon.catalogs import as_blocks
from daemon.demo.pack_files import load_pack
from daemon.validate.scorer import MappedObjects
from daemon.versions.algorithms import Columns
from learners.block import Block
from learners.maps import SpaceMap, ViewConfig
from streams.catalog import Catalog
from streams.event import SpaceSpec, SparseColumn, ViewSpec

TEXTS = Path(__file__).parents[1] / "data" / "banking77" / "train.csv"
MIN_DOCUMENTS = 5
TEXTS_KEPT = 5_000


@dataclass(frozen=True)
class Dataset:
    """A catalog in the learner's space, and the class of each row. columns: those of each view or kernel."""

    name: str
    catalog: Catalog
    labels: npt.NDArray[np.str_]
    objects: MappedObjects
    columns: Columns

    @property
    def mapped(self) -> Block:
        """The catalog's rows in the learner's space."""
        assert self.objects.catalog is not None
        return self.objects.catalog


@cache
def photos() -> Dataset:
    """3,409 photos of clothes in 10 classes, five dense views, each whitened."""
    pack = load_pack()
    return _dataset("photos", pack.catalog, pack.labels, ViewConfig("whiten"))


@cache
def photos_weighed_alike() -> Dataset:
    """The photos with views of unit length each, among them some that hold little."""
    pack = load_pack()
    return _dataset("photos weighed alike", pack.catalog, pack.labels, ViewConfig("whiten"), effective=False)


@cache
def photos_by_kernel() -> Dataset:
    """The photos with three kernels of each whitened view: linear, and a near and a wide one of the
    distance.
    """
    pack = load_pack()
    kernels = [
        ViewConfig("unit"),
        ViewConfig("rff", {"kernel": "exponential", "sigma": 0.7, "components": 100}),
        ViewConfig("rff", {"kernel": "gaussian", "components": 100}),
    ]
    chain = {"maps": [ViewConfig("whiten"), ViewConfig("unit"), ViewConfig("kernels", {"maps": kernels})]}
    return _dataset("photos by kernel", pack.catalog, pack.labels, ViewConfig("chain", chain), by_block=True)


@cache
def texts() -> Dataset:
    """5,000 customer questions in 77 classes (every second one), tf-idf, about 1,100 terms."""
    with TEXTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[::2][:TEXTS_KEPT]
    counts = TfidfVectorizer(min_df=MIN_DOCUMENTS, sublinear_tf=True)
    matrix = counts.fit_transform([row["text"] for row in rows]).tocsr().astype(np.float32)
    matrix.sort_indices()
    column = SparseColumn(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, matrix.shape[1]
    )
    spec = SpaceSpec("texts", (ViewSpec("x", "sparse", matrix.shape[1]),))
    ids = [f"text-{number}" for number in range(len(rows))]
    return _dataset(
        "texts",
        Catalog(ids, {"x": column}, spec),
        np.array([row["category"] for row in rows]),
        ViewConfig("unit"),
    )


def _dataset(
    name: str,
    catalog: Catalog,
    labels: npt.NDArray[np.str_],
    view: ViewConfig,
    by_block: bool = False,
    effective: bool = True,
) -> Dataset:
    blocks = as_blocks(catalog.views)
    effective = effective and view.kind == "whiten"  # as by default, where every view is whitened
    fitted = SpaceMap(dict.fromkeys(blocks, view), by_block=by_block, effective=effective).fit(blocks)
    return Dataset(name, catalog, labels, MappedObjects(catalog.space, catalog, fitted), fitted.blocks)
