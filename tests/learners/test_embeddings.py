"""The embeddings that take one direction or column at a time, against the oracle and against what they are
for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import MapError, as_block
from learners.maps import AddKpcaMap, NystroemMap, PcaLapMap, RpLapMap
from tests.learners import oracle_embeddings as oracle

from .examples import block, dense
from .test_map_kernels import counts, exact_kernel, overlap, points

Doubles = oracle.Doubles


def same_up_to_sign(found: np.ndarray, wanted: Doubles, atol: float = 2e-4) -> None:
    """Every column is the other's, or minus it."""
    signs = np.sign(np.einsum("nk,nk->k", found.astype(np.float64), wanted))
    np.testing.assert_allclose(found * signs, wanted, atol=atol)


@pytest.mark.parametrize("options", [{}, {"bandwidth": 0.7}, {"sigma": 2.0, "functions": 3}])
def test_pcalap_is_the_oracle_along_principal_directions(options: dict[str, Any]) -> None:
    sample, x = points(300), points(40, seed=3)
    fitted = PcaLapMap.fit(as_block(sample.astype(np.float32)), {"directions": 4, **options})
    lines = (sample - sample.mean(axis=0)) @ oracle.principal_directions(sample, 1)
    width = options.get("bandwidth", 0.2 * np.ptp(lines)) * options.get("sigma", 1.0)
    wanted = oracle.pcalap(sample, x, 4, options.get("functions", 2), width)
    same_up_to_sign(dense(fitted.transform(as_block(x.astype(np.float32)))), wanted, 2e-3)


def test_rplap_is_the_oracle_along_its_directions() -> None:
    sample, x = points(200), points(40, seed=3)
    fitted = RpLapMap.fit(as_block(sample.astype(np.float32)), {"directions": 7})
    wanted = oracle.rplap(sample, x, fitted.directions.astype(np.float64), 2)
    same_up_to_sign(dense(fitted.transform(as_block(x.astype(np.float32)))), wanted, 2e-3)


def test_rplap_draws_normal_directions_by_the_seed() -> None:
    sample = as_block(points().astype(np.float32))
    one, other = (RpLapMap.fit(sample, {"seed": seed}).directions for seed in (0, 1))
    assert one.shape == (6, 1000)
    assert abs(one.mean()) < 0.05
    assert one.std() == pytest.approx(1, abs=0.05)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("kind", [PcaLapMap, RpLapMap])
def test_the_functions_of_a_direction_oscillate_once_and_twice(kind: Any) -> None:
    """No spikes of one bin: of two matrices mixed up, the functions are those."""
    fitted = kind.fit(as_block(points(500).astype(np.float32)), {"directions": 3})
    for place, f in enumerate(fitted.functions):
        assert np.count_nonzero(np.diff(np.sign(f))) == 1 + place % 2
        assert np.abs(np.diff(f)).max() < np.ptp(f) / 4


def test_the_first_function_tells_two_clusters_apart_and_nothing_within_them() -> None:
    rng = np.random.default_rng(0)
    near = rng.normal(0, 0.08, (400, 3)) + np.where(np.arange(400) % 2, 1.0, -1.0)[:, None] * [1, 0, 0]
    f = dense(PcaLapMap.fit(as_block(near.astype(np.float32)), {"sigma": 0.5}).transform(near))[:, 0]
    left, right = f[::2], f[1::2]
    assert left.mean() * right.mean() < 0
    assert max(left.std(), right.std()) < 0.05 * abs(left.mean() - right.mean())


def test_beyond_the_sample_a_function_keeps_its_value() -> None:
    sample = points(300)
    fitted = PcaLapMap.fit(as_block(sample.astype(np.float32)), {"directions": 1})
    far = sample.mean(axis=0) + np.outer([1e3, 1e6], fitted.directions[:, 0])
    mapped = dense(fitted.transform(as_block(far.astype(np.float32))))
    np.testing.assert_array_equal(mapped[0], fitted.functions[:, -1])
    np.testing.assert_array_equal(mapped[1], mapped[0])


@pytest.mark.parametrize("kind", [PcaLapMap, RpLapMap])
def test_weighted_functions_are_over_the_root_of_their_eigenvalue(kind: Any) -> None:
    sample = points(200)
    x = as_block(sample.astype(np.float32))
    plain, weighted = (kind.fit(x, {"directions": 2, "weighted": w}) for w in (False, True))
    lines = ((sample - sample.mean(axis=0)) @ plain.directions.astype(np.float64)).T
    found = []
    for line in lines:
        P = oracle.density(line) if kind is PcaLapMap else np.full(50, 1 / 50)
        width = 0.2 * np.ptp(lines[0]) if kind is PcaLapMap else oracle.spectroscopy(line)
        found += list(oracle.eigenfunctions(line, P, width, 2)[1])
    ratio = (weighted.functions / plain.functions)[:, 0]
    np.testing.assert_allclose(ratio, 1 / np.sqrt(found), rtol=1e-3)


def test_pcalap_leaves_out_directions_without_variance() -> None:
    flat = np.hstack([points(100), np.ones((100, 3))]).astype(np.float32)
    assert PcaLapMap.fit(as_block(flat), {}).dim == 2 * 6


