"""What OASIS alone promises: its settings, the values of its state, margins that float32 cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

from learners import DEGENERATE, ConfigError, Oasis, OasisConfig, StateError, TripletBatch

from .examples import block, malformed

DIM = 12
KINDS = pytest.mark.parametrize("kind", ["dense", "sparse"])


def test_rejected_events_do_not_count_towards_a_projection() -> None:
    learner = Oasis(DIM, OasisConfig(psd_every=7))
    for bad, _ in malformed("dense", DIM):
        learner.learn_many(bad)
    assert learner.events == 0


def test_a_state_can_be_taken_over_without_a_copy() -> None:
    saved = {name: array.copy() for name, array in Oasis(DIM).state().items()}
    assert Oasis.from_state(saved, copy=False).W is saved["W"]
    with pytest.raises(StateError, match="read-only"):
        Oasis.from_state(Oasis(DIM).state(), copy=False)


@KINDS
def test_a_margin_beyond_float32_is_degenerate_and_changes_nothing(kind: str) -> None:
    W = np.full((2, 2), 3e38, np.float32)
    learner = Oasis.from_state({"W": W, "events": np.array(0, np.int64)})
    parts = (np.float32([[1, 1]]), np.float32([[9, 9]]), np.float32([[-9, -9]]))
    for batch in (parts, parts[::-1]):
        info = learner.learn_many(TripletBatch(*(block(part, kind) for part in batch)))
        assert info.outcome[0] == DEGENERATE
    np.testing.assert_array_equal(learner.W, W)


@KINDS
def test_a_loss_beyond_float32_is_degenerate_and_stays_finite(kind: str) -> None:
    ones = np.full((1, 200), 1e18, np.float32)
    learner = Oasis(200)
    info = learner.learn_many(TripletBatch(*(block(part, kind) for part in (ones, -ones, ones))))
    assert info.outcome[0] == DEGENERATE
    assert np.isfinite(info.loss).all()
    np.testing.assert_array_equal(learner.W, np.eye(200))


def test_the_state_is_one_matrix_and_a_counter() -> None:
    assert sum(array.nbytes for array in Oasis(DIM).state().values()) == 4 * DIM * DIM + 8


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({}, "W is missing"),
        ({"W": np.eye(3, dtype=np.float32)}, "events is missing"),
        ({"W": np.ones((2, 3), np.float32), "events": np.int64(0)}, "W has shape"),
        ({"W": np.eye(3), "events": np.int64(0)}, "W has dtype"),
        ({"W": np.full((3, 3), np.nan, np.float32), "events": np.int64(0)}, "W holds"),
        ({"W": np.eye(3, dtype=np.float32), "events": np.float64(0)}, "events must"),
        ({"W": np.eye(3, dtype=np.float32), "events": np.int64(-1)}, "events must"),
    ],
)
def test_arrays_that_are_no_state_are_refused_by_name(arrays: dict[str, np.ndarray], word: str) -> None:
    with pytest.raises(StateError, match=word):
        Oasis.from_state({name: np.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize(
    ("settings_", "word"),
    [
        ({"C": 0}, "C must"),
        ({"C": np.inf}, "C must"),
        ({"psd_every": -1}, "psd_every"),
        ({"symmetric": "yes"}, "symm"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings_: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        OasisConfig(**settings_)  # type: ignore[arg-type]


def test_projection_of_the_state_is_refused_where_it_takes_minutes() -> None:
    with pytest.raises(ConfigError, match="4096"):
        Oasis(4097, OasisConfig(psd_every=1))
