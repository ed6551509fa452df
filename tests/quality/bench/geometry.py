"""Where steps are taken: the product's maps over the owner's vectors, and the owner's ranking in their
columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from learners.block import DenseBlock
from learners.maps import FittedSpaceMap, SpaceMap, ViewConfig
from learners.maps.base import OwnRanking, Start, first_diagonal
from tests.quality.bench.sets import Floats, RawSet


@dataclass(frozen=True)
class Space:
    """Z: rows of the catalog, dense float32 [n, d] or CSR. metric: diagonal of the owner's metric,
    float32 [d]. own: the same as the product has it; None where the map loses something. fitted: the map;
    None where rows are as they were."""

    Z: Any
    metric: Floats
    own: OwnRanking | None = field(default=None, repr=False)
    fitted: FittedSpaceMap | None = field(default=None, repr=False)

    @property
    def dim(self) -> int:
        """Dimension d."""
        return int(self.Z.shape[1])

    def first(self, start: Start) -> Floats:
        """W_0, float32 [d, d]."""
        diagonal = first_diagonal(self.own, start)
        return np.diag(np.ones(self.dim, np.float32) if diagonal is None else diagonal).copy()


def mapped(data: RawSet, kind: str, by_block: bool = False, **options: Any) -> Space:
    """The set under a map of this kind over each dense view; a sparse set stays as it is. by_block: unit
    length is that of each view."""
    if data.sparse:
        rows = data.joined()
        return Space(rows, np.ones(rows.shape[1], np.float32))
    chain = ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig(kind, options)]})
    fitted = SpaceMap(dict.fromkeys(data.views, chain), by_block=by_block, similarity="cosine").fit(
        data.views
    )
    rows = fitted.transform(data.views)
    assert isinstance(rows, DenseBlock)
    metric = np.ones(rows.dim, np.float32) if fitted.own is None else fitted.own.metric
    return Space(rows.values, metric, fitted.own, fitted)
