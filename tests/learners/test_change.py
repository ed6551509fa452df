"""Spectrum and change against a slow oracle, full and by Lanczos, with what is built in found again."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from learners.errors import ConfigError
from learners.spectrum import change, spectrum


def learned(dim: int, seed: int, steps: int = 12) -> NDArray[np.float32]:
    """I and some rank-one steps, as learning leaves it."""
    rng = np.random.default_rng(seed)
    W = np.eye(dim)
    for _ in range(steps):
        W += 0.3 * np.outer(rng.standard_normal(dim), rng.standard_normal(dim)) / np.sqrt(dim)
    return W.astype(np.float32)


def eigenvalues(W: NDArray[np.float32]) -> NDArray[np.float64]:
    exact = W.astype(np.float64)
    return np.asarray(np.linalg.eigvalsh((exact + exact.T) / 2))


@pytest.mark.parametrize("dim", [1, 2, 40, 700])
def test_the_whole_spectrum(dim: int) -> None:
    W = learned(dim, seed=dim)
    exact, found = eigenvalues(W), spectrum(W, ends=5)
    assert found.full
    np.testing.assert_allclose(found.smallest, exact[:5], atol=1e-4)
    np.testing.assert_allclose(found.largest, exact[::-1][:5], atol=1e-4)
    assert found.negatives == np.sum(exact < -1e-4)
    assert found.frobenius == pytest.approx(np.linalg.norm(exact), rel=1e-5)
    assert found.stable_rank == pytest.approx(np.sum(exact**2) / np.max(exact**2), rel=1e-4)
    shares = np.abs(exact) / np.abs(exact).sum()
    assert found.effective_rank == pytest.approx(np.exp(-np.sum(shares * np.log(shares))), rel=1e-3)
    assert found.negative_share == pytest.approx(
        np.abs(exact[exact < -1e-4]).sum() / np.abs(exact).sum(), abs=1e-4
    )


def test_the_ends_by_lanczos_are_those_of_the_whole() -> None:
    W = learned(400, seed=1)
    part, whole = spectrum(W, ends=4, full_up_to=100), spectrum(W, ends=4)
    assert not part.full
    assert (part.negatives, part.negative_share, part.effective_rank) == (None, None, None)
    np.testing.assert_allclose(part.smallest, whole.smallest, rtol=1e-3)
    np.testing.assert_allclose(part.largest, whole.largest, rtol=1e-3)
    assert part.stable_rank == pytest.approx(whole.stable_rank, rel=1e-3)


@pytest.mark.parametrize(
    ("matrix", "rank"), [(np.eye(9), 9.0), (np.ones((6, 6)), 1.0), (np.zeros((3, 3)), 0.0)]
)
def test_ranks_of_matrices_that_are_known(matrix: NDArray[np.float64], rank: float) -> None:
    found = spectrum(matrix.astype(np.float32))
    assert found.stable_rank == pytest.approx(rank)
    assert found.effective_rank == pytest.approx(rank, abs=1e-3)
    assert found.negatives == 0


@pytest.mark.parametrize("full_up_to", [4000, 10])
def test_what_was_changed_is_found(full_up_to: int) -> None:
    """Over tile borders; one direction raised, one entry lowered."""
    dim = 1100
    A = learned(dim, seed=3)
    B = A.copy()
    along = np.zeros(dim)
    along[[5, 600, 1099]] = 0.8, 0.48, 0.36
    B += np.outer(along, along).astype(np.float32) * 2
    B[700, 2] -= 3  # half of it in the symmetric part
    found = change(A, B, entries=3, directions=2, full_up_to=full_up_to)
    assert [(e.row, e.column) for e in found.entries] == [(2, 700), (5, 5), (5, 600)]
    assert found.entries[0].after - found.entries[0].before == pytest.approx(-1.5, abs=1e-5)
    assert found.entries[1].after - found.entries[1].before == pytest.approx(1.28, abs=1e-5)
    assert found.entries[1].before == pytest.approx(A[5, 5])
    first, second = found.directions
    assert first.value == pytest.approx(2, abs=1e-3)
    assert [j for j, _ in first.coordinates[:3]] == [5, 600, 1099]
    np.testing.assert_allclose([w for _, w in first.coordinates[:3]], [0.8, 0.48, 0.36], atol=1e-3)
    assert abs(second.value) == pytest.approx(1.5, abs=1e-3)
    assert {j for j, _ in second.coordinates[:2]} == {2, 700}
    exact = np.linalg.norm(B.astype(np.float64) - A) / np.linalg.norm(A.astype(np.float64))
    assert found.relative == pytest.approx(exact, rel=1e-6)
    S, T = (A + A.T) / 2, (B + B.T) / 2
    assert found.symmetric == pytest.approx(np.linalg.norm(T - S) / np.linalg.norm(S), rel=1e-4)


@pytest.mark.parametrize("full_up_to", [100, 1])
def test_nothing_changed(full_up_to: int) -> None:
    A = learned(30, seed=2)
    found = change(A, A.copy(), full_up_to=full_up_to)
    assert (found.relative, found.symmetric, found.entries, found.directions) == (0.0, 0.0, (), ())
    zero = np.zeros((3, 3), np.float32)
    assert change(zero, zero).relative is None


def test_an_antisymmetric_change_moves_no_score() -> None:
    A = learned(20, seed=5)
    step = np.zeros((20, 20), np.float32)
    step[3, 4], step[4, 3] = 0.5, -0.5
    found = change(A, A + step)
    assert found.relative == pytest.approx(np.sqrt(0.5) / np.linalg.norm(A), rel=1e-5)
    assert found.symmetric == pytest.approx(0, abs=1e-7)


def test_a_pair_of_coordinates_is_told_once() -> None:
    A = learned(20, seed=5)
    B = A.copy()
    B[3, 4] += 1
    B[4, 3] += 2
    (only,) = change(A, B).entries
    assert (only.row, only.column) == (3, 4)
    assert only.after - only.before == pytest.approx(1.5)


def test_matrices_that_cannot_be_compared() -> None:
    good, bad = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)
    bad[0, 1] = np.nan
    for pair in ((good, np.eye(4, dtype=np.float32)), (good, bad), (bad, good), (good, good[:2])):
        with pytest.raises(ConfigError):
            change(*pair)
    with pytest.raises(ConfigError):
        spectrum(bad)
