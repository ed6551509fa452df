"""Every variant of OASIS is a line of configuration: what is learned or served then, by its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daemon.config.learners import LEARNERS
from daemon.config.schema import ServingConfig
from daemon.versions.algorithms import ALGORITHMS, those_that, untrained
from learners import Learner
from learners.averaged import Averaged
from learners.forms.quadratic import FoldingForm, by_distance, folds
from tests.learners.examples import rows, triplets
from tests.learners.oracle import psd

DIM = 10


def learned(algorithm: str, **keys: Any) -> Learner:
    """After some events by which a general W is neither symmetric nor PSD."""
    size = {"eta": 0.1} if algorithm == "lego" else {"C": 0.5}
    learner = untrained(LEARNERS[algorithm](algorithm=algorithm, **size, **keys), DIM)
    learner.learn_many(triplets(2, 1500, DIM, "dense"))
    return learner


def served(learner: Learner, algorithm: str, **serving: Any) -> FoldingForm:
    form = ALGORITHMS[algorithm].forms.make(learner, 1, ServingConfig(**serving))
    assert folds(form)
    return form


def matrix(form: FoldingForm) -> np.ndarray:
    """S of a form without distance."""
    return form.fold(np.eye(DIM, dtype=np.float32)).astype(float)


def W_of(learner: Learner) -> np.ndarray:
    return learner.state()["W"].astype(float)


def lowest(S: np.ndarray) -> float:
    return float(np.linalg.eigvalsh((S + S.T) / 2)[0])


def test_plain_oasis_is_neither_symmetric_nor_psd() -> None:
    W = W_of(learned("oasis"))
    assert not np.allclose(W, W.T)
    assert lowest(W) < -0.01


def test_symmetric_after_learning() -> None:
    learner = learned("oasis")
    W = W_of(learner)
    S = matrix(served(learner, "oasis", score="raw", psd="off"))
    np.testing.assert_allclose(S, (W + W.T) / 2, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["oasis", "oasis-averaged"])
def test_symmetric_online(algorithm: str) -> None:
    W = W_of(learned(algorithm, symmetric="online"))
    assert np.array_equal(W, W.T)
    assert lowest(W) < -0.01


def test_psd_every_so_many_events() -> None:
    learner = learned("oasis", psd_every=100, symmetric="online")
    assert lowest(W_of(learner)) > -1e-5
    learner.learn_many(triplets(3, 99, DIM, "dense"))
    assert lowest(W_of(learner)) < -1e-3
    learner.learn_many(triplets(4, 1, DIM, "dense"))
    assert lowest(W_of(learner)) > -1e-5


def test_psd_once_after_learning() -> None:
    learner = learned("oasis")
    S = matrix(served(learner, "oasis", score="raw", psd="full"))
    np.testing.assert_allclose(S, psd(W_of(learner)), atol=1e-5)


def test_normalised_scores() -> None:
    learner, objects = learned("oasis"), rows(np.random.default_rng(0), 8, DIM, 1.0)
    scores = served(learner, "oasis", power=1.0).scores(objects, objects)
    raw = objects @ psd(W_of(learner)) @ objects.T
    own = np.sqrt(np.diag(raw))
    np.testing.assert_allclose(scores, raw / own / own[:, None], atol=1e-4)


def test_the_running_average() -> None:
    learner = learned("oasis-averaged")
    assert isinstance(learner, Averaged)
    assert not np.allclose(learner.W, W_of(learner), atol=1e-3)
    S = matrix(served(learner, "oasis-averaged", score="raw", psd="full"))
    np.testing.assert_allclose(S, psd(learner.W.astype(float)), atol=1e-5)


@pytest.mark.parametrize("algorithm", ["dissim-oasis", "lego"])
def test_distances_raw_and_as_the_cosine_of_the_same_matrix(algorithm: str) -> None:
    learner = learned(algorithm)
    raw = served(learner, algorithm, score="raw", psd="full")
    assert by_distance(raw)
    normalised = served(learner, algorithm, power=1.0, psd="full")
    assert not by_distance(normalised)
    np.testing.assert_allclose(matrix(raw) / 2, matrix(normalised), atol=1e-5)


def test_the_table_says_which_learners_are_averaged_and_exported():
    assert those_that(lambda one: one.averages) == "oasis, dissim-oasis, lego, lego-pairs"
    assert (
        those_that(lambda one: one.factors)
        == "oasis, oasis-averaged, dissim-oasis, lego, lego-pairs, oasis-softmax"
    )
