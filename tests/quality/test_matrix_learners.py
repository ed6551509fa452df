"""The learners of a matrix beside OASIS: clearly better than cosine from lists without exploration, as served
by default, and never worse by the version that clicks alone choose."""

from __future__ import annotations

import pytest

from daemon.config.learners import LEARNERS
from daemon.demo.users import position_biased
from tests.quality.datasets import photos, texts
from tests.quality.simulation import Setting, Simulation

DATASETS = {"photos": photos, "texts": texts}


@pytest.fixture(scope="module", params=DATASETS)
def data(request):
    return DATASETS[request.param]()


@pytest.mark.parametrize(
    ("name", "times", "more"),
    [("oasis-averaged", 1.3, 0.06), ("dissim-oasis", 1.3, 0.06), ("lego", 1.15, 0.04)],
)
def test_lists_without_exploration(data, name, times, more):
    run = Simulation(data, Setting(position_biased, learner=LEARNERS[name]())).run()
    assert run.best > 0
    assert run.after.map >= times * run.before.map
    assert run.after.p10 >= run.before.p10 + more


def test_a_distance_learned_too_boldly_is_not_chosen(data):
    """LEGO with steps so long that it falls below cosine; the decision sees it."""
    setting = Setting(position_biased, learner=LEARNERS["lego"](eta=0.32))
    run = Simulation(data, setting).run()
    assert run.newest.p10 < run.before.p10, "the danger of this test is gone; find a harder one"
    assert run.after.map >= run.before.map
    assert run.after.p10 >= run.before.p10
