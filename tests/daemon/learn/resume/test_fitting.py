"""The maps of a new store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from daemon.config import load_config
from daemon.exits import EX_OK, UserError
from daemon.learn.resume.fitting import space_map
from daemon.versions.algorithms import ALGORITHMS
from learners import DenseBlock, Oasis
from learners.block import Block
from tests.daemon.learn.conftest import Site, make_events


def test_maps_are_fitted_on_the_first_objects_and_frozen(new_site: Callable[..., Site]) -> None:
    fitted = []
    for poll_records in (1, 500):
        site = new_site()
        site.feed(make_events(60))
        changes = {
            "space__views__x__map": "whiten",
            "space__views__x__components": 4,
            "space__warmup_objects": 30,
        }
        site.learn(**changes, stream__poll_records=poll_records)
        site.feed(make_events(60, seed=3))
        site.learn(**changes, stream__poll_records=poll_records)
        ids = {site.versions.manifest(n).map["id"] for n in site.versions.versions()}
        assert len(ids) == 1
        fitted.append((ids.pop(), site.newest().state_hash))
    assert fitted[0] == fitted[1]


def test_nothing_to_fit_the_maps_on_is_said(site: Site) -> None:
    site.feed([])
    with pytest.raises(UserError, match="no usable object"):
        site.learn(space__views__x__map="standardise")
    assert site.versions.versions() == []


def test_kernels_of_a_view_are_learned_side_by_side(new_site: Callable[..., Site]) -> None:
    """OMKS over explicit maps, from the configuration to a version that goes on, the same bits for every
    poll size.
    """
    kernels = [
        {"map": "rff", "kernel": "exponential", "sigma": 0.5, "components": 8},
        {"map": "cosine"},
        {"map": "nystroem", "components": 5},
        {"map": "pcalap", "directions": 3, "weighted": True},
        {"map": "rplap", "directions": 4},
        {"map": "addkpca", "kernel": "gaussian", "landmarks": 20},
    ]
    found = []
    for poll_records in (1, 500):
        site = new_site()
        changes = {
            "space__views__x__map": ["whiten", "unit"],
            "space__views__x__components": 4,
            "space__views__x__kernels": kernels,
            "space__warmup_objects": 30,
            "learner__algorithm": "omks-maps",
            "stream__poll_records": poll_records,
        }
        for seed in (0, 3):
            site.feed(make_events(60, seed=seed))
            site.learn(**changes)
        newest = site.newest()
        shapes = {spec.name: spec.shape for spec in newest.arrays}
        assert shapes["W"] == (8**2 + 5**2 + 5**2 + 6**2 + 8**2 + 8**2,)
        assert shapes["standing"] == (6,)
        found.append((newest.map["id"], newest.state_hash))
    assert found[0] == found[1]


def test_a_learner_that_wants_them_sees_the_mapped_objects(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def make(dim: int, settings: object, sample: Block | None) -> Oasis:
        seen.append((dim, sample))
        return Oasis(dim)

    wanting = replace(ALGORITHMS["oasis"], learner=make, needs_sample=True)
    monkeypatch.setitem(ALGORITHMS, "oasis", wanting)  # type: ignore[arg-type]
    site.feed(make_events(10))
    assert site.learn(space__views__x__map="unit") == EX_OK
    ((dim, sample),) = seen
    assert isinstance(sample, DenseBlock)
    assert sample.values.shape == (30, dim)
    assert np.allclose(np.linalg.norm(sample.values, axis=1), 1), "after the maps"


@pytest.mark.parametrize(
    ("changes", "effective"),
    [
        ({"space.views.a.map": "whiten", "space.views.b.map": "whiten"}, True),
        ({"space.views.a.map": "whiten"}, False),
        ({"space.view_weights": "equal"}, False),
        (
            {
                "space.views.a.map": "whiten",
                "space.views.b.map": "whiten",
                "learner.algorithm": "omks-maps",
            },
            False,
        ),  # it learns the weights itself
        ({"space.views.b.map": "unit"}, False),
        ({"space.views.b.map": "unit", "space.view_weights": "effective"}, True),
        ({"space.views.b.kernels": [{"map": "rff"}]}, False),
    ],
)
def test_whitened_views_weigh_by_what_they_hold(changes: dict[str, object], effective: bool) -> None:
    views = {f"space.views.{name}.dim": 4 for name in "ab"}
    assert space_map(load_config(None, {**views, **changes}, {})).effective is effective


def test_one_view_alone_has_nothing_to_be_weighed_against() -> None:
    plan = space_map(load_config(None, {"space.views.a.dim": 4}, {}))
    assert plan.unit
    assert not plan.effective
