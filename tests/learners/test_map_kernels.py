"""Explicit maps against the kernels they stand for, computed exactly in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from learners import REJECTED, FittedSpaceMap, Oasis, Reason, SpaceMap, TripletBatch, ViewConfig, as_block
from learners.maps import HikeMap, NystroemMap, RffMap

from .examples import block, dense

Doubles = np.ndarray[Any, np.dtype[np.float64]]
D = 4096
RANDOM = 5 / np.sqrt(D)
"""Five deviations: the product of two features has a variance of at most 1, and D of them are averaged."""


def points(n: int = 80, dim: int = 6, seed: int = 0) -> Doubles:
    """Dense rows of some correlation, as float32 holds them."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, dim)) @ rng.standard_normal((dim, dim)) + 1
    return values.astype(np.float32).astype(np.float64)


def counts(n: int = 80, dim: int = 12, seed: int = 0) -> Doubles:
    """Histograms, about half of them zeros, of sum 1."""
    values = np.random.default_rng(seed).poisson(0.8, (n, dim)) + np.eye(n, dim)
    return (values / values.sum(axis=1, keepdims=True)).astype(np.float32).astype(np.float64)


def distances(a: Doubles, b: Doubles) -> Doubles:
    """||x - z|| of all pairs."""
    return np.sqrt(np.square(a[:, None] - b[None]).sum(axis=2))


def overlap(a: Doubles, b: Doubles) -> Doubles:
    """sum_j min(x_j, z_j) of all pairs."""
    return np.minimum(a[:, None], b[None]).sum(axis=2)


def mapped(kind: str, sample: Doubles, x: Doubles, rows: str = "dense", **options: Any) -> Doubles:
    """x under a map fitted on the sample, as it is."""
    plan = SpaceMap({"v": ViewConfig(kind, options)}, unit=False)
    fitted = plan.fit({"v": block(sample.astype(np.float32), rows)})
    return dense(fitted.transform({"v": block(x.astype(np.float32), rows)}))


@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_sqrt_gives_the_kernel_of_bhattacharyya(rows: str) -> None:
    x = counts()
    phi = mapped("sqrt", x, x, rows)
    np.testing.assert_allclose(phi @ phi.T, np.sqrt(x[:, None] * x[None]).sum(axis=2), atol=1e-6)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_shares_give_rows_of_sum_1(rows: str) -> None:
    x = points() if rows == "dense" else counts() * 7
    np.testing.assert_allclose(
        mapped("shares", x, x, rows), x / np.abs(x).sum(axis=1, keepdims=True), atol=1e-6
    )


def test_cosine_gives_half_of_one_more_than_the_cosine() -> None:
    x = points()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    phi = mapped("cosine", x, x)
    np.testing.assert_allclose(phi @ phi.T, 0.5 * unit @ unit.T + 0.5, atol=1e-6)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_rff_approximates_the_gaussian_of_the_squared_distance(sigma: float, rows: str) -> None:
    x, between = points(), distances(points(), points())
    width = np.sort(between, axis=1)[:, 50].mean()
    phi = mapped("rff", x, x, rows, components=D, sigma=sigma)
    exact = np.exp(-np.square(between / (sigma * width)) / 2)
    assert np.abs(phi @ phi.T - exact).max() < RANDOM


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_rff_approximates_the_exponential_of_the_distance_itself(sigma: float) -> None:
    x, between = points(), distances(points(), points())
    mean = between.sum() / (len(x) * (len(x) - 1))
    phi = mapped("rff", x, x, kernel="exponential", components=D, sigma=sigma)
    exact = np.exp(-between / (mean * sigma**2))
    assert np.abs(phi @ phi.T - exact).max() < RANDOM
    squared = np.exp(-np.square(between / (mean * sigma**2)) / 2)
    assert np.abs(exact - squared).max() > 2 * RANDOM  # the test could tell them apart


