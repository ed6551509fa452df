"""A space that knows what the user's index computes answers with exactly that, whatever its columns are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from learners import (
    KINDS,
    DenseBlock,
    DiagonalForm,
    Dissim,
    DissimConfig,
    FittedSpaceMap,
    Lego,
    LegoConfig,
    MapError,
    Oasis,
    OasisConfig,
    OmksMaps,
    OmksMapsConfig,
    ServingForm,
    SomlDa,
    SomlDaConfig,
    SpaceMap,
    TetherConfig,
    Tethered,
    ViewConfig,
)
from learners.forms.serving import Beside
from learners.maps.base import OwnRanking, first_diagonal
from learners.maps.space import fit_map

from .examples import dense

Doubles = NDArray[np.float64]
RNG = np.random.default_rng
N = 80

UNIT, PLAIN, WHOLE = ViewConfig("unit"), ViewConfig("identity"), ViewConfig("precondition")


def chain(*maps: ViewConfig) -> ViewConfig:
    return ViewConfig("chain", {"maps": list(maps)})


def embeddings(n: int = N, dim: int = 24, seed: int = 0) -> NDArray[np.float32]:
    """Correlated columns of unlike sizes, all pointing one way: as embeddings are, and worse."""
    rng = RNG(seed)
    mixed = rng.standard_normal((n, dim)) @ (rng.standard_normal((dim, dim)) * np.geomspace(1, 1e-3, dim))
    return (3 * (mixed + 1.5)).astype(np.float32)


def counts(n: int = N, dim: int = 30, seed: int = 1) -> sparse.csr_array:
    found = sparse.random_array((n, dim), density=0.2, format="csr", rng=RNG(seed), dtype=np.float32)
    found.data = np.ceil(4 * found.data)
    return sparse.csr_array(found)


def raw(view: Any) -> Doubles:
    return np.asarray(view.toarray() if sparse.issparse(view) else view, np.float64)


def by_numpy(similarity: str, views: dict[str, Any], weights: dict[str, float]) -> Doubles:
    """What the index computes: of every object with every other, in float64 on the vectors as given."""
    total: Any = 0.0
    held: Any = 0.0
    for name, view in views.items():
        rows, weight = raw(view), weights.get(name, 1.0)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if similarity == "cosine":
            rows = rows / np.where(lengths > 0, lengths, 1)
            held = held + weight * (lengths > 0)
        if similarity == "euclidean":
            total = total - weight * np.square(rows[:, None] - rows[None]).sum(axis=2)
        else:
            total = total + weight * (rows @ rows.T)
    if similarity == "cosine":  # of the joined vectors, each of unit length times the root of its weight
        total = total / np.sqrt(np.where(held > 0, held, 1)) / np.sqrt(np.where(held > 0, held, 1)).T
    return np.asarray(total)


BOTH = {"text": embeddings(), "words": counts()}
TWO = {"a": embeddings(), "b": embeddings(dim=7, seed=5)}
WEIGHTS = {"text": 0.7, "words": 2.0, "a": 3.0, "b": 0.25}

SPACES: dict[str, tuple[dict[str, ViewConfig], dict[str, Any]]] = {
    "one": ({"x": WHOLE}, {"x": embeddings()}),
    "few rows": ({"x": WHOLE}, {"x": embeddings(n=10)}),
    "one, unit first": ({"x": chain(UNIT, WHOLE)}, {"x": embeddings()}),
    "as it is": ({"x": PLAIN}, {"x": embeddings()}),
    "sparse": ({"x": PLAIN}, {"x": counts()}),
    "sparse, unit": ({"x": UNIT}, {"x": counts()}),
    "tfidf": ({"x": ViewConfig("tfidf")}, {"x": counts()}),
    "tfidf of unit": ({"x": chain(UNIT, ViewConfig("tfidf"))}, {"x": counts()}),
    "two": ({"a": chain(UNIT, WHOLE), "b": chain(UNIT, WHOLE)}, TWO),
    "two as they are": ({"a": WHOLE, "b": PLAIN}, TWO),
    "mixed": ({"text": chain(UNIT, WHOLE), "words": UNIT}, BOTH),
    "mixed as they are": ({"text": WHOLE, "words": PLAIN}, BOTH),
}
COSINES = [name for name in SPACES if "as they are" not in name]
LENGTHS = [name for name in SPACES if "unit" not in name and name not in {"tfidf", "two", "mixed"}]


def fitted(name: str, similarity: str, by_block: bool = False) -> tuple[FittedSpaceMap, dict[str, Any]]:
    plan, views = SPACES[name]
    weights = {view: WEIGHTS[view] for view in plan if view in WEIGHTS}
    made = SpaceMap(plan, by_block=by_block, similarity=similarity, weights=weights)  # type: ignore[arg-type]
    return made.fit(views), views


@pytest.mark.parametrize("by_block", [False, True])
@pytest.mark.parametrize(
    ("similarity", "name"),
    [("cosine", name) for name in COSINES]
    + [(one, name) for one in ("inner_product", "euclidean") for name in LENGTHS],
)
def test_the_own_ranking_is_that_of_numpy_on_the_given_vectors(
    similarity: str, name: str, by_block: bool
) -> None:
    space, views = fitted(name, similarity, by_block)
    own = space.own
    assert own is not None
    rows = space.transform(views)
    expected = by_numpy(similarity, views, WEIGHTS)
    scores = own.form().scores(rows, rows)
    size = np.abs(expected).max()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6 * size)


def test_a_view_that_is_missing_costs_nothing_but_itself() -> None:
    views = {"a": TWO["a"].copy(), "b": TWO["b"].copy()}
    views["b"][::3] = 0
    plan = SpaceMap(
        {"a": chain(UNIT, WHOLE), "b": chain(UNIT, WHOLE)}, similarity="cosine", weights={"a": 2.0}
    )
    space = plan.fit(views)
    assert space.own is not None
    rows = space.transform(views)
    expected = by_numpy("cosine", views, {"a": 2.0})
    np.testing.assert_allclose(space.own.form().scores(rows, rows), expected, atol=2e-6)


@pytest.mark.parametrize("name", [name for name, (plan, _) in SPACES.items() if len(plan) > 1])
def test_joined_rows_are_as_long_as_a_learner_wants_them(name: str) -> None:
    for similarity in ("cosine", "inner_product"):
        if name not in (COSINES if similarity == "cosine" else LENGTHS):
            continue
        space, views = fitted(name, similarity)
        squares = np.square(dense(space.transform(views)).astype(np.float64)).sum(axis=1)
        assert np.mean(squares) == pytest.approx(1, rel=1e-5)
        if similarity == "cosine":
            np.testing.assert_allclose(squares, 1, rtol=1e-5)


def test_preconditioned_views_weigh_by_what_they_hold() -> None:
    """One that varies in one direction alone weighs as much as its effective dimension."""
    rng = RNG(3)
    flat = np.outer(rng.standard_normal(N), rng.standard_normal(20)).astype(np.float32)
    views = {"rich": rng.standard_normal((N, 20)).astype(np.float32), "flat": flat}
    plan = dict.fromkeys(views, chain(UNIT, WHOLE))
    rows = dense(SpaceMap(plan, similarity="cosine").fit(views).transform(views))
    shares = np.square(rows).mean(axis=0)
    # v / (v + epsilon m) is 1 for the one direction, and a half for each of 20 alike
    assert shares[20:].sum() / shares[:20].sum() == pytest.approx(1 / 10, rel=0.1)


def test_preconditioning_loses_nothing() -> None:
    made = fit_map(WHOLE, DenseBlock(embeddings()))
    z = made.transform(DenseBlock(embeddings())).values.astype(np.float64)  # type: ignore[union-attr]
    back = z @ (made.components.astype(np.float64) * made.weights).T  # type: ignore[attr-defined]
    np.testing.assert_allclose(back, embeddings(), atol=2e-6 * np.abs(embeddings()).max())


def test_preconditioned_columns_are_as_large_as_epsilon_leaves_them() -> None:
    rows = embeddings(n=500)
    made = fit_map(ViewConfig("precondition", {"epsilon": 0.2}), DenseBlock(rows))
    z = made.transform(DenseBlock(rows)).values.astype(np.float64)  # type: ignore[union-attr]
    exact = rows.astype(np.float64)
    mean, moments = exact.mean(axis=0), np.diag(z.T @ z / len(z))
    along = exact @ (mean / np.linalg.norm(mean))
    values = np.sort(
        np.linalg.eigvalsh(
            np.cov(exact - np.outer(along, mean / np.linalg.norm(mean)), rowvar=False, bias=True)
        )
    )
    values = np.concatenate([[np.mean(along**2)], values[:0:-1]])  # the mean direction, and what is left
    np.testing.assert_allclose(moments, values / (values + 0.2 * values[1:].mean()), atol=1e-4)
    rest = (z.T @ z / len(z))[1:, 1:]
    np.testing.assert_allclose(rest - np.diag(np.diag(rest)), 0, atol=1e-4)
    np.testing.assert_allclose(z.mean(axis=0)[1:], 0, atol=1e-4)  # of the mean, in the first column alone


LOSSY: dict[str, tuple[str, dict[str, ViewConfig], dict[str, Any]]] = {
    "whiten": ("cosine", {"x": ViewConfig("whiten")}, {"x": embeddings()}),
    "standardise": ("cosine", {"x": ViewConfig("standardise")}, {"x": embeddings()}),
    "precondition twice": ("cosine", {"x": chain(WHOLE, WHOLE)}, {"x": embeddings()}),
    "rff": ("cosine", {"x": ViewConfig("rff")}, {"x": embeddings()}),
    "lengths lost": ("inner_product", {"x": UNIT}, {"x": embeddings()}),
    "lengths lost on the way": ("euclidean", {"x": chain(UNIT, WHOLE)}, {"x": embeddings()}),
    "one of two": ("cosine", {"a": chain(UNIT, WHOLE), "b": ViewConfig("whiten")}, TWO),
    "lengths of views differ": ("cosine", {"text": chain(UNIT, WHOLE), "words": ViewConfig("tfidf")}, BOTH),
    "unit in another metric": ("cosine", {"a": chain(WHOLE, UNIT), "b": UNIT}, TWO),
}


@pytest.mark.parametrize("name", LOSSY)
def test_maps_that_lose_something_are_told(name: str) -> None:
    similarity, plan, views = LOSSY[name]
    assert SpaceMap(plan, similarity=similarity).fit(views).own is None  # type: ignore[arg-type]
    assert SpaceMap(plan).fit(views).own is None


def test_a_row_scaled_after_preconditioning_is_no_loss_for_one_cosine() -> None:
    views = {"x": embeddings()}
    space = SpaceMap({"x": chain(WHOLE, UNIT)}, similarity="cosine").fit(views)
    assert space.own is not None
    rows = space.transform(views)
    np.testing.assert_allclose(
        space.own.form().scores(rows, rows), by_numpy("cosine", views, {}), rtol=0, atol=2e-6
    )


@pytest.mark.parametrize("weights", [{"y": 1.0}, {"x": 0.0}, {"x": -1.0}, {"x": np.inf}])
def test_weights_belong_to_views_and_are_above_zero(weights: dict[str, float]) -> None:
    with pytest.raises(MapError, match="weight"):
        SpaceMap({"x": UNIT}, similarity="cosine", weights=weights).fit({"x": embeddings()})


def test_what_a_similarity_adds_is_loaded_again_and_refused_where_it_is_wrong() -> None:
    space = fitted("two", "cosine")[0]
    again = FittedSpaceMap.load(space.spec(), space.arrays())
    assert again.id == space.id
    assert again.own is not None
    assert space.own is not None
    np.testing.assert_array_equal(again.own.metric, space.own.metric)
    for changes in (
        {"similarity": "dice"},
        {"similarity": ""},
        {"weights": {}},
        {"scales": {"a": 1, "b": 0}},
        {"self_score": 0},
    ):
        with pytest.raises(MapError):
            FittedSpaceMap.load({**space.spec(), **changes}, space.arrays())
    arrays = {**space.arrays(), "a.1.weights": -space.arrays()["a.1.weights"]}
    with pytest.raises(MapError, match="weights"):
        FittedSpaceMap.load(space.spec(), arrays)


METRIC = np.array([4.0, 1.0, 0.5, 0.5], np.float32)
OWN = OwnRanking("cosine", METRIC, 1.5)


def test_learning_begins_where_it_is_told() -> None:
    scaled = METRIC / np.float32(1.5)
    np.testing.assert_allclose(first_diagonal(OWN, "own"), scaled)
    np.testing.assert_allclose(first_diagonal(OWN, "mean"), (scaled + 1) / 2)
    np.testing.assert_array_equal(first_diagonal(OWN, "auto"), first_diagonal(OWN, "mean"))
    assert first_diagonal(OwnRanking("cosine", METRIC, 1.5, 2), "auto") is None
    assert first_diagonal(OWN, "identity") is None
    assert first_diagonal(None, "own") is None
    assert first_diagonal(OwnRanking("cosine", np.full(3, 7, np.float32), 7.0), "own") is None


@pytest.mark.parametrize("similarity", ["cosine", "inner_product", "euclidean"])
@pytest.mark.parametrize("name", ["one", "as it is", "two", "two as they are", "mixed", "mixed as they are"])
def test_the_scaled_metric_gives_rows_a_mean_self_score_of_one(similarity: str, name: str) -> None:
    if name not in (COSINES if similarity == "cosine" else LENGTHS):
        return
    space, views = fitted(name, similarity)
    assert space.own is not None
    squares = np.square(dense(space.transform(views)).astype(np.float64))
    about = 0.25 if similarity == "cosine" else 1e-4  # the mean of a share is not the share of means
    assert np.mean(squares @ space.own.scaled()) == pytest.approx(1, rel=about)


START = np.array([2.0, 0.5, 1.0, 0.25], np.float32)
TRIPLET = [np.array([row], np.float32) for row in ([1, 0, 0.5, 0], [0, 1, 0, 0], [1, 0, 0, 1])]
MATRICES: dict[str, Any] = {
    "oasis": lambda start: Oasis(4, OasisConfig(start=start)),
    "dissim": lambda start: Dissim(4, DissimConfig(start=start)),
    "lego": lambda start: Lego(4, LegoConfig(start=start)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_begins_from_the_diagonal_it_is_given(name: str) -> None:
    learner, plain = MATRICES[name](START), MATRICES[name](None)
    np.testing.assert_array_equal(learner.W, np.diag(START))
    np.testing.assert_array_equal(plain.W, np.eye(4))
    learner.learn_one(*TRIPLET)
    assert not np.array_equal(learner.W, np.diag(START))
    np.testing.assert_array_equal(learner.clone().W, learner.W)


def test_blocks_begin_from_the_diagonals_they_are_given() -> None:
    learner = OmksMaps(4, OmksMapsConfig((3, 1), start=START))
    np.testing.assert_array_equal(learner.matrices[0], np.diag(START[:3]))
    np.testing.assert_array_equal(learner.matrices[1], START[3:].reshape(1, 1))


def test_a_tether_pulls_to_where_learning_began() -> None:
    for inner in (OasisConfig(start=START), OmksMapsConfig((3, 1), start=START)):
        learner = Tethered(4, TetherConfig(inner, every=1, decay=0.5))
        before = learner.W.copy()
        free = type(learner.learner)(4, inner)
        free.learn_one(*TRIPLET)
        learner.learn_one(*TRIPLET)
        assert not np.array_equal(free.W, before)
        np.testing.assert_allclose(learner.W - before, (free.W - before) / 2, atol=1e-7)
        near = Tethered(4, TetherConfig(inner, every=1, radius=0.01))
        near.learn_one(*TRIPLET)
        if isinstance(inner, OasisConfig):
            assert np.linalg.norm(near.W - before) == pytest.approx(0.01, rel=1e-5)


def test_soml_serves_what_it_was_given_beside_what_it_learns() -> None:
    learner = SomlDa(4, SomlDaConfig(start=START))
    np.testing.assert_array_equal(learner.form().weights, START)
    plain = SomlDa(4)
    for one in (learner, plain):
        one.learn_one(*TRIPLET)
    np.testing.assert_allclose(learner.form().weights - START, plain.form().weights - 1, atol=1e-6)


@pytest.mark.parametrize("start", [START[:3], START.astype(np.float64), -START, START * np.float32(np.nan)])
def test_what_is_no_start_is_refused(start: Any) -> None:
    with pytest.raises(ValueError, match="start"):
        Oasis(4, OasisConfig(start=start))


def test_a_share_of_the_own_ranking_is_mixed_in_by_its_trace() -> None:
    W = np.diag([1.0, 2, 3, 4]).astype(np.float32)
    W[0, 1] = W[1, 0] = 0.5
    plain = ServingForm.from_matrix(W, power=1.0)
    mixed = ServingForm.from_matrix(W, power=1.0, beside=Beside(METRIC, 0.3))
    assert plain.matrix is not None
    assert mixed.matrix is not None
    added = mixed.matrix.astype(np.float64) - plain.matrix
    np.testing.assert_allclose(added, np.diag(0.3 * 10 / 6 * METRIC.astype(np.float64)), atol=1e-6)


def test_a_diagonal_distance_is_minus_the_squared_one() -> None:
    form = DiagonalForm(METRIC, False, True)
    Q, P = RNG(1).standard_normal((2, 6, 4)).astype(np.float32)
    expected = -((Q[:, None] - P[None]).astype(np.float64) ** 2 @ METRIC)
    np.testing.assert_allclose(form.scores(Q, P), expected, rtol=1e-5)
    found = form.fold(Q) @ P.T - form.self_scores(P) - form.self_scores(Q)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    slim = DiagonalForm(METRIC, False, True).scores(sparse.csr_array(Q), sparse.csr_array(P))
    np.testing.assert_allclose(slim, expected, rtol=1e-5)


def test_every_map_says_what_it_does_to_the_inner_product() -> None:
    """A map without a metric of its own is one that loses something: no silent cosine after it."""
    made = (ViewConfig(name) for name in KINDS if name not in {"chain", "kernels"})
    fitted = [
        fit_map(one, counts() if one.kind in {"tfidf", "by_count"} else np.abs(embeddings())) for one in made
    ]
    telling = {one.kind for one in fitted if one.metric() is not None}
    assert telling == {"identity", "unit", "tfidf", "precondition", "by_count"}