@pytest.mark.parametrize("kind", [PcaLapMap, RpLapMap])
@pytest.mark.parametrize("rows", [np.ones((1, 2)), np.ones((4, 2))])
def test_eigenfunctions_need_rows_that_differ(kind: Any, rows: np.ndarray) -> None:
    with pytest.raises(MapError, match="differ"):
        kind.fit(as_block(rows.astype(np.float32)), {})


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("functions", [1, 2, 5])
def test_addkpca_is_the_oracle_of_the_intersection(functions: int, rows: str) -> None:
    sample, x = counts(60) + 1e-3, counts(20, seed=1)
    fitted = AddKpcaMap.fit(block(sample.astype(np.float32), rows), {"functions": functions})
    phi = dense(fitted.transform(block(x.astype(np.float32), rows)))
    wanted = oracle.addkpca_product(sample.astype(np.float32).astype(np.float64), x, x, min, functions)
    np.testing.assert_allclose(phi @ phi.T, wanted, atol=2e-5)


@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_two_functions_of_each_column_are_nearly_the_intersection(rows: str) -> None:
    """Closer than HIKE with the eight columns each that it needs."""
    x = counts(200)
    fitted = AddKpcaMap.fit(block(x.astype(np.float32), rows), {})
    phi = dense(fitted.transform(block(x.astype(np.float32), rows)))
    assert phi.shape == (200, 24)
    assert np.abs(phi @ phi.T - overlap(x, x)).mean() < 0.02


def test_addkpca_is_the_oracle_of_the_gaussian() -> None:
    sample, x = points(60), points(20, seed=1)
    fitted = AddKpcaMap.fit(as_block(sample.astype(np.float32)), {"kernel": "gaussian", "bandwidth": 1.5})
    phi = dense(fitted.transform(as_block(x.astype(np.float32))))
    wanted = oracle.addkpca_product(sample, x, x, lambda a, b: np.exp(-((a - b) ** 2) / (2 * 1.5**2)), 2)
    np.testing.assert_allclose(phi @ phi.T, wanted, atol=1e-4)


def test_the_gaussian_of_a_column_has_the_width_of_its_values() -> None:
    sample = points(100) * [1, 10, 100, 1, 1, 1]
    fitted = AddKpcaMap.fit(as_block(sample.astype(np.float32)), {"kernel": "gaussian"})
    widths = [oracle.spectroscopy(line) for line in sample.T]
    np.testing.assert_allclose(fitted.rates, 1 / np.square(widths), rtol=1e-3)


def test_landmarks_are_drawn_from_what_a_column_holds() -> None:
    sample = counts(500)
    fitted = AddKpcaMap.fit(block(sample.astype(np.float32), "sparse"), {"landmarks": 30})
    assert fitted.landmarks.shape == (12, 30)
    for own, column in zip(fitted.landmarks, sample.astype(np.float32).T, strict=True):
        assert set(own) <= set(column[column > 0])
    other = AddKpcaMap.fit(block(sample.astype(np.float32), "sparse"), {"landmarks": 30, "seed": 1})
    assert not np.array_equal(other.landmarks, fitted.landmarks)


def test_a_column_without_values_or_with_one_adds_nothing_that_is_not_there() -> None:
    sample = counts(50)
    sample[:, 0], sample[:, 1] = 0, 0.5
    fitted = AddKpcaMap.fit(as_block(sample.astype(np.float32)), {})
    phi = dense(fitted.transform(as_block(sample.astype(np.float32))))
    assert not phi[:, :2].any()
    np.testing.assert_allclose(np.square(phi[:, 2:4]).sum(axis=1), 0.5, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["gaussian", "intersection"])
def test_nystroem_continues_the_laplacian_to_rows_that_are_no_landmarks(kernel: str) -> None:
    landmarks, x = counts(60), counts(20, seed=1)
    fitted = NystroemMap.fit(
        as_block(landmarks.astype(np.float32)), {"kernel": kernel, "laplacian": True, "components": 4}
    )
    wanted = oracle.laplacian_nystroem(
        exact_kernel(kernel, landmarks, landmarks), exact_kernel(kernel, x, landmarks), 4
    )
    same_up_to_sign(dense(fitted.transform(as_block(x.astype(np.float32)))), wanted, 2e-3)


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        (PcaLapMap, {"directions": 0}, "directions"),
        (PcaLapMap, {"seed": 0}, "no option 'seed'"),
        (RpLapMap, {"functions": 50}, "functions"),
        (RpLapMap, {"weighted": 1}, "weighted"),
        (AddKpcaMap, {"kernel": "exponential"}, "intersection, gaussian"),
        (AddKpcaMap, {"kernel": "gaussian", "bandwidth": 1e-30}, "width"),
        (AddKpcaMap, {"landmarks": 1 << 27}, "fewer"),
    ],
)
def test_options_that_cannot_be_are_refused(kind: Any, options: dict[str, Any], word: str) -> None:
    with pytest.raises(MapError, match=word):
        kind.fit(as_block(counts().astype(np.float32)), options)


def test_sparse_rows_have_no_gaussian_of_columns() -> None:
    with pytest.raises(MapError, match="intersection"):
        AddKpcaMap.fit(block(counts().astype(np.float32), "sparse"), {"kernel": "gaussian"})