def test_rff_takes_a_bandwidth_that_is_given() -> None:
    x = points()
    phi = mapped("rff", x[:1], x, components=D, bandwidth=3.0, seed=5)
    assert np.abs(phi @ phi.T - np.exp(-np.square(distances(x, x) / 3) / 2)).max() < RANDOM
    assert not np.array_equal(phi, mapped("rff", x[:1], x, components=D, bandwidth=3.0, seed=6))


def test_the_cosine_of_turns_is_that_of_the_library() -> None:
    turns = np.concatenate([np.linspace(-3, 3, 4001), [0.25, -0.25, 0.5, 1e6 + 0.125, 1e18]]).astype(
        np.float32
    )
    one = RffMap(np.ones((1, 1), np.float32), np.zeros(1, np.float32), False, {})
    values = one.transform(as_block(turns[turns != 0][:, None])).values[:, 0] / np.sqrt(2)
    np.testing.assert_allclose(values, np.cos(2 * np.pi * (turns[turns != 0].astype(float) % 1)), atol=2e-7)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("levels", [1, 8, 50])
def test_hike_approximates_the_intersection_within_half_a_step_per_column(levels: int, rows: str) -> None:
    x = counts()
    phi = mapped("hike", x, x, rows, levels=levels)
    step = x.max(axis=0) / levels
    both = (x[:, None] > 0) & (x[None] > 0)
    assert np.all(np.abs(phi @ phi.T - overlap(x, x)) <= (both * step / 2).sum(axis=2) + 1e-5)


def test_hike_takes_what_is_above_the_range_as_the_range() -> None:
    x = counts()
    np.testing.assert_array_equal(
        mapped("hike", x, 9 * np.ones((1, 12))), mapped("hike", x, x.max(axis=0)[None])
    )


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["gaussian", "intersection"])
def test_nystroem_with_all_landmarks_is_the_kernel(kernel: str, rows: str) -> None:
    x = counts()
    phi = mapped("nystroem", x, x, rows, kernel=kernel, components=80)
    assert np.abs(phi @ phi.T - exact_kernel(kernel, x, x)).max() < 2e-3


def exact_kernel(kernel: str, a: Doubles, landmarks: Doubles) -> Doubles:
    """The kernel with the width that the landmarks give."""
    if kernel == "intersection":
        return overlap(a, landmarks)
    width = np.sort(distances(landmarks, landmarks), axis=1)[:, 50].mean()
    return np.exp(-np.square(distances(a, landmarks) / width) / 2)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["gaussian", "intersection"])
def test_nystroem_of_new_rows_is_the_projection_on_the_largest_eigenvectors(kernel: str, rows: str) -> None:
    landmarks, x = counts(60), counts(20, seed=1)
    values, U = np.linalg.eigh(exact_kernel(kernel, landmarks, landmarks))
    along = exact_kernel(kernel, x, landmarks) @ U[:, -7:]
    phi = mapped("nystroem", landmarks, x, rows, kernel=kernel, components=7)
    np.testing.assert_allclose(phi @ phi.T, along / values[-7:] @ along.T, atol=1e-4)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["gaussian", "intersection"])
def test_nystroem_of_the_laplacian_is_its_smoothest_eigenvectors(kernel: str, rows: str) -> None:
    x = counts(60)
    K = exact_kernel(kernel, x, x)
    roots = np.sqrt(K.sum(axis=1))
    values, U = np.linalg.eigh(np.eye(60) - K / np.outer(roots, roots))
    assert abs(values[0]) < 1e-12  # the one that tells only degrees
    phi = mapped("nystroem", x, x, rows, kernel=kernel, laplacian=True, components=4)
    np.testing.assert_allclose(np.abs(U[:, 1:5].T @ phi), np.eye(4), atol=2e-3)


