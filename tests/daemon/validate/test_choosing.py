"""Which form a version gets: one for all that no click chooses, or the best of several by judged queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemon.validate.choosing import (
    CAREFUL,
    OFFERED,
    PLAIN,
    Compared,
    choose_by_judgments,
    default_form,
    form_by_judgments,
)
from daemon.validate.preferences import ERRORS, Preference
from daemon.versions.forms import DEFAULT_FORM, FormChoice
from learners.block import DenseBlock
from learners.forms.serving import FAMILIAR, BackoffForm, ServingForm, usual_ratio
from learners.maps import SpaceMap, ViewConfig
from learners.maps.base import OwnRanking
from streams.event import Impression, ObjectRef
from tests.daemon.validate.helpers import better_and_better, judge_of, turn


def test_a_preference_is_a_mean_and_its_error():
    values = [0.1, 0.3, -0.1, 0.5]
    found = Preference.of(values)
    assert found.mean == pytest.approx(0.2)
    assert found.error == pytest.approx(np.std(values, ddof=1) / 2)
    assert found.is_above == (ERRORS * found.error < 0.2)
    assert not Preference.of([0.5]).is_above
    assert not Preference.of([]).is_below


DIM = 12
OWN = OwnRanking("cosine", np.ones(DIM, np.float32))


class Learned:
    """What was learned: classes lie in the first three columns of the small world."""

    def __init__(self, sense: float = 6.0) -> None:
        self.W = np.diag([sense] * 3 + [1.0] * (DIM - 3)).astype(np.float32)

    def __call__(self, choice: FormChoice) -> ServingForm:
        made = ServingForm.from_matrix(self.W, power=choice.power)
        return replace(made, normalised=False) if choice.raw else made


def lists_of(world, count):
    judge, _ = judge_of(world, judgments=False)
    lists = [world.impression() for _ in range(4 * count)]
    return judge, [one for one in lists if 0 < len(one.clicked) < len(one.shown)][:count]


def others(one: Impression) -> tuple[int, ...]:
    return tuple(rank for rank in range(len(one.shown)) if rank not in one.clicked)


def test_every_version_has_one_form_and_its_queries_tell_what_is_usual(world):
    judge, lists = lists_of(world, 60)
    learned = Learned()
    found = default_form(judge, lists)(None, learned, OWN)
    assert replace(found, usual=1.0, why="") == DEFAULT_FORM
    assert found.why == "power 1.5 with 0.1 of your own ranking"
    block, _ = judge.objects.block([*{one.query.id: one.query for one in lists}.values()])
    assert found.usual == pytest.approx(usual_ratio(learned(DEFAULT_FORM), OWN.metric, block))
    assert found.usual != 1


def test_no_click_and_no_earlier_choice_changes_it(world):
    """So what is bet on later was not chosen by anybody who knew how that would end."""
    judge, lists = lists_of(world, 300)
    found = default_form(judge, lists)(None, Learned(), OWN)
    turned = [replace(one, clicked=others(one)) for one in lists]
    assert default_form(judge, turned)(None, Learned(), OWN) == found
    for earlier in (FormChoice(1.0, 1.0, FAMILIAR, 2.5), FormChoice(1.0, 0.0, raw=True), PLAIN):
        assert default_form(judge, lists)(earlier, Learned(), OWN) == found


def test_the_default_answers_what_it_knows_nothing_of_by_the_own_ranking(world):
    """Also the boldest form that gives way."""
    learned = Learned(1e4)(DEFAULT_FORM)
    far = np.zeros((1, DIM), np.float32)
    far[0, 5:] = 1.0
    objects = world.values
    for one in (one for one in OFFERED if one.gives_way):
        form = BackoffForm.beside(learned, OWN.metric, one.own_share, 1e3, one.familiar)
        products = form.fold(far) @ objects.T
        np.testing.assert_allclose(
            products / np.abs(products).max(),
            (far @ objects.T) / np.abs(far @ objects.T).max(),
            atol=1e-3,
        )


def test_a_query_without_an_id_counts(world):
    judge, lists = lists_of(world, 5)
    nameless = [replace(one, query=ObjectRef(x=world.values[0])) for one in lists]
    assert default_form(judge, nameless)(None, Learned(), OWN).usual > 0


@pytest.mark.parametrize(
    ("now", "gains", "far", "taken"),
    [
        (4, (0.0,) * 5, (0.0,) * 5, 4),  # nothing is better than the plain one, which is in use
        (4, (0.05, 0.03, 0.0, 0.0, 0.0), (0.0,) * 5, 0),
        (4, (0.05, 0.03, 0.0, 0.0, 0.0), (-0.1, 0.0, 0.0, 0.0, 0.0), 1),  # the boldest loses what is unlike
        (4, (-0.1, -0.02, -0.03, -0.2, 0.0), (0.0, 0.0, 0.0, 0.0, -0.1), 1),  # so is plain
        (0, (0.0,) * 4 + (0.04,), (0.0,) * 5, 4),
        (1, (0.0,) * 5, (-0.1,) * 5, OFFERED.index(CAREFUL)),
        (1, (0.005,) * 5, (0.0,) * 5, 1),  # less than the error
        (4, (0.0,) * 5 + (0.02,), (0.0,) * 6, 5),  # as it was learned
    ],
)
def test_judgments_choose_the_best_that_loses_nothing_unlike_what_was_clicked(now, gains, far, taken):
    compared = [
        Compared(Preference(gain, 0.01, 200), Preference(unlike, 0.01, 60))
        for gain, unlike in zip(gains, far, strict=True)
    ]
    assert choose_by_judgments(now, compared) == taken


def test_by_judgments_the_form_in_use_is_the_plain_one_until_another_is_better(world):
    """What was learned is right for all: nothing beside it helps; where it is wrong, the own ranking does."""
    judge, _ = judge_of(world)
    lists = [world.impression() for _ in range(40)]
    chooser = form_by_judgments(judge, lists)
    right = chooser(None, Learned(40.0), OWN)
    assert (right.power, right.own_share, right.raw) == (1.5, 0.0, False)
    assert "judged queries" in right.why
    wrong = Learned(40.0)
    wrong.W = wrong.W[::-1, ::-1].copy()
    other = chooser(right, wrong, OWN)
    assert other.own_share > 0
    assert other.usual != 1
    assert "mAP" in other.why
    assert chooser(right, wrong, OWN) == other, "the same again"


def test_without_judged_queries_the_plain_form_stays(world):
    judge, _ = judge_of(world, max_queries=0)
    found = form_by_judgments(judge, [])(None, Learned(), OWN)
    assert (found.power, found.own_share) == (1.5, 0.0)
    assert found.why.endswith("there are no judged queries")


def test_a_validator_with_judgments_records_what_they_chose(world, start):
    own = SpaceMap({"x": ViewConfig("unit")}, similarity="cosine")
    world.fitted = own.fit({"x": DenseBlock(world.values)})
    validator, inputs = start()
    for _ in better_and_better(world, 2):
        turn(validator)
    choice = inputs.candidates.open(1).choice
    assert choice is not None
    assert "judged queries" in choice.why


def test_raw_scores_are_not_on_offer_and_read_where_an_earlier_release_chose_them():
    raw = FormChoice(1.0, 0.0, raw=True, why="why")
    assert not any(one.raw for one in OFFERED)
    assert FormChoice.from_json(raw.to_json()) == raw
    assert raw.to_json()["score"] == "raw"
    for other in OFFERED:
        assert "score" not in other.to_json(), "as releases before it write it"
        assert FormChoice.from_json(other.to_json()) == other
    assert FormChoice.from_json(FORMER).backoff == 12.0, "earlier releases had one for all"


FORMER = {"power": 1.5, "own_share": 0.3, "familiar": 0.85, "usual": 1.0, "why": ""}


@pytest.mark.parametrize(
    ("last", "now"),
    [
        (FormChoice(1.0, 0.3, FAMILIAR, 2.5, "why"), FormChoice(1.0, 0.3)),
        (replace(DEFAULT_FORM, usual=0.7), DEFAULT_FORM),
        (FormChoice.from_json(FORMER | {"power": 1.0, "own_share": 0.0}), FormChoice(1.0, 0.0)),
        (FormChoice.from_json(FORMER), FormChoice(1.5, 0.3)),
        (FormChoice(1.0, 0.0, raw=True), PLAIN),
        (FormChoice(2.0, 0.1), PLAIN),
        (None, PLAIN),
    ],
)
def test_what_judgments_chose_last_is_the_form_in_use(world, last, now):
    judge, _ = judge_of(world, max_queries=0)
    found = form_by_judgments(judge, [])(last, Learned(), OWN)
    assert (found.power, found.own_share, found.raw) == (now.power, now.own_share, False)
