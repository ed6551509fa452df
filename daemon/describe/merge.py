"""What was left by pieces, put together: document frequencies, weights, the catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from daemon.describe.codebooks import Bag, Floats, Ints, inverse_frequencies, stacked, weigh
from daemon.describe.sources import RawObject
from daemon.describe.views import VIEWS
from streams.event import Column, DenseColumn, SparseColumn
from streams.items import Display
from streams.objects.catalog_file import CatalogWriter
from streams.objects.rows import ObjectRows, packed_display


@dataclass(frozen=True, slots=True)
class PartFile:
    """What a piece of work left, and the objects that it was of."""

    path: Path
    objects: Sequence[RawObject]

    def arrays(self, *names: str) -> dict[str, np.ndarray[Any, Any]]:
        """What is in it, or of these names alone what there is."""
        with np.load(self.path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name in names or not names}

    def read(self) -> tuple[dict[str, np.ndarray[Any, Any]], list[RawObject], list[tuple[str, str]]]:
        """Of described objects: arrays, the objects of their rows, and (name, reason) of those refused."""
        arrays = self.arrays()
        refused = dict(json.loads(arrays.pop("refused").tobytes()))
        kept = [one for row, one in enumerate(self.objects) if row not in refused]
        return arrays, kept, [(self.objects[row].name, reason) for row, reason in refused.items()]


def frequencies(parts: Iterable[PartFile], sizes: Mapping[str, int]) -> dict[str, Floats]:
    """d_i of each word of the views with words. sizes: words by view."""
    holding: dict[str, Ints] = {name: np.zeros(size, np.int64) for name, size in sizes.items()}
    objects = 0
    for part in parts:
        arrays, kept, _ = part.read()
        objects += len(kept)
        for name in sizes if kept else ():
            holding[name] += np.bincount(arrays[f"{name}.words"], minlength=sizes[name])
    return {name: inverse_frequencies(found, objects) for name, found in holding.items()}


def add_parts(
    writer: CatalogWriter,
    parts: Iterable[PartFile],
    names: Sequence[str],
    weights: Mapping[str, Floats],
    shown: Callable[[RawObject], Display],
) -> Iterator[tuple[PartFile, dict[str, float]]]:
    """Give every described object to the writer, part by part; yields each part with the non-zeros that its
    objects have in each view with words."""
    for part in parts:
        arrays, kept, _ = part.read()
        entries: dict[str, float] = {}
        if kept:
            views: dict[str, Column] = {}
            for name in names:
                if name in weights:
                    views[name], entries[name] = _weighed(arrays, name, weights[name])
                else:
                    views[name] = DenseColumn(np.asarray(arrays[name], np.float32))
            said = [packed_display(shown(one)) for one in kept]
            places = [one.name for one in kept]
            writer.add(ObjectRows([one.id for one in kept], views, said, places.__getitem__))
        yield part, entries


def _weighed(arrays: Mapping[str, Any], name: str, weights: Floats) -> tuple[Column, float]:
    """Rows of f_i d_i of unit length, and how many numbers are not zero."""
    bounds = arrays[f"{name}.indptr"]
    bags = [
        weigh(Bag(arrays[f"{name}.words"][first:last], arrays[f"{name}.counts"][first:last]), weights)
        for first, last in pairwise(bounds.tolist())
    ]
    indptr, words, values = stacked(bags)
    if VIEWS[name].sparse:
        return SparseColumn(indptr, words, values, len(weights)), float(len(words))
    rows = np.zeros((len(bags), len(weights)), np.float32)
    rows[np.repeat(np.arange(len(bags)), np.diff(indptr)), words] = values
    return DenseColumn(rows), float(len(words))