def test_nystroem_draws_as_many_landmarks_as_asked_for() -> None:
    x = as_block(points().astype(np.float32))
    one = NystroemMap.fit(x, {"landmarks": 30})
    assert one.landmarks.shape == (6, 30)
    rows = {row.tobytes() for row in one.landmarks.T}
    assert len(rows & {row.tobytes() for row in x.values}) == 30
    other = NystroemMap.fit(x, {"landmarks": 30, "seed": 1})
    assert rows != {row.tobytes() for row in other.landmarks.T}


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [("sqrt", {}), ("hike", {}), ("nystroem", {"kernel": "intersection"}), ("addkpca", {})],
)
def test_a_value_below_0_rejects_its_event(kind: str, options: dict[str, Any], rows: str) -> None:
    x = counts(12).astype(np.float32)
    fitted = SpaceMap({"v": ViewConfig(kind, options)}).fit({"v": block(x, rows)})
    x[1, 1] = -0.1
    parts = [fitted.transform({"v": block(part, rows)}) for part in (x[:4], x[4:8], x[8:])]
    info = Oasis(fitted.dim).learn_many(TripletBatch(*parts))
    assert info.reason.tolist() == [0, Reason.NOT_FINITE, 0, 0]
    assert info.outcome[1] == REJECTED


def several(**settings: Any) -> tuple[SpaceMap, FittedSpaceMap, dict[str, Any]]:
    """A space of two views, one of them with three kernels of its whitened rows."""
    kernels = [ViewConfig("rff", {"components": 16}), ViewConfig("cosine"), ViewConfig("nystroem")]
    chain = {"maps": [ViewConfig("whiten", {"components": 3}), ViewConfig("kernels", {"maps": kernels})]}
    plan = SpaceMap({"a": ViewConfig("chain", chain), "b": ViewConfig("unit")}, **settings)
    views = {"a": as_block(points().astype(np.float32)), "b": as_block(points(dim=2).astype(np.float32))}
    return plan, plan.fit(views), views


def test_a_chain_maps_one_after_another() -> None:
    x = points()
    chain = [
        ViewConfig("whiten", {"components": 3}),
        ViewConfig("unit"),
        ViewConfig("rff", {"bandwidth": 1.0}),
    ]
    white = mapped("whiten", x, x, components=3)
    unit = white / np.linalg.norm(white, axis=1, keepdims=True)
    expected = mapped("rff", unit, unit, bandwidth=1.0)
    np.testing.assert_allclose(mapped("chain", x, x, maps=chain), expected, atol=1e-5)


def test_kernels_of_a_view_are_blocks_of_unit_length_and_have_names() -> None:
    _, fitted, views = several(by_block=True)
    wide = fitted.dim - 2
    assert fitted.blocks == {
        "a/0": range(16), "a/1": range(16, 20), "a/2": range(20, wide), "b": range(wide, wide + 2)
    }  # fmt: skip
    joined = dense(fitted.transform(views))
    for columns in fitted.blocks.values():
        np.testing.assert_allclose(np.linalg.norm(joined[:, columns], axis=1), 1, atol=1e-6)
    missing = dense(fitted.transform({"b": views["b"]}))
    assert not missing[:, :wide].any()
    np.testing.assert_array_equal(missing[:, wide:], joined[:, wide:])


def test_without_by_block_the_whole_is_of_unit_length() -> None:
    plan, fitted, views = several()
    assert not plan.by_block
    np.testing.assert_allclose(np.linalg.norm(dense(fitted.transform(views)), axis=1), 1, atol=1e-6)


def test_a_space_without_blocks_is_described_as_ever() -> None:
    """So that the id of a space that was fitted before there were blocks is what it was."""
    assert set(several()[1].spec()) == {"format", "unit", "views"}
    spaces = several(by_block=True)[1]
    assert FittedSpaceMap.load(spaces.spec(), spaces.arrays()).by_block


def test_sparse_maps_of_many_columns_stay_sparse() -> None:
    wide = sparse.random_array((50, 100_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    x = as_block(wide.astype(np.float32))
    assert HikeMap.fit(x, {}).transform(x).nbytes <= 8 * 8 * wide.nnz
