"""The eigendecomposition that leaves the interpreter free: same bits as scipy's, others run meanwhile."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from scipy.linalg import eigh

from learners.psd import symmetric_eigen


def symmetric(dim: int) -> np.ndarray:
    matrix = np.random.default_rng(dim).standard_normal((dim, dim)).astype(np.float32)
    return matrix + matrix.T


@pytest.mark.parametrize("dim", [1, 2, 7, 200])
def test_values_and_vectors_are_those_of_scipy(dim: int) -> None:
    matrix = symmetric(dim)
    values, vectors = symmetric_eigen(matrix.copy())
    wanted_values, wanted_vectors = eigh(matrix, driver="evd")
    assert values.tobytes() == wanted_values.tobytes()
    assert np.array_equal(vectors, wanted_vectors)
    assert np.allclose(vectors * values @ vectors.T, matrix, atol=1e-4 * dim)


def test_other_threads_run_while_it_works() -> None:
    """In one of a few tries: a busy machine may not let the other one have its share."""
    matrix, worked, done = symmetric(1200), [0.0], threading.Event()

    def work() -> None:
        while not done.is_set():
            worked[0] = time.thread_time()

    other = threading.Thread(target=work)
    other.start()
    try:
        for _ in range(5):
            before, mine = worked[0], time.thread_time()
            symmetric_eigen(matrix)
            gained, mine = worked[0] - before, time.thread_time() - mine
            if gained > mine / 4:
                break
    finally:
        done.set()
        other.join(10)
    assert gained > mine / 4  # of processor time; where the lock is kept it is one turn, 0.005 s


def test_what_lapack_cannot_read_is_refused() -> None:
    for wrong in (np.zeros((2, 3), np.float32), np.eye(3), np.eye(4, dtype=np.float32)[::2, ::2]):
        with pytest.raises(ValueError, match="C-contiguous float32"):
            symmetric_eigen(wrong)
    with pytest.raises(ValueError, match="not finite"):
        symmetric_eigen(np.full((3, 3), np.nan, np.float32))
