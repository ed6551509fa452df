"""Maps are fitted once, then frozen: the same bits for every batch size and after loading, and an id that
tells."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import (
    REJECTED,
    Block,
    DenseBlock,
    FittedSpaceMap,
    MapError,
    Oasis,
    Reason,
    SpaceMap,
    SparseBlock,
    TripletBatch,
    ViewConfig,
    as_block,
)
from learners.maps import scaling
from tests.learners import oracle

from .examples import block, dense

N = 60


def sample() -> dict[str, Block]:
    """Two dense views, one of them with a constant column and of low rank, and one sparse view of counts."""
    rng = np.random.default_rng(0)
    colour = (rng.standard_normal((N, 5)) * [1, 2, 30, 0.1, 0] + [5, -3, 0, 0.5, 7]).astype(np.float32)
    shape = (rng.standard_normal((N, 3)) @ rng.standard_normal((3, 8)) + 2).astype(np.float32)
    words = rng.poisson(0.6, (N, 10)).astype(np.float32)
    bars = rng.random((N, 4)).astype(np.float32)
    return {
        "colour": DenseBlock(colour),
        "shape": DenseBlock(shape),
        "words": block(words, "sparse"),
        "bars": DenseBlock(bars),
    }


PLANS = {
    "identity": SpaceMap({"colour": ViewConfig("identity"), "words": ViewConfig("identity")}, unit=False),
    "unit": SpaceMap({"colour": ViewConfig("unit"), "words": ViewConfig("unit")}),
    "standardise": SpaceMap({"colour": ViewConfig("standardise"), "shape": ViewConfig("identity")}),
    "whiten": SpaceMap({"colour": ViewConfig("whiten"), "shape": ViewConfig("whiten", {"components": 2})}),
    "weighed": SpaceMap({"colour": ViewConfig("whiten"), "shape": ViewConfig("whiten")}, effective=True),
    "own": SpaceMap(
        {"colour": ViewConfig("precondition"), "words": ViewConfig("identity")},
        similarity="inner_product",
        weights={"words": 0.5},
    ),
    "tfidf": SpaceMap({"words": ViewConfig("tfidf")}),
    "by count": SpaceMap({"words": ViewConfig("by_count"), "colour": ViewConfig("unit")}),
    "histograms": SpaceMap(
        {"bars": ViewConfig("hike", {"levels": 3}), "words": ViewConfig("sqrt"), "shape": ViewConfig("unit")}
    ),
    "shares": SpaceMap({"words": ViewConfig("shares"), "bars": ViewConfig("sqrt")}),
    "codes": SpaceMap({"words": ViewConfig("hike"), "bars": ViewConfig("shares")}),
    "rff": SpaceMap(
        {
            "colour": ViewConfig("rff", {"components": 20}),
            "words": ViewConfig("rff", {"kernel": "exponential"}),
        }
    ),
    "nystroem": SpaceMap(
        {
            "colour": ViewConfig("nystroem", {"components": 6}),
            "words": ViewConfig("nystroem", {"landmarks": 20, "laplacian": True}),
            "bars": ViewConfig("nystroem", {"kernel": "intersection"}),
        }
    ),
    "directions": SpaceMap(
        {
            "colour": ViewConfig("pcalap", {"directions": 3}),
            "shape": ViewConfig("rplap", {"directions": 6, "weighted": True}),
        }
    ),
    "columns": SpaceMap(
        {
            "colour": ViewConfig("addkpca", {"kernel": "gaussian", "landmarks": 20}),
            "words": ViewConfig("addkpca", {"functions": 1}),
            "bars": ViewConfig("addkpca"),
        }
    ),
    "kernels": SpaceMap(
        {
            "shape": ViewConfig(
                "chain",
                {
                    "maps": [
                        ViewConfig("whiten"),
                        ViewConfig("kernels", {"maps": [ViewConfig("rff"), ViewConfig("cosine")]}),
                    ]
                },
            ),
            "words": ViewConfig("kernels", {"maps": [ViewConfig("tfidf"), ViewConfig("sqrt")]}),
        }
    ),
    "mixed": SpaceMap(
        {"shape": ViewConfig("whiten"), "words": ViewConfig("tfidf"), "colour": ViewConfig("unit")}
    ),
}
EVERY = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())


def row_bits(part: Block) -> list[tuple[bytes, ...]]:
    """Each row to the bit."""
    if isinstance(part, DenseBlock):
        return [(row.tobytes(),) for row in part.values]
    cuts = [slice(a, b) for a, b in pairwise(part.indptr)]
    return [(part.indices[cut].tobytes(), part.values[cut].tobytes()) for cut in cuts]


@EVERY
@given(cuts=st.lists(st.integers(0, N), max_size=5))
@settings(max_examples=15, deadline=None)
def test_transform_has_the_same_bits_for_every_batch_size(plan: SpaceMap, cuts: list[int]) -> None:
    views = sample()
    fitted = plan.fit(views)
    edges = [0, *sorted(cuts), N]
    parts: list[tuple[bytes, ...]] = []
    for start, stop in pairwise(edges):
        parts += row_bits(fitted.transform({name: view.slice(start, stop) for name, view in views.items()}))
    assert parts == row_bits(fitted.transform(views))


def test_a_wide_projection_has_the_same_bits_in_tiles_as_row_by_row() -> None:
    """Also of rows that are zero or malformed; widths that no tile divides."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(scaling.LEAST_TILED + 5, 37)).astype(np.float32)
    rows[3], rows[7, 11] = 0, np.nan
    mean = rng.normal(size=37).astype(np.float32)
    components = rng.normal(size=(37, 2 * scaling.TILE + 77)).astype(np.float32)
    alone = np.concatenate([scaling._projected(rows[n : n + 1], mean, components) for n in range(len(rows))])
    assert scaling._projected(rows, mean, components).tobytes() == alone.tobytes()
    exact = (rows[0].astype(np.float64) - mean) @ components.astype(np.float64)
    np.testing.assert_allclose(alone[0], exact, rtol=1e-4, atol=1e-4)


