"""The configurations that decoders are compared in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streams.catalog import Catalog
from streams.decode import BatchDecoder, PlainDecoder
from streams.event import Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec

DENSE = SpaceSpec("photos", (ViewSpec("x", "dense", 3),))
SPARSE = SpaceSpec("texts", (ViewSpec("x", "sparse", 100),))
NAMED = SpaceSpec("named", (ViewSpec("words", "sparse", 100),))
BOTH = SpaceSpec("größe", (ViewSpec("colour", "dense", 2), ViewSpec("x", "sparse", 50)))

TWINS = SpaceSpec("twins", (ViewSpec("left", "dense", 2), ViewSpec("right", "dense", 2)))

IDS = ["a", "b", "ab", "é", "日本語", "\U0001f600", "x" * 512, "e" * 31, "e" * 32, "e" * 33]
"""Ids in the catalogs, some of them beginnings of others, some at the limits of headers and hashing."""


@dataclass(frozen=True)
class Case:
    """A space, a catalog or none, and the limit on a record."""

    name: str
    space: SpaceSpec
    catalog: Catalog | None = None
    limit: int = 1 << 20

    @cached_property
    def compiled(self) -> BatchDecoder:
        """The decoder under test."""
        return BatchDecoder(self.space, self.catalog, "t", self.limit, keyed=True)

    @cached_property
    def plain(self) -> PlainDecoder:
        """The specification."""
        return PlainDecoder(self.space, self.catalog, "t", self.limit, keyed=True)


def catalog_of(space: SpaceSpec, ids: list[str] = IDS) -> Catalog:
    """A catalog of these ids, its features all zero."""
    views: dict[str, Column] = {}
    for view in space.views:
        if view.kind == "dense":
            views[view.name] = DenseColumn(np.zeros((len(ids), view.dim), np.float32))
        else:
            none = np.zeros(0, np.int32)
            views[view.name] = SparseColumn(
                np.zeros(len(ids) + 1, np.int64), none, none.astype(np.float32), view.dim
            )
    return Catalog(ids, views, space)


CASES = [
    Case("dense with a catalog", DENSE, catalog_of(DENSE)),
    Case("sparse", SPARSE),
    Case("sparse with a catalog of none", SPARSE, catalog_of(SPARSE, [])),
    Case("a view of another name", NAMED, catalog_of(NAMED)),
    Case("two views with a catalog", BOTH, catalog_of(BOTH)),
    Case("two views alike", TWINS),
    Case("two views, short records", BOTH, None, 400),
]
