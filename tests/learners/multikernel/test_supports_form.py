"""What OKS and OMKS are served as: the form of any learned matrix, in the space of each kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from learners.block import DenseBlock, TripletBatch
from learners.errors import ConfigError, StateError
from learners.forms.serving import ServingForm
from learners.hedge import HedgeConfig
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel
from learners.multikernel import form as supports
from learners.multikernel.form import AsLearned, SupportsForm, kernel_ends
from learners.oasis import Oasis, OasisConfig

from ..examples import triplets
from ..oracle_kernels import mean, on_view
from ..oracle_step import Doubles, Kernel
from .oracle_form import form_scores
from .setups import DIM, GAMMA, kernel_of

POSITIVE = (KernelConfig("rbf", sigma=0.5), KernelConfig("rbf", sigma=2.0), KernelConfig("cosine"))
EVENTS = 40


def points(seed: int = 5, n: int = 9) -> Doubles:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32).astype(float)


def learned(settings: OmksConfig, events: int = EVENTS) -> Omks:
    learner = Omks(DIM, settings)
    learner.learn_many(triplets(3, events, DIM, "dense"))
    return learner


def oks(kernel: KernelConfig, **more: object) -> Omks:
    return learned(one_kernel(DIM, kernel, GAMMA, triplets=100, objects=300, **more))


def oracle_scores(
    learner: Omks, kernel: Kernel, at: Doubles, power: float = 1.5, centred: bool = True, k: int = 0
) -> Doubles:
    objects, rows, tau = learner.support.compact()
    vectors = objects.astype(float)
    support = [(float(t[k]), *(vectors[i] for i in row)) for row, t in zip(rows, tau, strict=True)]
    return form_scores(kernel, support, at, power, centred)


def learned_cosine(S: Doubles) -> Doubles:
    return S / np.sqrt(np.outer(np.diag(S), np.diag(S)))


@pytest.mark.parametrize("kind", ["rbf", "cosine"])
def test_a_centred_kernel_has_no_direction_to_take_out(kind: str) -> None:
    kernel = KernelConfig(kind, centred=True)  # type: ignore[arg-type]
    objects = np.random.default_rng(3).normal(size=(3 * EVENTS + 9, DIM)).astype(np.float32)
    objects /= np.linalg.norm(objects, axis=1, keepdims=True)
    learner = Omks(DIM, one_kernel(DIM, kernel, triplets=100, objects=300), sample=objects)
    learner.learn_many(TripletBatch(*map(DenseBlock, np.split(objects[:-9], 3))))
    at = objects[-9:].astype(float)
    slow = oracle_scores(learner, kernel_of(kernel, float(learner.gamma[0])), at, 1.0, centred=False)
    form = SupportsForm.from_support(
        learner.support, learner.config, learner.gamma, learner.theta, False, 1.0, rank=200
    )
    np.testing.assert_allclose(form.scores(at, at), slow, atol=2e-3 * np.abs(slow).max())


@pytest.mark.parametrize("kernel", POSITIVE, ids=lambda kernel: f"{kernel.kind}-{kernel.sigma}")
@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_one_kernel_as_the_oracle(kernel: KernelConfig, power: float) -> None:
    learner, at = oks(kernel), points()
    slow = oracle_scores(learner, kernel_of(kernel), at, power)
    form = SupportsForm.from_support(
        learner.support, learner.config, learner.gamma, learner.theta, True, power, rank=200
    )
    np.testing.assert_allclose(form.scores(at, at), learned_cosine(slow), atol=2e-3)


@pytest.mark.parametrize("kernel", POSITIVE, ids=lambda kernel: f"{kernel.kind}-{kernel.sigma}")
def test_a_raw_score_is_not_sharpened(kernel: KernelConfig) -> None:
    learner, at = oks(kernel), points()
    slow = oracle_scores(learner, kernel_of(kernel), at, 1.0)
    form = SupportsForm.from_support(
        learner.support, learner.config, learner.gamma, learner.theta, False, 1.5, rank=200
    )
    np.testing.assert_allclose(form.scores(at, at), slow, atol=2e-3 * np.abs(slow).max())


@pytest.mark.parametrize("kernel", POSITIVE, ids=lambda kernel: f"{kernel.kind}-{kernel.sigma}")
def test_negative_eigenvalues_go(kernel: KernelConfig) -> None:
    """Bold steps make them."""
    learner, at = oks(kernel, C=20.0), points()
    slow = oracle_scores(learner, kernel_of(kernel), at, 1.0)
    form = SupportsForm.from_support(
        learner.support, learner.config, learner.gamma, learner.theta, False, 1.0, rank=200
    )
    np.testing.assert_allclose(form.scores(at, at), slow, atol=5e-3 * np.abs(slow).max())


def test_kept_objects_without_a_view() -> None:
    views = (ViewKernels(0, 5, POSITIVE[1:2], GAMMA), ViewKernels(5, DIM, POSITIVE[1:2], GAMMA))
    learner, at = Omks(DIM, OmksConfig(views, triplets=100, objects=300)), points()
    for number, event in enumerate(np.random.default_rng(1).normal(size=(30, 3, DIM)).astype(np.float32)):
        event[number % 3, :5] *= number % 2
        learner.learn_one(*event)
    slow = sum(
        learner.theta[k] * oracle_scores(learner, on_view(kernel_of(POSITIVE[1]), *edges), at, k=k)
        for k, edges in enumerate(((0, 5), (5, DIM)))
    )
    np.testing.assert_allclose(learner.form().scores(at, at), learned_cosine(slow), atol=2e-3)


def test_several_kernels_are_weighed() -> None:
    hedge = HedgeConfig("given", weights=(1.0, 2.0, 5.0))
    settings = OmksConfig((ViewKernels(0, DIM, POSITIVE, GAMMA),), triplets=100, objects=300, hedge=hedge)
    learner, at = learned(settings), points()
    slow = sum(
        weight / 8 * oracle_scores(learner, kernel_of(kernel), at, 1.5, k=k)
        for k, (weight, kernel) in enumerate(zip(hedge.weights, POSITIVE, strict=True))
    )
    np.testing.assert_allclose(learner.form().scores(at, at), learned_cosine(slow), atol=2e-3)


def test_the_mean_kernel_is_one_kernel() -> None:
    settings = OmksConfig((ViewKernels(0, DIM, POSITIVE, GAMMA),), mean=True, triplets=100, objects=300)
    learner, at = learned(settings), points()
    slow = oracle_scores(learner, mean([kernel_of(kernel) for kernel in POSITIVE]), at)
    np.testing.assert_allclose(learner.form().scores(at, at), learned_cosine(slow), atol=2e-3)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_linear_kernel_has_the_form_of_oasis(normalised: bool) -> None:
    oasis, learner, at = Oasis(DIM, OasisConfig(0.1)), oks(KernelConfig("linear")), points()
    oasis.learn_many(triplets(3, EVENTS, DIM, "dense"))
    expected = ServingForm.from_matrix(oasis.W, normalised).scores(at, at)
    found = learner.form(normalised).scores(at, at)
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_before_any_event_it_is_the_kernels() -> None:
    learner, at = Omks(DIM, one_kernel(DIM, POSITIVE[0], GAMMA)), points()
    np.testing.assert_allclose(learner.form().scores(at, at), learner.similarity(at, at), atol=1e-6)


def test_without_power_it_is_the_similarity_as_learned() -> None:
    learner, at = oks(POSITIVE[0]), points()
    form = learner.form(False, None)
    assert isinstance(form, AsLearned)
    assert np.array_equal(form.scores(at, at), learner.similarity(at, at))


def test_what_is_learned_later_does_not_change_it() -> None:
    learner, at = oks(POSITIVE[0]), points()
    for power in (1.5, None):
        form = learner.form(power=power)
        before = form.scores(at, at)
        learner.learn_many(triplets(4, 20, DIM, "dense"))
        assert np.array_equal(form.scores(at, at), before)


def test_bits_do_not_depend_on_what_else_is_asked() -> None:
    form, many = oks(POSITIVE[1]).form(), points(6, 77)
    together = form.scores(many[:40], many)
    assert np.array_equal(form.scores(many[33:34], many[50:53]), together[33:34, 50:53])

    def by_one(count: int):
        return (slice(at, at + 1) for at in range(count))

    assert np.array_equal(form.self_scores(many, by_one), form.self_scores(many))
    assert np.array_equal(form.self_scores(many[50:51]), form.self_scores(many)[50:51])


def test_features_give_the_scores() -> None:
    form, at = oks(POSITIVE[1]).form(), DenseBlock(points().astype(np.float32))
    features = form.features(at)
    assert np.array_equal(form.pair_scores(at, features, at, features), form.scores(at, at))


def test_an_object_without_the_view_has_nothing_in_common() -> None:
    views = (ViewKernels(0, 5, POSITIVE, GAMMA), ViewKernels(5, DIM, POSITIVE, GAMMA))
    at = points()
    at[0, :5], at[1, 5:] = 0, 0
    scores = learned(OmksConfig(views, triplets=100, objects=300)).form().scores(at, at)
    assert scores[0, 1] == 0
    assert np.allclose(np.diag(scores), 1, atol=1e-5)


def test_stored_and_read_back() -> None:
    learner, at = oks(POSITIVE[0]), points()
    for power in (1.5, None):
        form = learner.form(power=power)
        again = type(form).from_arrays(form.arrays(), learner.config)
        assert np.array_equal(again.scores(at, at), form.scores(at, at))


@pytest.mark.parametrize("name", ["gamma", "objects", "theta", "vectors", "values", "normalised"])
def test_a_missing_or_damaged_array_is_named(name: str) -> None:
    learner = oks(POSITIVE[0])
    arrays = learner.form().arrays()
    with pytest.raises(StateError, match=name):
        SupportsForm.from_arrays({key: arrays[key] for key in arrays if key != name}, learner.config)
    if arrays[name].ndim:
        with pytest.raises(StateError, match=name):
            SupportsForm.from_arrays({**arrays, name: arrays[name] * np.nan}, learner.config)


def test_too_many_objects_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supports, "MOST_OBJECTS", 5)
    with pytest.raises(ConfigError, match=r"at most 5 .*objects"):
        oks(POSITIVE[0]).form()


@pytest.mark.parametrize("rank", [1, 3, 300])
def test_ends_of_the_spectrum(rank: int) -> None:
    """Also where the Gram matrix is singular: 60 objects in 20 dimensions."""
    rng = np.random.default_rng(1)
    phi, M = rng.normal(size=(60, 20)), rng.normal(size=(60, 60))
    M = (M + M.T) / 2
    W = phi.T @ M @ phi
    exact = np.linalg.eigvalsh(W)
    exact = exact[np.argsort(-np.abs(exact))][:rank]
    values, y = kernel_ends(phi @ phi.T, sparse.csr_array(M), rank)
    np.testing.assert_allclose(values, exact, rtol=1e-5)
    u = phi.T @ y
    np.testing.assert_allclose(u.T @ u, np.eye(len(values)), atol=1e-4)
    np.testing.assert_allclose(W @ u, u * exact, atol=1e-4 * np.abs(exact).max())