@EVERY
def test_loading_gives_the_same_bits_and_id(plan: SpaceMap) -> None:
    fitted = plan.fit(sample())
    spec = json.loads(json.dumps(fitted.spec()))
    again = FittedSpaceMap.load(spec, {name: array.copy() for name, array in fitted.arrays().items()})
    assert again.id == fitted.id
    assert (again.dim, again.sparse) == (fitted.dim, fitted.sparse)
    assert row_bits(again.transform(sample())) == row_bits(fitted.transform(sample()))


@EVERY
def test_fitting_repeats(plan: SpaceMap) -> None:
    assert plan.fit(sample()).id == plan.fit(sample()).id


@EVERY
def test_the_id_tells_every_array_and_parameter_apart(plan: SpaceMap) -> None:
    fitted = plan.fit(sample())
    ids = {fitted.id}
    for name, array in fitted.arrays().items():
        changed = array[::-1].copy() if array.dtype == np.int32 else array.copy()  # a permutation stays one
        if array.dtype != np.int32:
            changed.reshape(-1)[-1] = np.nextafter(changed.reshape(-1)[-1], np.float32(np.inf))
        ids.add(FittedSpaceMap.load(fitted.spec(), {**fitted.arrays(), name: changed}).id)
    ids.add(FittedSpaceMap(fitted.views, not fitted.unit).id)
    ids.add(FittedSpaceMap(fitted.views, fitted.unit, not fitted.by_block).id)
    ids.add(FittedSpaceMap(fitted.views, fitted.unit, effective=not fitted.effective).id)
    ids.add(FittedSpaceMap({f"other-{name}": view for name, view in fitted.views.items()}, fitted.unit).id)
    assert len(ids) == len(fitted.arrays()) + 5


@EVERY
def test_input_is_not_changed(plan: SpaceMap) -> None:
    views = sample()
    fitted = plan.fit(views)
    fitted.transform(views)
    for name, view in sample().items():
        np.testing.assert_array_equal(dense(view), dense(views[name]))


