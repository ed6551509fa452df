"""OKS and OMKS over a support set whose budget is long reached: clearly better than their untrained kernels
from lists without exploration, by the version that clicks alone choose."""

from __future__ import annotations

from daemon.config.learners import LEARNERS
from daemon.demo.users import position_biased
from streams.feed.options import FeedSettings
from tests.quality.datasets import photos, texts
from tests.quality.simulation import Run, Setting, Simulation

EVENTS = 8_000
"""Four and eight times the triplets that are kept; one version."""
COSINE, RBF = {"kind": "cosine"}, {"kind": "rbf"}


def clicks(data, name: str, triplets: int, events: int = EVENTS, **keys) -> Run:
    budget = {"triplets": triplets, "objects": 2 * triplets}
    learner = LEARNERS[name].model_validate({**budget, **keys})
    feed = FeedSettings(holdout_share=0.3)
    return Simulation(data, Setting(position_biased, events=events, learner=learner, feed=feed)).run()


def clearly_above(run: Run) -> None:
    assert run.best > 0
    assert run.after.map >= 1.08 * run.before.map
    assert run.after.p10 >= run.before.p10 + 0.025


def test_kernels_of_five_views():
    """OMKS of ten kernels that keeps the newest 1,000 triplets of 8,000."""
    clearly_above(clicks(photos(), "omks", 1_000, kernels=[RBF, COSINE], evict="oldest"))


def test_the_mean_kernel():
    """OKS-Avg, whose changes are small: it takes twice the lists."""
    clearly_above(clicks(photos(), "oks", 2_000, events=16_000, kernels=[RBF, COSINE]))


def test_one_kernel_of_texts():
    """OKS, keeping the 2,000 triplets that weigh most."""
    clearly_above(clicks(texts(), "oks", 2_000, kernels=[COSINE], evict="smallest"))
