"""Decoded columns -> one batch of triplets in the learner's space.

Objects named by id are rows of the catalog, mapped once at the start: a gather per role. Objects with
features of their own go through the frozen map.
"""

from __future__ import annotations

from daemon.objects.mapped import as_blocks, map_catalog, overlay
from learners.block import Block, TripletBatch
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.decode import DecodedBatch
from streams.resolve import RoleColumns


class Assembler:
    """Turns decoded batches into triplets. Holds the mapped catalog, float32."""

    def __init__(self, fitted: FittedSpaceMap, catalog: Catalog | None) -> None:
        self._map = fitted
        self._catalog = None if catalog is None else map_catalog(catalog, fitted)

    def triplets(self, decoded: DecodedBatch) -> TripletBatch | None:
        """The batch's events in order; None when it has none (every record is poison)."""
        if len(decoded.offsets) == 0:
            return None
        roles = (self._role(role) for role in (decoded.query, decoded.clicked, decoded.skipped))
        return TripletBatch(*roles, keys=decoded.keys)

    def _role(self, role: RoleColumns) -> Block:
        if role.inline is None:
            assert self._catalog is not None, "the decoder resolves ids only in a catalog"
            return self._catalog.take(role.rows)
        mapped = self._map.transform(as_blocks(role.inline))
        named = role.rows >= 0
        if self._catalog is None or not named.any():
            return mapped
        return overlay(mapped, self._catalog, role.rows, named)