@pytest.mark.parametrize("name", [name for name in PLANS if name not in {"identity", "weighed", "own"}])
def test_rows_and_views_have_unit_length(name: str) -> None:
    fitted = PLANS[name].fit(sample())
    joined = dense(fitted.transform(sample()))
    np.testing.assert_allclose(np.linalg.norm(joined, axis=1), 1, atol=1e-6)
    offset = 0
    for view in fitted.views.values():
        lengths = np.linalg.norm(joined[:, offset : offset + view.dim], axis=1)
        np.testing.assert_allclose(lengths[lengths > 0], 1 / np.sqrt(len(fitted.views)), atol=0.3)
        offset += view.dim


def test_a_view_weighs_by_its_effective_dimension() -> None:
    """20 directions of one size beside 20 of which one is large: brought to unit length each, the second
    weighs as much as the first; by its effective dimension it weighs what one direction does."""
    rng = np.random.default_rng(1)
    rich, poor = rng.standard_normal((2, 500, 20))
    poor[:, 1:] *= 1e-3
    mixed = poor @ np.linalg.qr(rng.standard_normal((20, 20)))[0]  # else each column is brought to size 1
    views = {name: DenseBlock(rows.astype(np.float32)) for name, rows in (("rich", rich), ("poor", mixed))}
    plan = {name: ViewConfig("whiten") for name in views}
    shares = {}
    for effective in (False, True):
        fitted = SpaceMap(plan, effective=effective).fit(views)
        joined = dense(fitted.transform(views))
        np.testing.assert_allclose(np.linalg.norm(joined, axis=1), 1, atol=1e-6)
        shares[effective] = np.square(joined[:, fitted.blocks["poor"]]).sum(axis=1).mean()
    assert shares[False] == pytest.approx(0.5, abs=1e-6)
    held = {name: np.linalg.eigvalsh(np.cov(standard(block.values).T)) for name, block in views.items()}
    size = {name: (v / (v + 0.3 * v.mean())).sum() for name, v in held.items()}
    assert shares[True] == pytest.approx(size["poor"] / (size["poor"] + size["rich"]), rel=0.2)
    assert shares[True] < 0.15


