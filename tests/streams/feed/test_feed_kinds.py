"""Kinds of queries that are held out as a whole: the same in every run, and nothing of them is learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streams.catalog import Catalog
from streams.codec import decode_impression
from streams.event import (
    DenseColumn,
    Event,
    Impression,
    ObjectRef,
    SpaceSpec,
    SparseColumn,
    SparseVector,
    ViewSpec,
)
from streams.feed.decide import Decider
from streams.feed.kinds import HeldOutKinds
from streams.feed.options import FeedSettings
from streams.feed.triplets import CatalogCandidates

SIZE, DIM = 200, 8
VALUES = np.random.default_rng(3).standard_normal((SIZE, DIM)).astype(np.float32)
VALUES[17] = 0
IDS = [f"o{row}" for row in range(SIZE)]


def dense(values=VALUES, ids=IDS):
    space = SpaceSpec("toy", (ViewSpec("x", "dense", values.shape[1]),))
    return Catalog(ids, {"x": DenseColumn(values)}, space)


def sparse(values):
    """The same rows, those of zeros empty."""
    rows = [np.flatnonzero(row) for row in values]
    indptr = np.r_[0, np.cumsum([len(one) for one in rows])].astype(np.int64)
    entries = np.concatenate([row[at] for row, at in zip(values, rows, strict=True)]).astype(np.float32)
    column = SparseColumn(indptr, np.concatenate(rows).astype(np.int32), entries, values.shape[1])
    return Catalog(IDS, {"x": column}, SpaceSpec("toy", (ViewSpec("x", "sparse", values.shape[1]),)))


def cosines(values, row):
    lengths = np.maximum(np.linalg.norm(values, axis=1), 1e-12)
    return values @ values[row] / lengths / lengths[row]


def test_a_kind_is_the_part_of_the_catalog_that_is_nearest_to_its_centre():
    kinds = HeldOutKinds(dense(), 1, 0.1)
    centre = IDS.index(kinds.names[0])
    held = np.flatnonzero(kinds.rows == 0)
    assert centre in held
    assert set(held) == set(np.argsort(-cosines(VALUES.astype(np.float64), centre))[: SIZE // 10])
    assert kinds.of(ObjectRef(IDS[centre])) == IDS[centre]
    assert kinds.of(ObjectRef("o17")) is None, "zeros are near to nothing"
    assert kinds.of(ObjectRef("who?")) is None


def test_the_same_catalog_and_seed_give_the_same_kinds():
    first, again, other = (HeldOutKinds(dense(), 3, 0.05, seed) for seed in (4, 4, 5))
    assert first.names == again.names
    np.testing.assert_array_equal(first.rows, again.rows)
    assert first.names != other.names
    order = np.random.default_rng(0).permutation(SIZE)
    turned = HeldOutKinds(dense(VALUES[order], [IDS[row] for row in order]), 3, 0.05, 4)
    np.testing.assert_array_equal(turned.rows, first.rows[order])
    more = np.concatenate([VALUES, VALUES[:20] + 1])
    grown = HeldOutKinds(dense(more, [*IDS, *(f"n{n}" for n in range(20))]), 3, 0.05, 4)
    assert set(grown.names) & set(first.names), "objects that join leave most centres"


def test_features_tell_the_kind_as_the_id_does():
    kinds = HeldOutKinds(dense(), 4, 0.1)
    assert len(set(kinds.rows.tolist())) == 5
    for row in range(SIZE):
        assert kinds.of(ObjectRef(None, x=VALUES[row])) == kinds.of(ObjectRef(IDS[row]))
    assert kinds.of(ObjectRef("o1", x=VALUES[2])) == kinds.of(ObjectRef("o2")), "features win"
    assert kinds.of(ObjectRef(None, x=np.zeros(DIM + 1, np.float32))) is None
    assert kinds.of(ObjectRef(None, views={"other": VALUES[2]})) is None


def test_sparse_views_and_several():
    values = np.where(np.abs(VALUES) > 0.8, VALUES, 0).astype(np.float32)
    of_dense, of_sparse = HeldOutKinds(dense(values), 3, 0.1), HeldOutKinds(sparse(values), 3, 0.1)
    np.testing.assert_array_equal(of_dense.rows, of_sparse.rows)
    for row in range(SIZE):
        at = np.flatnonzero(values[row]).astype(np.int32)
        ref = ObjectRef(None, x=SparseVector(at, values[row][at]))
        assert of_sparse.of(ref) == of_sparse.of(ObjectRef(IDS[row]))
    far = SparseVector(np.array([DIM], np.int32), np.ones(1, np.float32))
    assert of_sparse.of(ObjectRef(None, x=far)) is None
    other = np.random.default_rng(9).standard_normal((SIZE, 3)).astype(np.float32)
    views = {"x": DenseColumn(VALUES), "y": DenseColumn(other)}
    space = SpaceSpec("two", (ViewSpec("x", "dense", DIM), ViewSpec("y", "dense", 3)))
    both = HeldOutKinds(Catalog(IDS, views, space), 1, 0.1)
    centre = IDS.index(both.names[0])
    near = cosines(VALUES.astype(np.float64), centre) + cosines(other.astype(np.float64), centre)
    assert set(np.flatnonzero(both.rows == 0)) == set(np.argsort(-near)[: SIZE // 10])
    for row in range(SIZE):
        ref = ObjectRef(None, views={"x": VALUES[row], "y": other[row]})
        assert both.of(ref) == both.of(ObjectRef(IDS[row]))


def test_a_centre_has_an_id_that_a_record_can_name():
    long = [one if row % 2 else one + 600 * "x" for row, one in enumerate(IDS)]
    assert max(map(len, HeldOutKinds(dense(ids=long), 20, 0.05).names)) < 600
    assert HeldOutKinds(dense(), SIZE + 5, 0.01).of(ObjectRef("o3")) is not None, "every object is a centre"


KINDS = HeldOutKinds(dense(), 2, 0.1)
INSIDE, OUTSIDE = (IDS[int(np.flatnonzero((KINDS.rows >= 0) == held)[3])] for held in (True, False))


def decided(item, kinds=KINDS, **how):
    settings = FeedSettings(**{"holdout_share": 0.0, **how})
    return Decider(settings, CatalogCandidates(IDS), frozenset(IDS), None, kinds).decide(item)


def listed(query, **more):
    return Impression("l1", 1, ObjectRef(query), tuple(map(ObjectRef, IDS[50:56])), (2,), **more)


@pytest.mark.parametrize("holdout_by", ["query", "list"])
def test_lists_of_such_a_kind_are_held_out_and_say_so(holdout_by):
    decision = decided(listed(INSIDE), holdout_by=holdout_by)
    assert decision.fate == "holdout"
    assert decode_impression(decision.holdout[0].value).kind == KINDS.of(ObjectRef(INSIDE))
    assert decided(listed(OUTSIDE), holdout_by=holdout_by).fate == "training"
    assert decided(listed(INSIDE), kinds=None, holdout_by=holdout_by).fate == "training"


def test_what_a_record_says_of_its_own_kind_does_not_count():
    alone = decided(listed(OUTSIDE, kind="of its own"), holdout_share=0.999999)
    assert decode_impression(alone.holdout[0].value).kind is None
    inside = decided(listed(INSIDE, kind="of its own"), holdout_share=0.999999)
    assert decode_impression(inside.holdout[0].value).kind == KINDS.of(ObjectRef(INSIDE))
    assert decided(listed(OUTSIDE, kind="of its own")).fate == "training"


def test_plain_triplets_of_such_a_kind_are_held_out_too():
    event = Event("t1", 1, ObjectRef(INSIDE), ObjectRef("o50"), ObjectRef("o51"))
    decision = decided(event)
    assert decision.fate == "holdout"
    assert decode_impression(decision.holdout[0].value).kind == KINDS.of(ObjectRef(INSIDE))
    assert decided(replace(event, query=ObjectRef(OUTSIDE))).fate == "training"


@pytest.mark.parametrize("wrong", [{"holdout_kinds": -1}, {"kind_share": 0.0}, {"kind_share": 1.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FeedSettings(**wrong)
