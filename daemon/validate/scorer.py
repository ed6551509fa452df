"""The objects of a window in the learner's space, the window prepared for judging, and the scores of one
version's serving form.

What is the same for every version judged on a window is prepared once (`Panel`); the norms of the catalog's
objects, and the features of a form that does not fold, are computed once per version (`Scorer`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daemon.catalogs import as_blocks, map_catalog, overlay
from daemon.validate.shown import Mask, Rows, ShownLists, shown_lists
from learners.block import Block, DenseBlock, Float32s, SparseBlock, against, dense_rows
from learners.forms.quadratic import ServedForm, apply_terms, featured, folds, has_terms, terms_of
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog, Resolver, gather_objects
from streams.event import Impression, ObjectRef, SpaceSpec


def check_impression(impression: Impression, space: SpaceSpec, catalog: Catalog | None) -> None:
    """Raise Poison unless every object is in the catalog or brings all views of the space, right in size."""
    Resolver(space, catalog).check_space(impression.space)
    gather_objects((impression.query, *impression.shown), space, catalog)


CatalogRows: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


class MappedObjects:
    """Objects in the learner's space under one frozen map.

    Holds the mapped catalog (4 bytes per dense value, 8 per sparse entry), made once per map: all versions of
    a store share their map, `fitted`. `catalog` is None without one.
    """

    def __init__(self, space: SpaceSpec, catalog: Catalog | None, fitted: FittedSpaceMap) -> None:
        self._space, self._catalog, self.fitted = space, catalog, fitted
        self.catalog: Block | None = None if catalog is None else map_catalog(catalog, fitted)

    @property
    def dim(self) -> int:
        """Dimension of the learner's space."""
        return self.fitted.dim

    @property
    def width(self) -> int:
        """Floats of a mapped object: the dimension, or twice the mean entries where the catalog is sparse."""
        if not isinstance(self.catalog, SparseBlock):
            return self.dim
        return min(self.dim, 1 + 2 * len(self.catalog.values) // max(1, len(self.catalog)))

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the catalog in row order; empty without one."""
        return () if self._catalog is None else self._catalog.ids

    def row_of(self, ref: ObjectRef) -> int | None:
        """The catalog row with this object's id, whether or not it brought features of its own."""
        if self._catalog is None or ref.id is None:
            return None
        return self._catalog.row_of(ref.id)

    def rows_of(self, refs: Sequence[ObjectRef]) -> Rows:
        """The same of several, int64 [n], -1 without one."""
        if self._catalog is None:
            return np.full(len(refs), -1, np.int64)
        ids = [ref.id for ref in refs]
        rows = {one: None if one is None else self._catalog.row_of(one) for one in set(ids)}
        known = {one: -1 if row is None else row for one, row in rows.items()}
        return np.array([known[one] for one in ids], np.int64)

    def block(self, refs: Sequence[ObjectRef]) -> tuple[Block, NDArray[np.int32]]:
        """Mapped features, one row per object in order, and the catalog rows they are from.

        A row is -1 where the object brought features of its own: they win over the catalog's. The objects
        must have passed `check_impression` with the same space and catalog.
        """
        role = gather_objects(refs, self._space, self._catalog)
        if role.inline is None:
            assert self.catalog is not None, "an object by id alone was checked against the catalog"
            return self.catalog.take(role.rows), role.rows
        mapped = self.fitted.transform(as_blocks(role.inline))
        named: NDArray[np.bool_] = role.rows >= 0
        if self.catalog is not None and named.any():
            mapped = overlay(mapped, self.catalog, role.rows, named)
        return mapped, role.rows


class NotFinite(Exception):
    """A score is NaN or infinite: the version cannot be ranked and must never be served."""


@dataclass(frozen=True, slots=True)
class ScorableItems:
    """Objects ready to be scored by one version. known: what its form keeps of each, float32 [n, K]:
    `terms_of` it, or its features."""

    block: Block
    known: Float32s


class Scorer:
    """Scores S(q, p), divided by sqrt(S(q, q) S(p, p)) where the form is normalised; minus a distance but for
    what is the query's alone, where the form is one.

    Queries are folded once (`fold`) and then scored against items, catalog rows or the whole catalog; every
    result is float32 and finite, else NotFinite. A form that does not fold scores each pair itself. Holds
    what the form keeps of each catalog object: one float32, or 4 F bytes of F features.
    """

    def __init__(self, form: ServedForm, objects: MappedObjects) -> None:
        self._form, self._objects = form, objects
        self._known = None if objects.catalog is None else self._kept_of(objects.catalog)

    def fold(self, refs: Sequence[ObjectRef]) -> Float32s:
        """Queries ready to be scored: S q, over its norm where normalised, or the queries themselves, each
        followed by its features, where the form does not fold; float32 [n, any]."""
        return self.fold_block(*self._objects.block(refs))

    def fold_block(self, block: Block, rows: CatalogRows) -> Float32s:
        """The same of queries that are mapped; rows: of the catalog, -1 for those with their own features."""
        if not folds(self._form):
            return np.hstack([dense_rows(block), self._known_of(block, rows)])
        folded = self._form.fold(block)
        if self._form.normalised:
            folded *= self._known_of(block, rows)
        return folded

    def items(self, refs: Sequence[ObjectRef]) -> ScorableItems:
        """Any objects, ready to be scored."""
        return self.ready(*self._objects.block(refs))

    def ready(self, block: Block, rows: CatalogRows) -> ScorableItems:
        """Objects that are mapped, ready to be scored; rows: see `fold_block`."""
        return ScorableItems(block, self._known_of(block, rows))

    def against(self, folded: Float32s, items: ScorableItems) -> Float32s:
        """Scores of all queries against all items, [queries, items]."""
        return self._scores(folded, items.block, items.known)

    def catalog(self, folded: Float32s) -> Float32s:
        """Scores against every catalog object, in row order, [queries, objects]."""
        return self._scores(folded, *self._every)

    def within_catalog(self, rows: Rows) -> Float32s:
        """Scores of the objects in these catalog rows against every one, int64 [n] -> [n, objects]."""
        return self.catalog(self.fold_block(self._every[0].take(rows), rows))

    def rows(self, folded: Float32s, rows: Rows, block: Block | None = None) -> Float32s:
        """Scores of each query against its own k catalog rows, int64 [queries, k] -> [queries, k]; block:
        those rows one after the other, where they are gathered already."""
        catalog, known = self._every
        if folds(self._form):
            block = catalog.take(rows.reshape(-1)) if block is None else block
            return self._finish(_row_products(folded, block).reshape(rows.shape), known[rows])
        pairs = enumerate(rows)
        found = [self._scores(folded[at : at + 1], catalog.take(own), known[own])[0] for at, own in pairs]
        return np.array(found, np.float32).reshape(rows.shape)

    def pairs(self, folded: Float32s, owner: Rows, items: ScorableItems) -> Float32s:
        """Scores of each of n objects against one query, int64 [n] naming it -> [n]."""
        found = np.zeros(len(owner), np.float32)
        for query in np.unique(owner).tolist():
            own = np.flatnonzero(owner == query)
            found[own] = self._scores(folded[query : query + 1], items.block.take(own), items.known[own])[0]
        return found

    @property
    def _every(self) -> tuple[Block, Float32s]:
        assert self._objects.catalog is not None
        assert self._known is not None
        return self._objects.catalog, self._known

    def _kept_of(self, block: Block) -> Float32s:
        form, nothing = self._form, np.zeros((len(block), 0), np.float32)
        if folds(form):
            return terms_of(form, form.self_scores(block))[:, None] if has_terms(form) else nothing
        return form.features(block) if featured(form) else nothing

    def _known_of(self, block: Block, rows: CatalogRows) -> Float32s:
        if self._known is None:
            return self._kept_of(block)
        known, own = self._known[rows], np.flatnonzero(rows < 0)
        if len(own):
            known[own] = self._kept_of(block.take(own))
        return known

    def _scores(self, folded: Float32s, block: Block, known: Float32s) -> Float32s:
        form = self._form
        if folds(form):
            return self._finish(against(folded, block), known)
        asked, features = DenseBlock(folded[:, : form.dim]), np.ascontiguousarray(folded[:, form.dim :])
        if featured(form):
            return self._finish(form.pair_scores(asked, features, block, known))
        return self._finish(form.scores(asked, block))

    def _finish(self, scores: Float32s, terms: Float32s | None = None) -> Float32s:
        """terms: of the objects, float32 [..., K]; K = 0 where the form needs none."""
        if terms is not None and terms.shape[-1]:
            scores = apply_terms(self._form, scores, terms[..., 0])
        if not np.isfinite(scores).all():
            raise NotFinite("a score is not a finite number")
        return scores


def _row_products(folded: Float32s, items: Block) -> Float32s:
    """Inner products of each query with its own equally many consecutive items, float32 [items]."""
    if isinstance(items, DenseBlock):
        values = items.values.reshape(len(folded), -1, items.dim)
        return np.asarray(np.matmul(values, folded[:, :, None]), np.float32).reshape(-1)
    lengths = np.diff(items.indptr)
    owner = np.repeat(np.arange(len(items)), lengths)
    query = owner // max(1, len(items) // max(1, len(folded)))
    products = items.values * folded[query, items.indices]
    return np.bincount(owner, products, minlength=len(items)).astype(np.float32)


def draws(impression_ids: Sequence[str], count: int, among: int) -> NDArray[np.int64]:
    """For each impression `count` numbers in [0, among), int64[n, count]: uniform up to 2^-32, the same for
    this impression on every machine and run."""
    bits = b"".join(hashlib.shake_128(one.encode()).digest(8 * count) for one in impression_ids)
    numbers = np.frombuffer(bits, "<u8").reshape(len(impression_ids), count) % np.uint64(among)
    return numbers.astype(np.int64)


def stable_order(key: str) -> bytes:
    """Sort key that picks a fixed, unbiased subset of ids however the window moves."""
    return hashlib.blake2b(key.encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Panel:
    """n impressions with the impressions of one query side by side, queries in a stable order.

    order: int64[n], place of each in the sequence it was made from. lists: their padded arrays [n, L];
    by_time: the same in that sequence. shown: int64[n, L], catalog row of each shown object by its id, -1
    without one. inline: bool[n, L], whether it brought features of its own. query: int64[n], the query's
    catalog row or -1; brought: bool[n], whether it brought features. group: int64[n], ascending, number of
    the distinct query. queries: each distinct query as it was sent last.
    """

    impressions: Sequence[Impression]
    order: Rows
    lists: ShownLists
    by_time: ShownLists
    shown: Rows
    inline: Mask
    query: Rows
    brought: Mask
    group: Rows
    queries: Sequence[ObjectRef]

    def __len__(self) -> int:
        return len(self.impressions)

    @property
    def impressions_by_time(self) -> list[Impression]:
        """In that sequence."""
        return [self.impressions[place] for place in np.argsort(self.order).tolist()]

    @property
    def plain(self) -> Mask:
        """Which lists were not made by two versions together, bool [n], in that sequence."""
        drafts = (one.draft for one in self.impressions)
        return self.in_time(np.array([draft is None or len(draft.models) != 2 for draft in drafts], bool))

    def in_time(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the impressions [n, ...], one by one in the sequence that the panel was made from."""
        out = np.empty_like(values)
        out[self.order] = values
        return out


def make_panel(objects: MappedObjects, impressions: Sequence[Impression]) -> Panel:
    """Prepare impressions, oldest first."""
    keys = [_key(impression) for impression in impressions]
    places = {key: n for n, key in enumerate(sorted(set(keys), key=stable_order))}
    groups = np.array([places[key] for key in keys], np.int64)
    order = np.argsort(groups, kind="stable").astype(np.int64)
    ordered = [impressions[place] for place in order.tolist()]
    by_time = shown_lists(impressions)
    lists = by_time.at(order)
    shown, inline = np.full(lists.valid.shape, -1, np.int64), np.zeros(lists.valid.shape, bool)
    refs, asked = [ref for one in ordered for ref in one.shown], [one.query for one in ordered]
    shown[lists.valid], inline[lists.valid] = objects.rows_of(refs), _have_features(refs)
    newest = {int(group): one.query for group, one in zip(groups[order], ordered, strict=True)}
    queries = [newest[group] for group in range(len(places))]
    rows = objects.rows_of(asked), _have_features(asked)
    return Panel(ordered, order, lists, by_time, shown, inline, *rows, groups[order], queries)


def _have_features(refs: Iterable[ObjectRef]) -> Mask:
    return np.array([ref.features() is not None for ref in refs], bool)


def _key(impression: Impression) -> str:
    """What makes queries the same: the id, or nothing. An id never starts with a control character."""
    return impression.query.id if impression.query.id is not None else f"\0{impression.id}"
