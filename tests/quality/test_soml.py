"""What users feel of SOML: its chosen version is never worse than cosine, and with the defaults better."""

from __future__ import annotations

import pytest

from daemon.config.learners import SomlDaKeys, SomlTgKeys
from daemon.demo.users import position_biased
from tests.quality.datasets import photos, texts
from tests.quality.simulation import Setting, Simulation

DATASETS = {"photos": photos, "texts": texts}
FIRST = 8_000


@pytest.fixture(scope="module", params=DATASETS)
def data(request):
    return DATASETS[request.param]()


@pytest.mark.parametrize("keys", [SomlDaKeys(), SomlTgKeys()], ids=lambda keys: keys.algorithm)
@pytest.mark.parametrize("closed_loop", [False, True])
def test_lists_without_exploration(data, keys, closed_loop):
    """Top 10 of cosine, or of the best version so far, as they are, with 10 % noise."""
    setting = Setting(position_biased, closed_loop=closed_loop, learner=keys)
    run = Simulation(data, setting).run()
    assert run.best > 0
    assert run.after.map >= 1.15 * run.before.map
    assert run.after.p10 >= run.before.p10 + 0.03


@pytest.mark.parametrize("keys", [SomlDaKeys(), SomlTgKeys()], ids=lambda keys: keys.algorithm)
def test_the_first_version_is_already_better(data, keys):
    """As learned, whether chosen or not, where w alone is still below cosine on texts."""
    run = Simulation(data, Setting(position_biased, events=FIRST, learner=keys)).run()
    assert run.newest.map >= 1.1 * run.before.map
    assert run.newest.p10 >= run.before.p10 + 0.02
