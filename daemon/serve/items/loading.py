"""From a catalog file to rows for the index, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daemon.objects.mapped import as_blocks
from daemon.serve.items.display import DisplayFile
from daemon.serve.items.parts import Rows
from learners.block import SparseBlock
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.ids import Packed


def catalog_rows(
    catalog: Catalog, fitted: FittedSpaceMap, shown: DisplayFile, part_bytes: int
) -> Iterator[Rows]:
    """The objects of a catalog, mapped, cut into pieces of about `part_bytes` of vectors.

    Tags are those of the display file; its texts stay there.
    """
    blocks = as_blocks(catalog.views)
    width = 4 * fitted.dim
    if fitted.sparse:
        entries = sum(
            len(block.values) / max(1, len(block)) if isinstance(block, SparseBlock) else block.dim
            for block in blocks.values()
        )
        width = 8 + int(8 * entries)
    step = max(1, part_bytes // width)
    for at in range(0, len(catalog), step):
        ids = catalog.ids[at : at + step]
        vectors = fitted.transform({name: block.slice(at, at + step) for name, block in blocks.items()})
        found = [shown.of(one) for one in ids] if len(shown) else [None] * len(ids)
        tags = [() if one is None else one.tags for one in found]
        yield Rows(
            Packed.of_texts(ids),
            vectors,
            tags,
            Packed(np.zeros(0, np.uint8), np.zeros(len(ids) + 1, np.int64)),
        )
