"""What described photos are good for before anybody clicked: the cosine of each view, judged by classes.

    tripletd describe photos_320.tar --views terms,nine,five --out described/items.safetensors
    python -m tests.quality.bench.described described/items.safetensors
    python -m tests.quality.bench.described --speed photos_320.tar

The photos are those of the demo's pack, whose classes judge. The last command describes some photos view by
view in this process, and prints the time of a core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from daemon.demo.pack_files import load_pack
from daemon.describe import five, whole
from daemon.describe.blocks import describe_blocks
from daemon.describe.chunks import one_thread_for_opencv
from daemon.describe.codebooks import nearest
from daemon.describe.pictures import decoded, resized
from daemon.describe.points import sift, surf
from daemon.describe.sources import find_photos, read_photo
from daemon.describe.views import FIVE, NINE, VIEWS
from streams.catalog import load_catalog
from streams.event import Column, SparseColumn
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import Floats, Ints, unit

PHOTOS = 60


def rows_of(column: Column, kept: Ints) -> Any:
    """Rows of unit length, dense or CSR."""
    if isinstance(column, SparseColumn):
        shape = len(column), column.dim
        return sparse.csr_matrix((column.values, column.indices, column.indptr), shape=shape)[kept]
    return unit(np.asarray(column.values[kept], np.float32))


def cosines(rows: Any) -> Callable[[Ints], Floats]:
    """Scores of some of them with all."""

    def scores(queries: Ints) -> Floats:
        found = rows[queries] @ rows.T
        return np.asarray(found.toarray() if sparse.issparse(found) else found, np.float32)

    return scores


def retrieval(path: Path) -> list[tuple[str, float, float, float]]:
    """(view, non-zeros an object, mAP, P@10) of each view, and of all together, the mean of their cosines."""
    catalog, pack = load_catalog(path), load_pack()
    label_of = dict(zip(pack.catalog.ids, pack.labels, strict=True))
    kept = np.array([row for row, one in enumerate(catalog.ids) if one in label_of], np.int64)
    labels = np.unique([label_of[catalog.ids[row]] for row in kept], return_inverse=True)[1].astype(np.int64)
    found = []
    views = {name: rows_of(column, kept) for name, column in catalog.views.items()}
    queries = np.arange(len(kept), dtype=np.int64)
    for name, rows in views.items():
        entries = rows.nnz if sparse.issparse(rows) else np.count_nonzero(rows)
        found.append((name, entries / len(kept), *judge(cosines(rows), labels, queries).pair))
    dense = [rows for name, rows in views.items() if name in NINE]
    if len(dense) == len(NINE):
        found.append(
            ("nine", 0.0, *judge(cosines(unit(np.concatenate(dense, axis=1))), labels, queries).pair)
        )
    return found


def speed(source: Path) -> list[tuple[str, float]]:
    """(what, milliseconds of a core for a photo)."""
    one_thread_for_opencv()
    found = find_photos(source)
    bodies = [read_photo(one) for one in found[:: max(1, len(found) // PHOTOS)]]
    draw = np.random.default_rng(0)
    palette = draw.integers(0, 256, (20, 3)).astype(np.float32)
    codebook: npt.NDArray[np.float32] = draw.random((10_000, 79), np.float32)
    pixels = [decoded(body) for body in bodies]

    def by_five(one: Any) -> None:
        square = resized(one, five.SIDE, five.SIDE)
        mask = five.foreground(square)
        for name in FIVE:
            five.VIEWS[name](square, mask)

    work: dict[str, tuple[Sequence[Any], Callable[[Any], object]]] = {
        "reading": (bodies, decoded),
        "terms, 10,000 words": (pixels, lambda one: nearest(describe_blocks(one, palette), codebook)),
        **{name: (pixels, getattr(whole, name)) for name in NINE if not VIEWS[name].of},
        "sift": (pixels, sift),
        "surf": (pixels, surf),
        "five": (pixels, by_five),
    }
    told = []
    for name, (given, do) in work.items():
        do(given[0])  # what is imported or kept at first use
        began = time.process_time()
        for one in given:
            do(one)
        told.append((name, 1000 * (time.process_time() - began) / len(given)))
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of catalogs, or the speed."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.described")
    parser.add_argument("paths", type=Path, nargs="+", help="catalogs, or with --speed photos")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args(arguments)
    for path in given.paths:
        if given.speed:
            for name, milliseconds in speed(path):
                print(f"{name:<22} {milliseconds:7.1f} ms")
        else:
            print(f"{path}\n{'view':<10} {'non-zeros':>9}   mAP   P@10")
            for name, entries, ap, p10 in retrieval(path):
                print(f"{name:<10} {entries:9.1f}  {ap:.3f}  {p10:.3f}")


if __name__ == "__main__":
    main()
