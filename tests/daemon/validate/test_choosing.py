"""Which form a version gets: careful, told in words, and never chosen by the lists that bets are made on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from daemon.validate.betting import STAKES, log_capital
from daemon.validate.choosing import (
    BY_JUDGMENTS,
    LEAST_FAR,
    LEAST_LISTS,
    Compared,
    FormChooser,
    FormChooserByJudgments,
    choose,
    choose_by_judgments,
    told_why,
)
from daemon.validate.evaluator import Evaluator
from daemon.validate.holdout import HeldImpression, Window
from daemon.validate.preferences import ERRORS, NO_PREFERENCE, Preference, differences
from daemon.versions.forms import FIRST, OFFERED, FormChoice
from learners.block import DenseBlock
from learners.forms.serving import FAMILIAR, BackoffForm, ServingForm, usual_ratio
from learners.maps import SpaceMap, ViewConfig
from learners.maps.base import OwnRanking
from streams.event import Impression, ObjectRef
from tests.daemon.validate.helpers import better_and_better, judge_of, turn
from tests.daemon.validate.test_preferences import ALPHA, lists_of, rank_clicks, shown_order, usable

SAME = Preference(0.0, 0.01, 300)
UP = Preference(0.03, 0.01, 300)
MORE_UP = Preference(0.05, 0.01, 300)
A_LITTLE_UP = Preference(0.009, 0.01, 300)
FAR_SAME = Preference(0.0, 0.01, LEAST_FAR)
FAR_BELOW = Preference(-0.03, 0.01, LEAST_FAR)
FAR_UP = Preference(0.021, 0.01, LEAST_FAR)
FAR_A_LITTLE_UP = Preference(0.019, 0.01, LEAST_FAR)
FEW_UP = Preference(0.05, 0.01, LEAST_FAR - 1)
DOWN = Preference(-0.011, 0.01, 300)
FEW_BELOW = Preference(-0.03, 0.01, LEAST_FAR - 1)


def compared(*seen):
    return [Compared(*one) for one in seen]


def test_the_form_in_use_stays_where_lists_cannot_speak_against_it():
    """They are nearer to every form than to the own ranking."""
    silent = (SAME, NO_PREFERENCE)
    assert choose(1, compared(*[silent] * 4)) == 1
    assert choose(3, compared(*[silent] * 4)) == 3
    assert choose(2, compared(*[silent] * 4)) == 2


@pytest.mark.parametrize(
    ("now", "seen", "wanted"),
    [
        (1, [(SAME, FAR_SAME)] * 4, 1),
        (3, [(SAME, FAR_SAME)] * 4, 3),
        (1, [(SAME, FAR_SAME), (SAME, FAR_SAME), (UP, FAR_SAME), (MORE_UP, FAR_SAME)], 3),
        (1, [(A_LITTLE_UP, FAR_SAME), (SAME, FAR_SAME), (A_LITTLE_UP, FAR_SAME), (SAME, FAR_SAME)], 1),
        (1, [(UP, FAR_SAME), (SAME, FAR_SAME), (SAME, FAR_SAME), (SAME, FAR_SAME)], 0),
        # bolder than the first only where queries far from all clicks were asked and do not speak against it
        (1, [(UP, FEW_BELOW), (SAME, FEW_BELOW), (SAME, FEW_BELOW), (SAME, FEW_BELOW)], 1),
        (0, [(SAME, FEW_BELOW), (SAME, FEW_BELOW), (SAME, FEW_BELOW), (SAME, FEW_BELOW)], 1),
        (1, [(UP, FAR_BELOW), (SAME, FAR_SAME), (SAME, FAR_SAME), (SAME, FAR_SAME)], 1),
        # ... and where they surely speak for it, it need not be preferred to the first
        (1, [(SAME, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP)], 0),
        (1, [(SAME, FAR_A_LITTLE_UP), (SAME, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP)], 1),
        (1, [(DOWN, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP)], 1),
        (1, [(SAME, FEW_UP), (SAME, FEW_UP), (SAME, FEW_UP), (SAME, FEW_UP)], 1),
        (2, [(SAME, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP), (SAME, FAR_UP)], 2),
        # what is below the own ranking there is left, for the best of what is not
        (1, [(UP, FAR_BELOW), (SAME, FAR_BELOW), (SAME, FAR_BELOW), (SAME, FAR_SAME)], 3),
        (1, [(UP, FAR_BELOW), (SAME, FAR_BELOW), (A_LITTLE_UP, FAR_SAME), (SAME, FAR_SAME)], 2),
        (0, [(SAME, FAR_BELOW)] * 4, 3),
        # the same on kinds that are never learned; and these are queries enough for a bolder one
        (1, [(UP, FAR_SAME, FAR_BELOW), *[(SAME, FAR_SAME, FAR_SAME)] * 3], 1),
        (1, [(UP, FEW_BELOW, FAR_SAME), *[(SAME, FEW_BELOW, FAR_SAME)] * 3], 0),
        (0, [*[(SAME, FAR_SAME, FAR_BELOW)] * 2, *[(A_LITTLE_UP, FAR_SAME, FAR_SAME)] * 2], 2),
        (0, [(SAME, FAR_SAME, FAR_BELOW)] * 4, 3),
    ],
)
def test_which_form_is_taken(now, seen, wanted):
    assert (FIRST, len(seen)) == (1, len(OFFERED))
    assert choose(now, compared(*seen)) == wanted


def test_a_preference_is_a_mean_and_its_error():
    values = [0.1, 0.3, -0.1, 0.5]
    found = Preference.of(values)
    assert found.mean == pytest.approx(0.2)
    assert found.error == pytest.approx(np.std(values, ddof=1) / 2)
    assert found.is_above == (ERRORS * found.error < 0.2)
    assert not Preference.of([0.5]).is_above
    assert not Preference.of([]).is_below


def test_the_reason_is_a_sentence():
    seen = compared((UP, FAR_BELOW), (SAME, FAR_SAME), (UP, FAR_SAME), (SAME, FAR_SAME))
    assert told_why(OFFERED, 1, 2, seen, 1_200) == (
        "power 1 with 1 of your own ranking: on 1,200 held-out lists users prefer it to power 1.5 with 0.3 "
        "of your own ranking; below your own ranking on 40 queries unlike those that were clicked: power 1.5 "
        "with 0.2 of your own ranking"
    )
    seen = compared((UP, FAR_SAME, FAR_BELOW), *[(SAME, FAR_SAME, FAR_SAME)] * 3)
    assert told_why(OFFERED, 1, 1, seen, 300).endswith(
        "users prefer no other form; below your own ranking on 40 queries of kinds that are never learned: "
        "power 1.5 with 0.2 of your own ranking"
    )
    told = told_why(OFFERED, 1, 1, compared(*[(SAME, FAR_SAME)] * 4), 300)
    assert told.endswith("of your own ranking: on 300 held-out lists users prefer no other form")
    told = told_why(OFFERED, 1, 0, compared(*[(SAME, FAR_UP)] * 4), 300)
    assert told.endswith(
        "on 300 held-out lists users like it no less than power 1.5 with 0.3 of your own ranking, and they "
        "prefer it to your own ranking on 40 queries unlike those that were clicked"
    )
    told = told_why(OFFERED, 0, 3, compared(*[(SAME, FAR_BELOW)] * 3, (SAME, FAR_SAME)), 300)
    assert told.startswith("power 1.5 with 1 of your own ranking, no longer power 1.5 with 0.2 of your own")


STREAMS, LISTS, BETWEEN, FORMS = 2_000, 100, 20, 5


def forms_without_preference(rng):
    """Clicks by rank alone, the shown order, and forms that have nothing in common but that order."""
    clicked = rank_clicks(rng, LISTS, 4)
    lists = lists_of(clicked[usable(clicked)])
    shown = shown_order(len(lists.clicked), 4)
    forms = [shown + size * rng.standard_normal(shown.shape) for size in rng.uniform(0.3, 3, FORMS)]
    return shown, forms, lists


def test_of_two_thousand_streams_in_which_forms_compete_at_most_one_in_twenty_is_promoted():
    """A version every 20 lists, in the form chosen by the lists before; and, beside it, chosen by the lists
    that it is bet on, which is what must not be done.
    """
    rng = np.random.default_rng(6)
    before, within = np.zeros((STREAMS, LISTS)), np.zeros((STREAMS, LISTS))
    changed = 0
    for row, peeking in zip(before, within, strict=True):
        shown, forms, lists = forms_without_preference(rng)
        found = np.array([differences(form, shown, lists) for form in forms])
        now = 1
        for start in range(0, found.shape[1], BETWEEN):
            bets = slice(start, start + BETWEEN)
            if start:
                seen = [Compared(Preference.of((one - found[now])[:start]), FAR_SAME) for one in found]
                taken = choose(now, seen)
                changed += taken != now
                now = taken
            row[bets][: found[now, bets].size] = found[now, bets]
            best = found[:, bets].mean(axis=1).argmax()
            peeking[bets][: found[best, bets].size] = found[best, bets]
    falsely, peeked = ((_highest(one) >= -math.log(ALPHA)).mean() for one in (before, within))
    told = f"false promotions of {STREAMS:,} streams, {changed:,} changes of form: {falsely:.4f}"
    print(f"{told}; chosen by what is bet on: {peeked:.4f}")
    assert changed > STREAMS / 3, "one form for all: nothing is tested"
    assert falsely <= ALPHA
    assert peeked > 2 * ALPHA, "it would not matter by what a form is chosen: nothing is tested"


def _highest(told):
    """The largest log capital that bets on each stream ever reach."""
    logs, highest = np.zeros((len(told), len(STAKES))), np.zeros(len(told))
    for difference in told.T:
        logs += np.log1p(difference[:, None] * STAKES)
        highest = np.maximum(highest, log_capital(logs))
    return highest


DIM = 12
OWN = OwnRanking("cosine", np.ones(DIM, np.float32))


class Learned:
    """What was learned: classes lie in the first three columns of the small world."""

    def __init__(self, sense: float = 6.0) -> None:
        self.W = np.diag([sense] * 3 + [1.0] * (DIM - 3)).astype(np.float32)

    def __call__(self, choice: FormChoice) -> ServingForm:
        made = ServingForm.from_matrix(self.W, power=choice.power)
        return replace(made, normalised=False) if choice.raw else made


def chooser_of(world, earlier, later=40):
    judge, _ = judge_of(world, judgments=False)
    lists = [world.impression() for _ in range(4 * (earlier + later))]
    lists = [one for one in lists if 0 < len(one.clicked) < len(one.shown)][: earlier + later]
    return FormChooser(judge, lists, lists[:earlier])


def test_few_earlier_lists_choose_nothing_and_still_tell_what_is_usual(world):
    chooser, learned = chooser_of(world, LEAST_LISTS - 1), Learned()
    found = chooser.choose(1, None, learned, OWN)
    assert (found.power, found.own_share, found.familiar) == (1.5, 0.3, FAMILIAR)
    queries = {one.query.id: one.query for one in chooser.window}
    block, _ = chooser.judge.objects.block([*queries.values()])
    assert found.usual == pytest.approx(usual_ratio(learned(OFFERED[FIRST]), OWN.metric, block))
    assert found.usual != 1
    assert found.why.endswith(": 99 held-out lists came before, and a choice takes 100")
    last = FormChoice(1.0, 1.0, FAMILIAR, 2.5, "")
    assert chooser.choose(2, last, learned, OWN).power == 1.0, "as before"


def test_it_chooses_by_earlier_lists_alone(world):
    chooser, learned = chooser_of(world, 3 * LEAST_LISTS), Learned()
    found = chooser.choose(2, OFFERED[FIRST], learned, OWN)
    later = [replace(one, clicked=_others(one)) for one in chooser.window[len(chooser.earlier) :]]
    other = replace(chooser, window=[*chooser.earlier, *later])
    assert other.choose(2, OFFERED[FIRST], learned, OWN) == found, "what is bet on says nothing"
    turned = [replace(one, clicked=_others(one)) for one in chooser.earlier]
    assert replace(chooser, earlier=turned).choose(2, OFFERED[FIRST], learned, OWN).why != found.why
    assert found == chooser.choose(2, OFFERED[FIRST], learned, OWN), "the same again"


def _others(one: Impression) -> tuple[int, ...]:
    return tuple(rank for rank in range(len(one.shown)) if rank not in one.clicked)


def test_lists_that_were_not_bet_on_are_no_earlier_ones(world):
    judge, _ = judge_of(world, judgments=False)
    window = Window(100, {0: 0, 1: 0})
    for n in range(10):
        window.add(HeldImpression(n % 2, n, world.impression()))
    chooser = Evaluator(judge).chooser(window, {0: 5})
    assert [one.ts for one in chooser.earlier] == [
        held.impression.ts for held in window if held.offset in {0, 2, 4}
    ]
    assert len(chooser.window) == 10


def test_every_form_on_offer_gives_way_to_the_own_ranking(world):
    """Also the boldest answers a query that has nothing in common with what was learned by it alone."""
    learned = Learned(1e4)(OFFERED[FIRST])
    far = np.zeros((1, DIM), np.float32)
    far[0, 5:] = 1.0
    objects = world.values
    for one in OFFERED:
        form = BackoffForm.beside(learned, OWN.metric, one.own_share, 1e3, one.familiar)
        products = form.fold(far) @ objects.T
        np.testing.assert_allclose(
            products / np.abs(products).max(),
            (far @ objects.T) / np.abs(far @ objects.T).max(),
            atol=1e-3,
        )


def test_a_form_that_loses_kinds_that_were_never_learned_is_left(world):
    """The bold one, on queries of a class that what was learned cannot tell from others."""
    chooser, learned = chooser_of(world, 4 * LEAST_LISTS), Learned(40.0)
    lost = [replace(one, kind="o0") for one in chooser.window]
    without = chooser.choose(2, OFFERED[FIRST], learned, OWN)
    assert replace(chooser, kinds=lost).choose(2, OFFERED[FIRST], learned, OWN) == without, "nothing is lost"
    turned = Learned(40.0)
    turned.W = turned.W[::-1, ::-1].copy()
    found = replace(chooser, kinds=lost).choose(2, OFFERED[FIRST], turned, OWN)
    assert "queries of kinds that are never learned: " in found.why
    assert "never learned" not in chooser.choose(2, OFFERED[FIRST], turned, OWN).why


def test_a_query_without_an_id_counts(world):
    chooser, learned = chooser_of(world, 5), Learned()
    nameless = [replace(one, query=ObjectRef(x=world.values[0])) for one in chooser.window]
    assert replace(chooser, window=nameless).choose(1, None, learned, OWN).usual > 0


@pytest.mark.parametrize(
    ("now", "gains", "far", "taken"),
    [
        (4, (0.0,) * 5, (0.0,) * 5, 4),  # nothing is better than the plain one, which is in use
        (4, (0.05, 0.03, 0.0, 0.0, 0.0), (0.0,) * 5, 0),
        (4, (0.05, 0.03, 0.0, 0.0, 0.0), (-0.1, 0.0, 0.0, 0.0, 0.0), 1),  # the boldest loses what is unlike
        (4, (-0.1, -0.02, -0.03, -0.2, 0.0), (0.0, 0.0, 0.0, 0.0, -0.1), 1),  # so is plain
        (0, (0.0,) * 4 + (0.04,), (0.0,) * 5, 4),
        (1, (0.0,) * 5, (-0.1,) * 5, len(OFFERED) - 1),
        (1, (0.005,) * 5, (0.0,) * 5, 1),  # less than the error
        (4, (0.0,) * 5 + (0.02,), (0.0,) * 6, 5),  # as it was learned
    ],
)
def test_judgments_choose_the_best_that_loses_nothing_unlike_what_was_clicked(now, gains, far, taken):
    assert BY_JUDGMENTS[:4] == OFFERED
    compared = [
        Compared(Preference(gain, 0.01, 200), Preference(unlike, 0.01, 60))
        for gain, unlike in zip(gains, far, strict=True)
    ]
    assert choose_by_judgments(now, compared) == taken


def test_by_judgments_the_form_in_use_is_the_plain_one_until_another_is_better(world):
    """What was learned is right for all: nothing beside it helps; where it is wrong, the own ranking does."""
    judge, _ = judge_of(world)
    lists = [world.impression() for _ in range(40)]
    chooser = FormChooserByJudgments(judge, lists)
    right = chooser.choose(1, None, Learned(40.0), OWN)
    assert (right.power, right.own_share, right.raw) == (1.5, 0.0, False)
    assert "judged queries" in right.why
    wrong = Learned(40.0)
    wrong.W = wrong.W[::-1, ::-1].copy()
    other = chooser.choose(2, right, wrong, OWN)
    assert other.own_share > 0
    assert other.usual != 1
    assert "mAP" in other.why
    assert chooser.choose(2, right, wrong, OWN) == other, "the same again"


def test_without_judged_queries_the_plain_form_stays(world):
    judge, _ = judge_of(world, max_queries=0)
    found = FormChooserByJudgments(judge, []).choose(1, None, Learned(), OWN)
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
    assert not any(one.raw for one in BY_JUDGMENTS)
    assert FormChoice.from_json(raw.to_json()) == raw
    assert raw.to_json()["score"] == "raw"
    for other in OFFERED:
        assert "score" not in other.to_json(), "as releases before it write it"
        assert FormChoice.from_json(other.to_json()) == other


def test_where_raw_scores_were_chosen_the_first_form_is_the_one_in_use(world):
    chooser, learned = chooser_of(world, LEAST_LISTS - 1), Learned()
    found = chooser.choose(2, FormChoice(1.0, 0.0, raw=True), learned, OWN)
    assert (found.power, found.own_share, found.raw) == (1.5, 0.3, False)
