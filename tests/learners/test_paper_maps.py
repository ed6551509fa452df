"""Maps as the papers print them: idf of the plain logarithm, principal directions that are not whitened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from learners import MapError, PcaMap, SpaceMap, TfidfMap, ViewConfig, WhitenMap, as_block
from learners.block import SparseBlock

from .oracle import unit

N, DIM = 60, 9


def counts() -> np.ndarray:
    """Term counts; of the last columns one is in every row and one in none."""
    rng = np.random.default_rng(0)
    made = rng.poisson(2.0, (N, DIM)) * (rng.random((N, DIM)) < 0.4)
    made[:, -2], made[:, -1] = 3, 0
    return made.astype(np.float32)


def rows() -> np.ndarray:
    """Vectors away from 0 with columns of different spread."""
    rng = np.random.default_rng(1)
    return (rng.standard_normal((N, DIM)) @ rng.standard_normal((DIM, DIM)) + 5).astype(np.float32)


def principal(sample: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and the eigenvectors of largest variance, as columns; their signs are free."""
    mean = sample.astype(float).mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((sample - mean).T))
    return mean, vectors[:, np.argsort(-values)[:kept]]


def dense(block: Any) -> np.ndarray:
    return np.asarray(block.checked_csr().toarray() if isinstance(block, SparseBlock) else block.values)


def test_plain_idf_is_minus_the_logarithm_of_the_share_of_rows() -> None:
    sample = counts()
    fitted = TfidfMap.fit(as_block(sparse.csr_array(sample)), {"idf": "plain"})
    held = (sample > 0).sum(axis=0)
    expected = -np.log(np.maximum(held, 1) / N)
    assert expected[-2] == 0
    assert expected[-1] == np.log(N)
    np.testing.assert_allclose(fitted.idf, expected, rtol=1e-6)
    asked = counts()[:7]
    asked[0, -1] = 2
    mapped = dense(fitted.transform(as_block(sparse.csr_array(asked))))
    np.testing.assert_allclose(mapped, [unit(row * expected) for row in asked.astype(float)], atol=1e-6)


def test_the_usual_idf_is_what_it_was_and_says_nothing_of_options() -> None:
    sample = as_block(sparse.csr_array(counts()))
    usual = TfidfMap.fit(sample, {})
    assert usual.spec() == {"dim_in": DIM}
    assert TfidfMap.fit(sample, {"idf": "smooth"}).spec() == usual.spec()
    assert usual.metric() is not None
    held = (counts() > 0).sum(axis=0)
    np.testing.assert_allclose(usual.idf, np.log((1 + N) / (1 + held)) + 1, rtol=1e-6)


def test_a_plain_map_is_read_back_and_has_an_identity_of_its_own() -> None:
    sample = sparse.csr_array(counts())
    plain = SpaceMap({"x": ViewConfig("tfidf", {"idf": "plain"})}).fit(sample)
    assert plain.id != SpaceMap({"x": ViewConfig("tfidf")}).fit(sample).id
    again = type(plain).load(plain.spec(), plain.arrays())
    assert again.id == plain.id
    assert dense(again.transform(sample)).tobytes() == dense(plain.transform(sample)).tobytes()


def test_where_a_term_counts_for_nothing_the_own_ranking_is_lost() -> None:
    sample = counts()
    assert TfidfMap.fit(as_block(sparse.csr_array(sample)), {"idf": "plain"}).metric() is None
    sample[0, -2] = 0
    assert TfidfMap.fit(as_block(sparse.csr_array(sample)), {"idf": "plain"}).metric() is not None


def test_pca_is_that_of_the_covariance_and_of_scikit_learn() -> None:
    sample = rows()
    fitted = PcaMap.fit(as_block(sample), {"components": 4})
    assert (fitted.dim_in, fitted.dim) == (DIM, 4)
    mean, vectors = principal(sample, 4)
    mapped = dense(fitted.transform(as_block(sample[:9])))
    expected = (sample[:9] - mean) @ vectors
    np.testing.assert_allclose(np.abs(mapped), np.abs(expected), atol=1e-4)
    np.testing.assert_allclose(mapped @ mapped.T, expected @ expected.T, atol=1e-3)
    np.testing.assert_allclose(mapped, PCA(4).fit(sample.astype(float)).transform(sample[:9]), atol=1e-4)
    np.testing.assert_allclose(fitted.components.T @ fitted.components, np.eye(4), atol=1e-6)


def test_it_is_not_whitened() -> None:
    sample = as_block(rows())
    spread = dense(PcaMap.fit(sample, {}).transform(sample)).std(axis=0)
    assert spread[0] > 3 * spread[-1]
    white = dense(WhitenMap.fit(sample, {"epsilon": 0.0}).transform(sample)).std(axis=0)
    np.testing.assert_allclose(white, 1, atol=0.05)


def test_pca_then_unit_length_is_read_back_to_the_bit() -> None:
    maps, sample = [ViewConfig("pca", {"components": 3}), ViewConfig("unit")], rows()
    fitted = SpaceMap({"x": ViewConfig("chain", {"maps": maps})}).fit(sample)
    mapped = dense(fitted.transform(sample))
    mean, vectors = principal(sample, 3)
    expected = np.array([unit(row) for row in (sample - mean) @ vectors])
    np.testing.assert_allclose(mapped @ mapped.T, expected @ expected.T, atol=1e-4)
    again = type(fitted).load(fitted.spec(), fitted.arrays())
    assert again.id == fitted.id
    assert dense(again.transform(sample)).tobytes() == mapped.tobytes()


def test_a_missing_view_stays_missing() -> None:
    fitted = PcaMap.fit(as_block(rows()), {})
    assert not dense(fitted.transform(as_block(np.zeros((2, DIM), np.float32)))).any()


@pytest.mark.parametrize(
    ("fit", "options", "message"),
    [
        (lambda options: PcaMap.fit(as_block(rows()), options), {"components": 0}, "components of pca"),
        (lambda options: PcaMap.fit(as_block(rows()), options), {"epsilon": 0.3}, "no option 'epsilon'"),
        (lambda options: PcaMap.fit(as_block(np.ones((5, 3), np.float32)), options), {}, "map pca needs"),
        (
            lambda options: TfidfMap.fit(as_block(sparse.csr_array(counts())), options),
            {"idf": "log"},
            'idf of the map tfidf must be "smooth" or "plain"',
        ),
    ],
)
def test_what_makes_no_map_is_refused(fit: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(MapError, match=message):
        fit(options)