def standard(rows: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and deviation 1."""
    return np.asarray((rows - rows.mean(axis=0)) / rows.std(axis=0))


def test_identity_joins_what_it_gets() -> None:
    views = sample()
    joined = dense(PLANS["identity"].fit(views).transform(views))
    np.testing.assert_array_equal(joined, np.hstack([dense(views["colour"]), dense(views["words"])]))


def test_standardised_columns_have_mean_0_and_deviation_1() -> None:
    views = sample()
    plan = SpaceMap({"colour": ViewConfig("standardise")}, unit=False)
    mapped = dense(plan.fit(views).transform(views))
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(mapped[:, :4].std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(mapped[:, 4], 0)


def test_whitened_directions_are_uncorrelated_of_variance_1_and_null_ones_are_dropped() -> None:
    views = sample()
    plan = SpaceMap({"shape": ViewConfig("whiten", {"epsilon": 0.0})}, unit=False)
    mapped = dense(plan.fit(views).transform(views))
    assert mapped.shape == (N, 3)
    np.testing.assert_allclose(np.cov(mapped.T), np.eye(3), atol=1e-4)
    few = SpaceMap({"shape": ViewConfig("whiten", {"components": 2})}).fit(views)
    assert few.dim == 2


def whitened(rows_: np.ndarray, **options: Any) -> np.ndarray:
    """The rows under a whitening fitted on themselves, not brought to unit length."""
    views = {"v": as_block(rows_.astype(np.float32))}
    return dense(SpaceMap({"v": ViewConfig("whiten", options)}, unit=False).fit(views).transform(views))


@pytest.mark.parametrize(("objects", "columns", "kept"), [(3, 80, 2), (40, 80, 39), (2, 5, 1), (50, 2, 2)])
def test_whitening_keeps_as_many_directions_as_there_are(objects: int, columns: int, kept: int) -> None:
    mapped = whitened(np.random.default_rng(3).standard_normal((objects, columns)) * 4 + 9, epsilon=1e-3)
    assert mapped.shape == (objects, kept)
    np.testing.assert_allclose(np.cov(mapped.T).reshape(kept, kept), np.eye(kept), atol=2e-2)


def test_shrinkage_is_measured_on_the_directions_kept() -> None:
    mapped = whitened(np.random.default_rng(3).standard_normal((2, 5)), epsilon=1.0)
    assert mapped.var(axis=0, ddof=1) == pytest.approx(0.5, abs=1e-5)


def test_whitening_leaves_a_constant_column_out() -> None:
    rows_ = np.random.default_rng(3).standard_normal((50, 4))
    rows_[:, 1] = 1e6 / 3
    mapped = whitened(rows_)
    assert mapped.shape == (50, 3)
    changed = rows_.copy()
    changed[0, 1] += 100
    views = {"v": as_block(rows_.astype(np.float32))}
    fitted = SpaceMap({"v": ViewConfig("whiten")}).fit(views)
    other = fitted.transform({"v": as_block(changed.astype(np.float32))})
    np.testing.assert_array_equal(dense(other)[1:], dense(fitted.transform(views))[1:])
    np.testing.assert_allclose(dense(other)[0], dense(fitted.transform(views))[0], atol=1e-6)


def test_whitening_of_many_columns_finds_the_same_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows_ = rng.standard_normal((200, 5)) * [9, 7, 5, 3, 2] @ rng.standard_normal((5, 40))
    rows_ += 0.1 * rng.standard_normal(rows_.shape)
    exact = whitened(rows_, components=5)
    monkeypatch.setattr("learners.maps.scaling.EXACT_DIM", 39)
    randomised = whitened(rows_, components=5)
    np.testing.assert_allclose(randomised @ randomised.T, exact @ exact.T, atol=1e-3)
    np.testing.assert_array_equal(randomised, whitened(rows_, components=5))
    assert whitened(rows_[:3]).shape == (3, 2)


def test_a_loaded_map_does_without_the_library_that_fitted_it() -> None:
    """What a restarting learner does: its start-up is spared a second of imports."""
    fitted = PLANS["mixed"].fit(sample())
    arrays = {
        name: (array.dtype.str, array.shape, array.tobytes()) for name, array in fitted.arrays().items()
    }
    code = f"""
import sys
import numpy as np
from learners import DenseBlock, FittedSpaceMap
arrays = {{n: np.frombuffer(b, t).reshape(s) for n, (t, s, b) in {arrays!r}.items()}}
fitted = FittedSpaceMap.load({fitted.spec()!r}, arrays)
assert len(fitted.transform({{"shape": DenseBlock(np.ones((2, 8), np.float32))}})) == 2
print([name for name in ("sklearn", "scipy.stats", "pandas", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_shrinkage_damps_the_weak_directions_most() -> None:
    views = sample()
    plan = SpaceMap({"colour": ViewConfig("whiten", {"epsilon": 0.5})}, unit=False)
    variance = dense(plan.fit(views).transform(views)).var(axis=0)
    assert np.all(np.diff(variance) < 1e-6)
    assert variance.max() < 1


def test_tfidf_equals_the_oracle() -> None:
    words = dense(sample()["words"])
    mapped = PLANS["tfidf"].fit(sample()).transform(sample())
    np.testing.assert_allclose(dense(mapped), oracle.tfidf(words, words), atol=1e-6)


def test_a_missing_view_contributes_zeros() -> None:
    views = sample()
    fitted = PLANS["mixed"].fit(views)
    full = dense(fitted.transform(views))
    without = dense(fitted.transform({"words": views["words"], "unknown": views["colour"]}))
    assert not without[:, : fitted.views["shape"].dim].any()
    present = slice(fitted.views["shape"].dim, fitted.views["shape"].dim + 10)
    lengths = np.linalg.norm(full[:, present], axis=1, keepdims=True)
    scaled = full[:, present] / np.where(lengths > 0, lengths, 1)
    np.testing.assert_allclose(without[:, present], scaled, atol=1e-6)


@EVERY
def test_a_zero_object_stays_zero(plan: SpaceMap) -> None:
    fitted = plan.fit(sample())
    zeros = {name: block(np.zeros((2, view.dim), np.float32), "sparse" if name == "words" else "dense")
             for name, view in sample().items()}  # fmt: skip
    assert not dense(fitted.transform(zeros)).any()


@EVERY
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.nan, Reason.NOT_FINITE),
        (np.inf, Reason.NOT_FINITE),
        (1.2e18, Reason.MAGNITUDE),
        (-3e38, Reason.MAGNITUDE),
    ],
)
def test_a_malformed_value_is_rejected_by_the_step_for_its_own_reason(
    plan: SpaceMap, value: float, reason: Reason
) -> None:
    fitted, whole = plan.fit(sample()), sample()
    good = fitted.transform(whole)
    for name in fitted.views:
        part = whole[name].take([0, 1])
        values = part.values.copy()
        values.reshape(-1)[0] = value
        bad = (
            DenseBlock(values)
            if isinstance(part, DenseBlock)
            else SparseBlock(part.indptr, part.indices, values, 10)
        )
        mapped = fitted.transform({**{key: view.slice(0, 2) for key, view in whole.items()}, name: bad})
        assert step_reason(fitted, mapped, good) == [reason, Reason.NONE]


@pytest.mark.parametrize("name", ["identity", "unit", "tfidf", "columns", "mixed"])
@pytest.mark.parametrize(
    ("indices", "reason"),
    [
        ([2, 10], Reason.INDEX_OUT_OF_RANGE),
        ([-1, 2], Reason.INDEX_OUT_OF_RANGE),
        ([-(2**31), 2**31 - 1], Reason.INDEX_OUT_OF_RANGE),
        ([3, 3], Reason.INDICES_NOT_INCREASING),
        ([4, 1], Reason.INDICES_NOT_INCREASING),
    ],
)
def test_a_malformed_index_is_rejected_by_the_step_for_its_own_reason(
    name: str, indices: list[int], reason: Reason
) -> None:
    fitted, whole = PLANS[name].fit(sample()), sample()
    words = SparseBlock(np.array([0, 2, 3]), np.int32([*indices, 1]), np.ones(3, np.float32), 10)
    mapped = fitted.transform({**{key: view.slice(0, 2) for key, view in whole.items()}, "words": words})
    assert step_reason(fitted, mapped, fitted.transform(whole)) == [reason, Reason.NONE]


def step_reason(fitted: FittedSpaceMap, mapped: Block, good: Block) -> list[int]:
    """What the learner says about two mapped rows as queries; it must not learn from a malformed one."""
    learner = Oasis(fitted.dim)
    info = learner.learn_many(TripletBatch(mapped, good.slice(2, 4), good.slice(4, 6)))
    assert info.outcome[0] == REJECTED
    assert np.isfinite(learner.W).all()
    return [int(reason) for reason in info.reason]


@pytest.mark.parametrize(
    ("views", "word"),
    [
        ({}, "at least one view"),
        ({"smell": ViewConfig("unit")}, "view smell: not in the sample"),
        ({"colour": ViewConfig("magic")}, "view colour: unknown kind"),
        ({"colour": ViewConfig("tfidf")}, "view colour: .*sparse"),
        ({"words": ViewConfig("whiten")}, "view words: .*dense"),
        ({"colour": ViewConfig("unit", {"k": 1})}, "no option 'k'"),
        ({"colour": ViewConfig("whiten", {"component": 1})}, "no option 'component'"),
        ({"colour": ViewConfig("whiten", {"components": 0})}, "components"),
        ({"colour": ViewConfig("whiten", {"epsilon": -1})}, "epsilon"),
        ({"colour": ViewConfig("sqrt")}, "view colour: .*below 0"),
        ({"colour": ViewConfig("hike")}, "view colour: .*below 0"),
        ({"colour": ViewConfig("nystroem", {"kernel": "intersection"})}, "view colour: .*below 0"),
        ({"colour": ViewConfig("addkpca")}, "view colour: .*below 0"),
        ({"words": ViewConfig("pcalap")}, "view words: .*dense"),
        ({"words": ViewConfig("rplap")}, "view words: .*dense"),
        ({"bars": ViewConfig("hike", {"levels": 0})}, "levels"),
        ({"words": ViewConfig("cosine")}, "view words: .*dense"),
        ({"bars": ViewConfig("rff", {"kernel": "cauchy"})}, "gaussian, exponential"),
        ({"bars": ViewConfig("rff", {"components": 0})}, "components"),
        ({"bars": ViewConfig("rff", {"sigma": 0})}, "sigma"),
        ({"bars": ViewConfig("rff", {"bandwidth": -1.0})}, "bandwidth"),
        ({"bars": ViewConfig("rff", {"seed": -1})}, "seed"),
        ({"bars": ViewConfig("nystroem", {"laplacian": "yes"})}, "laplacian"),
        ({"bars": ViewConfig("nystroem", {"landmarks": 1 << 27})}, "fewer"),
        ({"bars": ViewConfig("chain")}, "at least one map"),
        ({"bars": ViewConfig("kernels", {"maps": []})}, "at least one map"),
        ({"bars": ViewConfig("chain", {"maps": [ViewConfig("unit"), ViewConfig("tfidf")]})}, "sparse"),
    ],
)
def test_plans_that_cannot_be_fitted_are_refused_by_view(views: Mapping[str, ViewConfig], word: str) -> None:
    with pytest.raises(MapError, match=word):
        SpaceMap(views).fit(sample())


@pytest.mark.parametrize(
    "kind", ["standardise", "whiten", "hike", "rff", "nystroem", "pcalap", "rplap", "addkpca"]
)
@pytest.mark.parametrize("rows_", [np.zeros((3, 2)), np.full((3, 2), np.nan), np.zeros((0, 2))])
def test_samples_that_teach_nothing_are_refused(kind: str, rows_: np.ndarray) -> None:
    with pytest.raises(MapError, match="view v"):
        SpaceMap({"v": ViewConfig(kind)}).fit({"v": as_block(rows_)})


@pytest.mark.parametrize("rows_", [np.ones((1, 2)), np.ones((4, 2))])
def test_whitening_needs_rows_that_differ(rows_: np.ndarray) -> None:
    with pytest.raises(MapError, match="differ"):
        SpaceMap({"v": ViewConfig("whiten")}).fit({"v": as_block(rows_)})


def test_views_that_do_not_fit_the_map_are_refused() -> None:
    fitted, views = PLANS["mixed"].fit(sample()), sample()
    for given_, word in (
        ({}, "none of its views"),
        ({"nothing": views["words"]}, "none of its views"),
        ({"words": views["words"], "shape": views["shape"].slice(0, 3)}, "unequal lengths"),
        ({"shape": views["colour"]}, "view shape: .*8 dimensions"),
        ({"words": views["colour"]}, "view words: .*sparse"),
    ):
        with pytest.raises(MapError, match=word):
            fitted.transform(given_)


def test_descriptions_and_arrays_that_do_not_fit_are_refused() -> None:
    fitted = PLANS["mixed"].fit(sample())
    spec, arrays = fitted.spec(), fitted.arrays()
    broken: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, arrays, "incomplete"),
        ({**spec, "format": 4}, arrays, "format 4"),
        ({**spec, "format": 3}, arrays, "incomplete"),
        ({**spec, "format": 2}, arrays, "incomplete"),
        ({**spec, "views": [{**spec["views"][0], "kind": "magic"}]}, arrays, "magic"),
        (spec, {name: array for name, array in arrays.items() if name != "words.idf"}, "idf .*missing"),
        (spec, {**arrays, "words.idf": arrays["words.idf"][:3]}, "idf"),
        (spec, {**arrays, "words.idf": arrays["words.idf"].astype(float)}, "idf"),
        (spec, {**arrays, "words.idf": arrays["words.idf"] * np.float32(np.nan)}, "idf"),
    ]
    for bad_spec, bad_arrays, word in broken:
        with pytest.raises(MapError, match=word):
            FittedSpaceMap.load(bad_spec, bad_arrays)
