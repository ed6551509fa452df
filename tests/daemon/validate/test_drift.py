"""Drift of the holdout loss: a rise is seen, a fall and a calm stream are not."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.validate.validator import LossDrift


def losses(seed, mean, count):
    return np.clip(np.random.default_rng(seed).normal(mean, 0.2, count), 0, 2).tolist()


@pytest.mark.parametrize("kind", ["adwin", "page_hinkley"])
def test_a_rise_is_reported_soon(kind):
    drift = LossDrift(kind, losses(1, 0.5, 1000))
    assert not any(drift.update(loss) for loss in losses(2, 0.5, 1000))
    alarms = [i for i, loss in enumerate(losses(3, 1.1, 500)) if drift.update(loss)]
    assert alarms
    assert alarms[0] < 200


@pytest.mark.parametrize("kind", ["adwin", "page_hinkley"])
def test_a_fall_is_not_reported(kind):
    drift = LossDrift(kind, losses(1, 1.1, 1000))
    assert not any(drift.update(loss) for loss in losses(2, 0.5, 1000))
    assert drift.mean < 0.8


def test_drift_inside_the_window_it_was_chosen_on_is_history():
    drift = LossDrift("adwin", losses(1, 0.4, 800) + losses(2, 1.0, 800))
    assert not any(drift.update(loss) for loss in losses(3, 1.0, 800))


def test_off_and_nan_say_nothing():
    assert not any(LossDrift("off").update(loss) for loss in losses(1, 0.1, 50) + losses(2, 2.0, 50))
    drift = LossDrift("adwin")
    drift.update(float("nan"))
    assert drift.mean == 0.0
