"""OMKS over explicit maps: clearly better than cosine from lists without exploration, by the version that
clicks alone choose. On photos by views and by kernels; on texts, where one sparse view is one block, it is a
bilinear similarity like any other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from daemon.config.learners import LEARNERS
from daemon.demo.users import position_biased
from tests.quality.datasets import Dataset, photos, photos_by_kernel, texts
from tests.quality.simulation import Setting, Simulation


@cache
def clicks(make: Callable[[], Dataset], combine: str, seed: int) -> tuple[float, float, float, float]:
    """mAP and P@10 of version 0 and of the version that clicks choose."""
    keys = LEARNERS["omks-maps"](combine=combine)  # type: ignore[call-arg]
    run = Simulation(make(), Setting(position_biased, seed=seed, learner=keys)).run()
    assert run.best > 0
    return run.before.map, run.before.p10, run.after.map, run.after.p10


@pytest.mark.parametrize(
    ("make", "seed"),
    [(photos, 0), (photos, 1), (photos_by_kernel, 0), (texts, 0)],
    ids=["views", "views-another-seed", "views-by-kernels", "texts"],
)
def test_lists_without_exploration(make, seed: int) -> None:
    before, p10_before, after, p10_after = clicks(make, "share", seed)
    assert after >= 1.3 * before
    assert p10_after >= p10_before + 0.06


def test_a_share_is_better_than_even_weights() -> None:
    """What the default rests on, over 15 kernels."""
    assert clicks(photos_by_kernel, "share", 0)[2] > clicks(photos_by_kernel, "uniform", 0)[2]
