"""What users feel of SOML: its chosen version is never worse than cosine, and with the defaults better."""

from __future__ import annotations

from functools import cache

import pytest

from daemon.config.learners import SomlDaKeys, SomlTgKeys
from daemon.demo.users import position_biased
from tests.quality.datasets import photos, texts
from tests.quality.simulation import Run, Setting, Simulation

DATASETS = {"photos": photos, "texts": texts}
KEYS = {keys.algorithm: keys for keys in (SomlDaKeys(), SomlTgKeys())}


@cache
def on_cosine(name: str, algorithm: str) -> Simulation:
    """Lists of cosine alone."""
    return Simulation(DATASETS[name](), Setting(position_biased, learner=KEYS[algorithm]))


@cache
def run_of(simulation: Simulation) -> Run:
    """The only run of a simulation."""
    return simulation.run()


def clearly_above(run: Run) -> None:
    assert run.best > 0
    assert run.after.map >= 1.15 * run.before.map
    assert run.after.p10 >= run.before.p10 + 0.03


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("name", DATASETS)
def test_lists_without_exploration(name: str, algorithm: str) -> None:
    """Top 10 of cosine as they are, with 10 % noise."""
    clearly_above(run_of(on_cosine(name, algorithm)))


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("name", DATASETS)
def test_the_first_version_is_already_better(name: str, algorithm: str) -> None:
    """As learned, whether chosen or not, where w alone is still below cosine on texts."""
    run_of(on_cosine(name, algorithm))
    before, first, *_ = on_cosine(name, algorithm).in_hindsight()
    assert first.map >= 1.1 * before.map
    assert first.p10 >= before.p10 + 0.02


@pytest.mark.parametrize(("name", "algorithm"), [("photos", "soml-da"), ("texts", "soml-tg")])
def test_lists_of_the_best_version(name: str, algorithm: str) -> None:
    """Top 10 of the best version so far."""
    setting = Setting(position_biased, closed_loop=True, learner=KEYS[algorithm])
    clearly_above(Simulation(DATASETS[name](), setting).run())
