"""The learners of a matrix beside OASIS: clearly better than cosine from lists without exploration, as served
by default, and never worse by the version that clicks alone choose."""

from __future__ import annotations

import pytest

from daemon.config.learners import LEARNERS
from daemon.demo.clicks import position_biased
from tests.quality.datasets import photos, texts
from tests.quality.simulation import Setting, Simulation

DATASETS = {"photos": photos, "texts": texts}


@pytest.fixture(scope="module", params=DATASETS)
def data(request):
    return DATASETS[request.param]()


@pytest.mark.parametrize("name", ["oasis-averaged", "dissim-oasis", "lego"])
def test_lists_without_exploration(data, name):
    run = Simulation(data, Setting(position_biased, events=32_000, learner=LEARNERS[name]())).run()
    assert run.best > 0
    assert run.after.map >= 1.3 * run.before.map
    assert run.after.p10 >= run.before.p10 + 0.06


def test_a_distance_learned_too_boldly_is_not_chosen(data):
    """LEGO with steps so long that it falls below cosine; the decision sees it."""
    setting = Setting(position_biased, events=32_000, learner=LEARNERS["lego"](eta=0.32))
    run = Simulation(data, setting).run()
    assert run.newest.p10 < run.before.p10, "the danger of this test is gone; find a harder one"
    assert run.after.map >= run.before.map
    assert run.after.p10 >= run.before.p10
