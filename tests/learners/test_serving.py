"""The serving form is symmetric and PSD, scores as the formulas say, and keeps memory bounded at high
dimension."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import (
    BlockError,
    ConfigError,
    Oasis,
    OasisConfig,
    ServingForm,
    SparseBlock,
    StateError,
    factor,
    lanczos_negative_pairs,
    project_psd,
)
from learners.psd import psd_part
from tests.learners import oracle

from .examples import Floats, block, dense, rows, triplets

KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])
DIM = 30


def learned(seed: int = 0, dim: int = DIM) -> Floats:
    """A W after enough clicks to have negative eigenvalues."""
    learner = Oasis(dim, OasisConfig(C=5.0))
    learner.learn_many(triplets(seed, 600, dim, "dense"))
    assert np.linalg.eigvalsh(learner.W + learner.W.T)[0] < -0.1
    return learner.W


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 25), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40, deadline=None)
def test_projection_is_the_nearest_psd_matrix(seed: int, dim: int, scale: float) -> None:
    W = (scale * np.random.default_rng(seed).standard_normal((dim, dim))).astype(np.float32)
    kept = W.copy()
    projected = project_psd(W)
    np.testing.assert_array_equal(W, kept)
    np.testing.assert_array_equal(projected, projected.T)
    size = np.abs(W).max()
    np.testing.assert_allclose(projected, oracle.psd(W.astype(float)), atol=1e-5 * size * dim)
    assert np.linalg.eigvalsh(projected.astype(float))[0] >= -1e-5 * size * dim


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("dim", [1, 30, 300])
def test_sharpening_in_float32_is_within_1e5_of_float64(power: float, dim: int) -> None:
    rng = np.random.default_rng(dim)
    W = (np.eye(dim) + rng.standard_normal((dim, dim)) / np.sqrt(dim)).astype(np.float32)
    expected = oracle.psd(W.astype(float), power)
    sharpened = project_psd(W, power)
    np.testing.assert_array_equal(sharpened, sharpened.T)
    assert np.linalg.norm(sharpened - expected) <= 1e-5 * np.linalg.norm(expected)
    values = np.linalg.eigvalsh(sharpened.astype(float))
    assert values[0] >= -1e-5 * values[-1]


@pytest.mark.parametrize("scale", [1e-36, 1e-20, 1e20, 1e36])
def test_sharpening_keeps_the_scale_and_the_range_of_float32(scale: float) -> None:
    W = np.random.default_rng(0).standard_normal((20, 20)).astype(np.float32)
    expected = oracle.psd(W.astype(float), 3.0)
    scaled = project_psd(W * np.float32(scale), 3.0).astype(float) / scale
    assert np.linalg.norm(scaled - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_account_of_what_was_removed(power: float) -> None:
    part, removed = psd_part(np.diag(np.float32([4, 1, 0, -2, -1])), power)
    assert removed.negatives == 2
    assert removed.share == pytest.approx(3 / 8)
    np.testing.assert_allclose(np.diag(part), [4, 4 * 0.25**power, 0, 0, 0], atol=1e-6)
    for W, negatives in ((np.zeros((3, 3), np.float32), 0), (-np.eye(3, dtype=np.float32), 3)):
        part, removed = psd_part(W, power)
        assert removed.negatives == negatives
        np.testing.assert_allclose(part, 0, atol=1e-6)


@pytest.mark.parametrize("power", [0.0, -1.0, np.nan, np.inf])
def test_a_power_that_is_none_is_refused(power: float) -> None:
    with pytest.raises(ConfigError, match="power"):
        project_psd(learned(), power)


def test_projection_leaves_a_psd_matrix_alone() -> None:
    A = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    S = A @ A.T
    S = (S + S.T) / 2
    np.testing.assert_array_equal(project_psd(S), S)
    np.testing.assert_array_equal(project_psd(np.float32(3.3) * S), np.float32(3.3) * S)
    np.testing.assert_array_equal(project_psd(np.zeros((3, 3), np.float32)), np.zeros((3, 3)))


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_projection_repeats_to_the_bit(power: float) -> None:
    assert project_psd(learned(), power).tobytes() == project_psd(learned(), power).tobytes()


def test_factor_embeds_with_the_learned_inner_product() -> None:
    W = learned()
    A = factor(W)
    np.testing.assert_allclose(A.T @ A, project_psd(W), atol=1e-4)
    assert A.shape[0] == np.sum(np.linalg.eigvalsh((W + W.T).astype(float)) > 1e-5)


def test_dimensions_too_large_to_decompose_are_refused() -> None:
    large = np.zeros((4097, 4097), np.float32)
    for refuse in (project_psd, factor):
        with pytest.raises(ConfigError, match="4096"):
            refuse(large)


@KINDS
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_scores_equal_the_oracle(kind: str, normalised: bool, full: bool) -> None:
    W, rng = learned(), np.random.default_rng(1)
    queries, items = rows(rng, 7, DIM), rows(rng, 11, DIM)
    items[3] = 0
    negatives = int(np.sum(np.linalg.eigvalsh((W + W.T).astype(float)) < 0))
    form = ServingForm.from_matrix(W, normalised, full_up_to=4096 if full else 0, pairs=negatives)
    assert (form.matrix is None) == (not full)
    assert form.power == (1.5 if full and normalised else 1.0)
    assert form.removed is not None
    assert form.removed.negatives == negatives
    assert (form.removed.share is None) == (not full)
    S = oracle.psd(W.astype(float), 1.5 if full and normalised else 1.0)
    raw = queries @ S @ items.T
    expected = oracle.normalised(S, queries, items) if normalised else raw
    left, right = block(queries, kind), block(items, kind)
    np.testing.assert_allclose(form.scores(left, right), expected, atol=2e-3)
    np.testing.assert_allclose(form.fold(left), queries @ S, atol=1e-3)
    np.testing.assert_allclose(form.fold(left) @ items.T, raw, atol=1e-3)
    np.testing.assert_allclose(form.self_scores(right), np.einsum("nd,de,ne->n", items, S, items), atol=1e-3)
    assert np.all(form.scores(left, right)[:, 3] == 0)


@KINDS
def test_normalised_scores_are_cosines(kind: str) -> None:
    vectors = block(rows(np.random.default_rng(2), 20, DIM, 1.0), kind)
    scores = ServingForm.from_matrix(learned()).scores(vectors, vectors)
    assert np.abs(scores).max() <= 1 + 1e-5
    np.testing.assert_allclose(np.diag(scores), 1, atol=1e-5)
    np.testing.assert_allclose(scores, scores.T, atol=1e-5)


@pytest.mark.parametrize("power", [1.0, 1.5, 3.0])
def test_the_untrained_form_is_the_cosine(power: float) -> None:
    vectors = rows(np.random.default_rng(2), 20, DIM, 1.0)
    form = ServingForm.from_matrix(Oasis(DIM).W, power=power)
    assert form.matrix is not None
    np.testing.assert_allclose(form.matrix, np.eye(DIM), atol=1e-6)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(form.scores(vectors, vectors), unit @ unit.T, atol=1e-5)


def test_lanczos_finds_the_most_negative_pairs_and_no_positive_one() -> None:
    W = learned()
    values, vectors = oracle.negative_pairs(W.astype(float))
    few, few_vectors = lanczos_negative_pairs(W, 3)
    np.testing.assert_allclose(few, values[:3], rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.sum(few_vectors * vectors[:, :3], axis=0)), 1, atol=1e-2)
    every, _ = lanczos_negative_pairs(W, DIM - 1)
    assert len(every) == len(values)
    none, empty = lanczos_negative_pairs(np.eye(DIM, dtype=np.float32), 3)
    assert (len(none), empty.shape) == (0, (DIM, 0))
    assert lanczos_negative_pairs(W, 3)[1].tobytes() == few_vectors.tobytes()


@pytest.mark.parametrize("k", [0, DIM])
def test_lanczos_needs_a_sensible_number_of_pairs(k: int) -> None:
    with pytest.raises(ConfigError, match="eigenpairs"):
        lanczos_negative_pairs(learned(), k)


def test_a_negative_self_score_is_clipped_and_scores_nothing() -> None:
    W = np.diag(np.float32([1, 1, 1, -5, -4]))
    form = ServingForm.from_matrix(W, full_up_to=0, pairs=1)
    items = np.eye(5, dtype=np.float32)
    np.testing.assert_allclose(form.self_scores(items), [1, 1, 1, 0, 0], atol=1e-5)
    assert np.all(form.scores(items, items)[:, 4] == 0)
    assert np.isfinite(form.scores(items, items)).all()


@KINDS
@pytest.mark.parametrize("full", [True, False])
def test_many_rows_are_scored_in_blocks_alike(kind: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    form = ServingForm.from_matrix(learned(), full_up_to=4096 if full else 0, pairs=5)
    left, right = block(rows(rng, 23, DIM), kind), block(rows(rng, 5, DIM), kind)
    whole = form.scores(left, right)
    monkeypatch.setattr("learners.block.BLOCK_FLOATS", 4 * DIM)
    np.testing.assert_allclose(form.scores(left, right), whole, atol=1e-6)


@pytest.mark.parametrize("full", [True, False])
def test_arrays_round_trip(full: bool) -> None:
    W = learned()
    form = ServingForm.from_matrix(W, full_up_to=4096 if full else 0, pairs=5)
    again = ServingForm.from_arrays(form.arrays(), None if full else W)
    vectors = rows(np.random.default_rng(4), 6, DIM)
    assert again.scores(vectors, vectors).tobytes() == form.scores(vectors, vectors).tobytes()
    assert again.normalised == form.normalised
    assert ("matrix" in form.arrays()) == full


def test_arrays_that_are_no_form_are_refused_by_name() -> None:
    arrays = ServingForm.from_matrix(learned()).arrays()
    for name in ("correction_vectors", "correction_values", "normalised"):
        with pytest.raises(StateError, match=name):
            ServingForm.from_arrays({key: array for key, array in arrays.items() if key != name})
    with pytest.raises(StateError, match="state_matrix"):
        ServingForm.from_arrays({key: array for key, array in arrays.items() if key != "matrix"})
    for bad in (arrays["matrix"].astype(float), arrays["matrix"][0], arrays["matrix"] * np.float32(np.nan)):
        with pytest.raises(StateError, match="matrix"):
            ServingForm.from_arrays({**arrays, "matrix": bad})
    with pytest.raises(StateError, match="shape"):
        ServingForm.from_arrays({**arrays, "matrix": arrays["matrix"][:3, :3]})


@pytest.mark.parametrize("full", [True, False])
def test_a_bad_index_is_refused_before_it_is_used(full: bool) -> None:
    form = ServingForm.from_matrix(learned(), full_up_to=4096 if full else 0, pairs=5)
    bad = SparseBlock(np.array([0, 1]), np.array([DIM], np.int32), np.ones(1, np.float32), DIM)
    good = block(np.ones((1, DIM), np.float32), "sparse")
    for call in (form.fold, form.self_scores, lambda x: form.scores(good, x), lambda x: form.scores(x, good)):
        with pytest.raises(BlockError, match="row 0"):
            call(bad)
    with pytest.raises(BlockError, match="dimensions"):
        form.fold(dense(good)[:, :4])
