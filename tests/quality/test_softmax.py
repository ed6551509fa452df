"""What the softmax learner gains on texts from a thousand lists, beside OASIS and the ranking they had."""

from __future__ import annotations

from tests.quality.bench.cells import QUERIES
from tests.quality.bench.forms import Eigen, Form, own_scores, scores
from tests.quality.bench.geometry import mapped
from tests.quality.bench.loop import Algorithm, Learner, Learning
from tests.quality.bench.retrieval import Scores, judge
from tests.quality.bench.sets import load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import Users, split

LISTS = 1_000
FORMS: dict[Algorithm, Form] = {"oasis": Form(1.5, 0.3), "softmax": Form(1.0, 1.0)}
"""How each is served as long as nothing chooses another, but for queries unlike those that were clicked."""


def test_it_is_above_oasis_and_above_the_own_ranking() -> None:
    """Lists of the own ranking; the error of a difference is about .006."""
    data, who = load("lsa"), split(load("lsa"))
    space, clicked = (
        mapped(data, "precondition"),
        Users(data, "position", 0, who).look(own_lists("lsa"), LISTS),
    )

    def of(ranking: Scores) -> tuple[float, float]:
        return judge(ranking, data.labels, who.judged[:QUERIES]).pair

    def learned(algorithm: Algorithm) -> tuple[float, float]:
        learner = Learner(space, Learning("mean", algorithm=algorithm))
        learner.take(clicked.rows, clicked.drawn)
        return of(scores(Eigen(learner.W).matrix(FORMS[algorithm], space.metric), space.Z))

    own, oasis, softmax = of(own_scores(data.joined())), learned("oasis"), learned("softmax")
    assert softmax[0] > 1.2 * own[0]
    assert softmax[1] > own[1] + 0.03
    assert softmax[0] > oasis[0] + 0.02
    assert softmax[1] > oasis[1] - 0.01
