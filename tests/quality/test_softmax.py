"""What a softmax beside OASIS gains on texts from a thousand lists, also on kinds never clicked."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.versions.forms import DEFAULT_FORM, FormChoice
from tests.quality.bench.cells import QUERIES
from tests.quality.bench.forms import own_scores
from tests.quality.bench.geometry import mapped
from tests.quality.bench.loop import Algorithm, Learner, Learning
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import Ints, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import Users, split
from tests.quality.bench.versions import Version

LISTS = 1_000
PLAIN = FormChoice(1.5, 0.0)
"""What gives way for no query."""


@pytest.mark.parametrize("kinds", [False, True], ids=["all kinds clicked", "some never clicked"])
def test_it_is_above_oasis_and_above_the_own_ranking(kinds: bool) -> None:
    """Lists of the own ranking; the error of a difference is about .006."""
    data, who = load("lsa"), split(load("lsa"), 0, kinds=kinds)
    space, clicked = (
        mapped(data, "precondition"),
        Users(data, "position", 0, who).look(own_lists("lsa"), LISTS),
    )
    rows = (who.unseen if kinds else who.judged)[:QUERIES]
    asked: Ints = np.unique(clicked.rows[0])

    def learned(algorithm: Algorithm, form: FormChoice = DEFAULT_FORM) -> np.ndarray:
        learner = Learner(space, Learning("mean", algorithm=algorithm))
        learner.take(clicked.rows, clicked.drawn)
        version = Version(learner.W, space.Z, space.metric, learner.familiarity)
        return np.array(judge(version.scores(version.with_usual(form, asked)), data.labels, rows).pair)

    own = np.array(judge(own_scores(data.joined()), data.labels, rows).pair)
    oasis, both = learned("oasis"), learned("oasis-softmax")
    if kinds:
        assert (both > own - 0.002).all()
        assert both[0] > learned("oasis-softmax", PLAIN)[0] - 0.01, "it gives way without a loss"
        return
    assert both[0] > 1.3 * own[0]
    assert both[1] > own[1] + 0.06
    assert both[0] > oasis[0] + 0.02
    assert both[1] > oasis[1]
