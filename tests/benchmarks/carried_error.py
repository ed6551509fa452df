"""How far a serving form that is carried on along the steps is from the one made anew, on the demo's data.

Clicks are simulated as in tests/quality; forms are made of the states after so many events, and carried on
for the events that come in 1, 5 and 30 seconds at 2,000 a second. Not a matter of speed: the same every time.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from daemon.config.learners import OasisKeys
from daemon.config.schema import ServingConfig
from daemon.demo.users import position_biased
from daemon.versions.algorithms import untrained
from daemon.versions.forms import make_form, power_of
from learners import Oasis
from learners.block import Float32s, against
from learners.forms.carried import CarriedError, CarriedForm, carried_error
from learners.forms.quadratic import inverse_roots
from learners.forms.serving import ServingForm
from tests.benchmarks.harness import Figure
from tests.quality.datasets import Dataset, photos, texts
from tests.quality.simulation import BATCH, Setting, Simulation

RATE = 2_000
SECONDS = (1, 5, 30)
STATED = 5
"""Of the figure: how long a form is carried where a share of a core allows no more than one in that time."""
BASES = (8_000, 80_000)
QUERIES = 200
SERVED = ServingConfig.model_validate({})
WHAT = "the form made anew of the same W, all items, 200 queries"


def figures() -> list[Figure]:
    """For each data: the larger error of folded queries after 5 s, early and late in learning; all else in
    detail, where `left` is the form of the base left as it was.
    """
    with threadpool_limits(limits=1):
        return [_figure("photos", photos()), _figure("texts", texts())]


def _figure(name: str, data: Dataset) -> Figure:
    learner = untrained(OasisKeys.model_validate({}), data.objects.dim)
    assert isinstance(learner, Oasis)
    W = np.asarray(learner.state()["W"])
    rows = np.random.default_rng(0).choice(len(data.mapped), QUERIES, replace=False)
    batches = Simulation(data, Setting(position_biased)).batches()
    detail: dict[str, float] = {}
    learned, value = 0, 0.0
    for base in BASES:
        while learned < base:
            learner.learn_many(*next(batches))
            learned += BATCH
        form = make_form(learner.W, 1, SERVED)
        norms = form.self_scores(data.mapped)
        queries = data.mapped.take(rows)
        left = form.fold(queries)
        power = power_of(SERVED)
        carried = CarriedForm.of(form, W, power, pending=learner.pending)  # it reads both as they change
        for seconds in SECONDS:
            while learned < base + seconds * RATE:
                learner.learn_many(*next(batches))
                learned += BATCH
            at = f"{base // 1000}k+{seconds}s"
            exact = make_form(learner.W, 1, SERVED)
            found, precision = _compared(carried, norms, exact, data, rows)
            stale = carried_error(left, norms, exact, (queries, data.mapped))
            detail |= {f"left_fold {at}": round(stale.fold, 4), f"left_overlap {at}": round(stale.overlap, 4)}
            detail |= {f"{kind} {at}": round(one, 4) for kind, one in asdict(found).items()}
            detail |= {f"{kind} {at}": round(one, 4) for kind, one in precision.items()}
            value = max(value, found.fold) if seconds == STATED else value
    return Figure(f"carried_error_{name}", round(value, 4), "share", WHAT, 1, detail)


def _compared(
    carried: CarriedForm, norms: Float32s, exact: ServingForm, data: Dataset, rows: NDArray[np.int64]
) -> tuple[CarriedError, dict[str, float]]:
    """The error, and precision at 10 by labels of both, scored as a server does: new folds, older norms."""
    queries = data.mapped.take(rows)
    folded = carried.fold(queries)
    both = {"p10": (folded, norms), "p10_exact": (exact.fold(queries), exact.self_scores(data.mapped))}
    precision = {}
    for name, (fold, self_scores) in both.items():
        scores = against(fold, data.mapped) * inverse_roots(self_scores)
        scores[np.arange(len(rows)), rows] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        precision[name] = float(np.mean(data.labels[best] == data.labels[rows][:, None]))
    return carried_error(folded, norms, exact, (queries, data.mapped)), precision
