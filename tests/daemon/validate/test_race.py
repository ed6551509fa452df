"""Which arm leads, and whether any does: a fold over bets, and its way through what a judgement says."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from daemon.validate import race as race_module
from daemon.validate.betting import STAKES, Capital, log_capital
from daemon.validate.comparing import order_bets
from daemon.validate.evidence import Comparison, EvidenceRule, Standing, weigh
from daemon.validate.preferences import balanced, bets_of
from daemon.validate.race import (
    FORM,
    NO_BETS,
    NO_RACE,
    OWN_SHARES,
    SPREAD,
    Duel,
    OrderBets,
    RaceStanding,
    log_mean,
    standardized,
)
from daemon.validate.scorer import MappedObjects, make_panel
from daemon.validate.sources import counted_lists
from streams.event import FIRST, SECOND, Draft, DraftModel
from tests.daemon.validate.helpers import usable
from tests.daemon.validate.test_preferences import examined, lists_of, shown_order
from tests.daemon.validate.test_preferences import usable as tells

ALPHA = 0.05
JSON = TypeAdapter(RaceStanding)
ALL, ABOVE = ("all", 3.0), ("above", 3.0)
GAIN, LOSS, EVEN = 0.05, -0.05, 0.0


def told(mean, count, seed=0):
    found = 0.2 * np.random.default_rng(seed).standard_normal(count)
    return np.clip(mean + found - found.sum() / max(1, count), -1, 1).tolist()


def bets(count=300, top=40, lead=None, **means):
    """Bets of one candidate per arm."""
    own = {(name, 3.0): told(mean, count, seed) for seed, (name, mean) in enumerate(means.items())}
    beside = {(name, 3.0): told(mean, count, 9 + at) for at, (name, mean) in enumerate((lead or {}).items())}
    return OrderBets(own, beside, top)


LED = NO_RACE.take(bets(all=GAIN, above=EVEN), ALPHA)


def test_what_is_surely_better_leads():
    assert LED.leader == ALL
    assert LED.choice.to_json() == {"arm": "all", "own_share": 3.0, "top": 40}
    assert (LED.lead, LED.falls) == ({}, 0)
    assert NO_RACE.choice is None


@pytest.mark.parametrize("mean", [EVEN, LOSS])
def test_what_is_not_better_does_not(mean):
    race = NO_RACE
    for _ in range(20):
        race = race.take(bets(all=mean, above=mean), ALPHA)
    assert race.leader is None
    assert set(race.own) == {ALL, ABOVE}


def test_several_judgements_prove_together():
    race, leaders = NO_RACE, []
    for seed in range(6):
        race = race.take(OrderBets({ALL: told(GAIN, 25, seed)}, {}, 40), ALPHA)
        leaders.append(race.leader)
    assert leaders[0] is None
    assert leaders[-1] == ALL


def test_no_new_lists_change_nothing():
    """Or lists that two versions made together, and those that are nearer to every candidate."""
    few = NO_RACE.take(bets(20, all=GAIN), ALPHA)
    assert few.take(OrderBets({ALL: ()}), ALPHA) == few
    assert LED.take(OrderBets({ALL: (), ABOVE: ()}), ALPHA) == replace(LED, lead={ABOVE: Duel()})


def test_another_takes_the_lead_where_it_is_surely_ahead_of_the_one_that_has_it():
    race = LED.take(bets(100, all=GAIN, above=GAIN, lead={"above": EVEN}), ALPHA)
    assert race.leader == ALL
    assert race.lead[ABOVE].bets > 90
    race = race.take(bets(300, all=GAIN, above=2 * GAIN, lead={"above": GAIN}), ALPHA)
    assert (race.leader, race.lead, race.hold) == (ABOVE, {}, Capital())
    behind = LED.take(bets(300, all=GAIN, above=LOSS, lead={"above": GAIN}), ALPHA)
    assert behind.leader == ALL, "it is below the user's own ranking"


def test_a_leader_that_loses_leads_no_more_and_the_next_proof_is_harder():
    race, turns = LED, 0
    while race.leader is not None:
        race, turns = race.take(bets(100, all=LOSS, above=EVEN, lead={"above": GAIN / 9}), ALPHA), turns + 1
    assert 1 < turns < 40
    assert (race.falls, race.hold, race.top) == (1, Capital(), 40)
    assert race.own == {ALL: Duel(), ABOVE: Duel()}, "all begin anew"
    proof = next(n for n in range(5, 300, 5) if NO_RACE.take(bets(n, all=GAIN), ALPHA).leader)
    again = next(n for n in range(5, 300, 5) if race.take(bets(n, all=GAIN), ALPHA).leader)
    assert again >= proof
    alone = replace(NO_RACE, falls=1)
    for count in range(5, 300, 5):
        capital = log_mean([one.capital.log for one in alone.take(bets(count, all=GAIN), ALPHA).own.values()])
        leads = alone.take(bets(count, all=GAIN), ALPHA).leader is not None
        assert leads is (capital >= -math.log(ALPHA / 2))


def test_an_arm_that_is_gone_leads_no_more():
    assert LED.take(bets(10, above=EVEN), ALPHA).leader is None
    assert set(LED.take(bets(10, above=EVEN), ALPHA).own) == {ABOVE}
    next_one = NO_RACE.take(bets(all=2 * GAIN, above=GAIN), ALPHA).take(bets(10, above=GAIN), ALPHA)
    assert next_one.leader == ABOVE, "it was proven, too"
    assert LED.take(NO_BETS, ALPHA) == replace(NO_RACE, top=40)


def test_arms_are_dropped_where_each_of_their_candidates_is_surely_worse_than_the_leader():
    assert NO_RACE.take(bets(all=EVEN), ALPHA).dropped(ALPHA) == ()
    assert LED.dropped(ALPHA) == (), "nothing is known since it leads"
    worse = LED.take(bets(600, all=GAIN, above=EVEN, lead={"above": LOSS}), ALPHA)
    assert worse.dropped(ALPHA) == ("above",)
    other = ("above", 10.0)
    one_left = replace(worse, own={**worse.own, other: Duel()}, lead={**worse.lead, other: Duel()})
    assert one_left.dropped(ALPHA) == ()
    unknown = replace(worse, own={**worse.own, other: Duel()})
    assert unknown.dropped(ALPHA) == ()
    same_arm = replace(worse, lead={("all", 1.0): worse.lead[ABOVE]}, own={ALL: Duel(), ("all", 1.0): Duel()})
    assert same_arm.dropped(ALPHA) == ()


def test_of_candidates_that_cannot_be_told_apart_the_first_arm_leads():
    """With the share of it that has the largest lower bound."""
    first, second = told(GAIN, 400), told(GAIN + 0.002, 400)
    one, two, other = ("all", 1.0), ("all", 3.0), ("above", 1.0)
    race = NO_RACE.take(OrderBets({one: told(GAIN - 0.02, 400), two: first, other: second}, {}, 40), ALPHA)
    assert race.leader == two
    race = NO_RACE.take(OrderBets({other: second, one: first, two: first}, {}, 40), ALPHA)
    assert race.leader == other
    far = NO_RACE.take(OrderBets({one: first, other: told(4 * GAIN, 400)}, {}, 40), ALPHA)
    assert far.leader == other


def test_the_form_leads_only_where_versions_search():
    own = {ALL: told(GAIN, 400), FORM: told(4 * GAIN, 400)}
    order = OrderBets(own, {FORM: told(2 * GAIN, 400)}, 40)
    searching = NO_RACE.take(order, ALPHA, reach=True)
    assert (searching.leader, searching.choice) == (FORM, None), "lists are ordered by the form"
    ordering = NO_RACE.take(order, ALPHA)
    assert ordering.leader == ALL
    assert ordering.take(order, ALPHA).leader == ALL
    assert ordering.take(order, ALPHA, reach=True).leader == FORM
    assert searching.take(order, ALPHA).leader == ALL, "what searched has lost"
    assert NO_RACE.take(replace(order, own={ALL: told(EVEN, 400), FORM: own[FORM]}), ALPHA).leader is None
    assert JSON.validate_python(json.loads(json.dumps(JSON.dump_python(searching, mode="json")))) == searching
    behind = OrderBets({ALL: told(GAIN, 900), FORM: told(LOSS, 900)}, {FORM: told(-2 * GAIN, 900)}, 40)
    assert NO_RACE.take(behind, ALPHA).take(behind, ALPHA).dropped(ALPHA) == (), "it is no arm"


def test_it_is_the_same_after_the_ledger():
    race = LED.take(bets(50, all=GAIN, above=EVEN, lead={"above": LOSS}), ALPHA)
    for one in (race, NO_RACE, replace(race, falls=2)):
        again = JSON.validate_python(json.loads(json.dumps(JSON.dump_python(one, mode="json"))))
        assert again == one
        more = bets(40, all=GAIN, above=GAIN, lead={"above": GAIN})
        assert again.take(more, ALPHA) == one.take(more, ALPHA)
    said = JSON.dump_python(race, mode="json")
    for wrong in ({**said, "hold": [0.0]}, {**said, "own": [[["all", 3.0], 1.0]]}, {**said, "leader": 5}):
        with pytest.raises((TypeError, ValueError)):
            JSON.validate_python(wrong)


def test_means_and_errors_forget_and_capital_does_not():
    values = [*told(LOSS, 3_000), *told(GAIN, 3_000, 1)]
    duel = Duel().take(values)
    weights = np.exp(-np.arange(5_999, -1, -1) / race_module.MEMORY)
    assert duel.bets == pytest.approx(weights.sum())
    assert duel.mean == pytest.approx(np.average(values, weights=weights))
    assert duel.mean > 0.8 * GAIN
    assert duel.lower < duel.mean
    halves = Duel().take(values[:1_234]).take(values[1_234:])
    assert (halves.bets, halves.mean) == pytest.approx((duel.bets, duel.mean))


def test_bets_after_earlier_ones_are_of_the_candidates_that_are_judged():
    earlier = OrderBets({ALL: [0.1], ("gone", 1.0): [0.2]}, {ALL: [0.3]}, 20)
    both = OrderBets({ALL: [0.4], ABOVE: []}, {}, 0).after(earlier)
    assert both == OrderBets({ALL: [0.1, 0.4], ABOVE: []}, {ALL: [0.3], ABOVE: []}, 20)
    assert NO_BETS.after(earlier).own == {}


def test_what_a_bet_is_divided_by_came_before_it():
    values = np.array(told(EVEN, 400))
    found = standardized(values, 7.0, 0.3)
    for place in (0, 1, 250, 399):
        deviation = math.sqrt((0.3 + sum(values[:place] ** 2) + 0.25) / (7 + place + 1))
        assert found[place] == pytest.approx(np.clip(values[place] / (SPREAD * deviation), -1, 1))
    other = values.copy()
    other[250:] *= -0.5
    assert np.array_equal(standardized(other, 7.0, 0.3)[:250], found[:250])


def test_a_mean_of_0_is_seldom_taken_for_more_by_standardized_bets():
    """Of skewed differences, of which single ones are far out."""
    rng = np.random.default_rng(11)
    highest = np.zeros(2_000)
    for stream in range(len(highest)):
        told = np.where(rng.random(600) < 0.1, 0.9, -0.1) * rng.uniform(0.1, 1)
        logs = np.cumsum(np.log1p(standardized(told, 0, 0.0)[:, None] * STAKES), axis=0)
        highest[stream] = log_capital(logs).max()
    assert (highest >= -math.log(0.05)).mean() <= 0.05


STREAMS, LISTS, AT_ONCE, LENGTH = 1_000, 400, 50, 5


def candidates_without_preference(rng):
    """One stream: clicks by place alone, a user's own ranking that did not make the lists, and six
    candidates, which are it with more or less of two other rankings."""
    clicked = rng.random((2 * LISTS, LENGTH)) < 0.6 * examined(LENGTH)
    lists = lists_of(clicked[tells(clicked)][:LISTS])
    shape = len(lists.clicked), LENGTH
    own = rng.uniform(0, 2) * shown_order(*shape) + rng.standard_normal(shape)
    arms = {"all": rng.standard_normal(shape) + rng.uniform(-1, 1) * shown_order(*shape)}
    arms["above"] = arms["all"] + rng.standard_normal(shape)
    scores = {(name, share): arm + share * own for name, arm in arms.items() for share in OWN_SHARES}
    return {name: balanced(one, own, lists) for name, one in scores.items()}


def test_of_a_thousand_streams_without_preference_something_leads_in_one_of_twenty_at_most():
    """Looked at after each part. Beside it whatever is two errors above, of all candidates."""
    rng = np.random.default_rng(7)
    leads = fixed = 0
    for _ in range(STREAMS):
        found = candidates_without_preference(rng)
        race, ever, peeked = NO_RACE, False, False
        for start in range(0, LISTS, AT_ONCE):
            part = {name: values[start : start + AT_ONCE].tolist() for name, values in found.items()}
            race = race.take(OrderBets(part, {}, LENGTH), ALPHA)
            ever |= race.leader is not None
            seen = [values[: start + AT_ONCE] for values in found.values()]
            peeked |= any(one.mean() > 2 * one.std() / math.sqrt(len(one)) for one in seen)
        leads, fixed = leads + ever, fixed + peeked
    print(f"false leads of {STREAMS:,} streams: {leads / STREAMS:.4f}; two errors: {fixed / STREAMS:.4f}")
    assert leads / STREAMS <= ALPHA
    assert fixed / STREAMS > 2 * ALPHA, "anything would do: nothing is tested"


def panel_of(world, lists):
    return make_panel(MappedObjects(world.space, world.catalog, world.fitted), lists)


def scores_of(panel, rng):
    """Of two arms, of which one knows the clicks, and of a user's own ranking that did not make the lists."""
    shape = panel.lists.valid.shape
    clicked = panel.by_time.clicked
    given = rng.standard_normal(shape).astype(np.float32)
    arms = {ALL: given + clicked, ABOVE: rng.standard_normal(shape)}
    return {name: one.astype(np.float32) for name, one in arms.items()}, given


def test_every_candidate_bets_on_what_is_new_once_per_query(world):
    lists = usable(world, 60)
    panel, fresh = panel_of(world, lists), np.arange(60) >= 25
    arms, given = scores_of(panel, np.random.default_rng(0))
    found = order_bets(panel, arms, given, fresh, ALL)
    assert (list(found.own), list(found.lead)) == ([ALL, ABOVE], [ABOVE]), "in the order of the arms"
    ordered = panel.by_time
    clusters = panel.in_time(panel.group).tolist()
    for name, values in found.own.items():
        by_hand = balanced(arms[name], given, ordered)
        assert values == bets_of(np.where(fresh, by_hand, np.nan), clusters)
        assert len(values) == len({clusters[at] for at in range(25, 60)})
    assert np.mean(found.own[ALL]) > 0.05
    against = balanced(arms[ABOVE], arms[ALL], ordered)
    assert found.lead[ABOVE] == bets_of(np.where(fresh, against, np.nan), clusters)
    lengths = [len(panel.impressions[at].shown) for at in np.argsort(panel.order)[25:]]
    assert found.top == int(np.median(lengths))
    assert order_bets(panel, arms, given, fresh, None).lead == {}
    assert order_bets(panel, arms, given, fresh, ("gone", 3.0)).lead == {}


def test_how_many_are_put_in_order_is_by_all_lists_of_the_window_that_count(world):
    """That no two versions made, and not all of a source that has most of them; else few new ones decide."""
    lists = [replace(one, source=f"s{at if at < 20 else 0}") for at, one in enumerate(usable(world, 60))]
    panel, fresh, asked = panel_of(world, lists), np.arange(60) >= 10, []
    arms, given = scores_of(panel, np.random.default_rng(0))
    found = order_bets(panel, arms, given, fresh, None, top=lambda where: asked.append(where) or 7)
    assert found.top == 7
    (where,) = asked
    assert where.tolist() == counted_lists(lists)[0].tolist()
    assert 10 < where.sum() < 60
    lengths = [len(one.shown) for one, bet_on in zip(lists, where & fresh, strict=True) if bet_on]
    assert order_bets(panel, arms, given, fresh, None).top == int(np.median(lengths))
    # lists in the order of the user's own ranking are of it, although a filter left out its first
    made = np.tile(-np.arange(given.shape[1], dtype=np.float32), (60, 1))
    assert order_bets(panel, arms, made, fresh, None, top=lambda _: 1).top == int(np.median(lengths))


def test_lists_that_are_nearer_to_a_candidate_are_not_bet_on(world):
    """As those that it ordered itself."""
    lists = usable(world, 60)
    panel, fresh = panel_of(world, lists), np.ones(60, bool)
    arms, given = scores_of(panel, np.random.default_rng(0))
    arms[ALL] = np.tile(-100 * np.arange(given.shape[1], dtype=np.float32), (60, 1))
    found = order_bets(panel, arms, given, fresh, ABOVE)
    assert (found.own[ALL], found.lead[ALL]) == ([], [])
    assert len(found.own[ABOVE]) > 30
    race = LED.take(found, ALPHA)
    assert race.leader == ALL, "its own lists say nothing against it"


@pytest.mark.parametrize("why", ["nothing new", "interleaved"])
def test_where_no_list_tells_every_candidate_is_named(world, why):
    lists, fresh = usable(world, 6), np.full(6, why == "interleaved")
    if why == "interleaved":
        models = DraftModel("own", 0, 0), DraftModel("latest", 1, 9)
        lists = [
            replace(one, draft=Draft(models, tuple((FIRST, SECOND)[at % 2] for at in range(len(one.shown)))))
            for one in lists
        ]
    panel = panel_of(world, lists)
    arms, given = scores_of(panel, np.random.default_rng(0))
    found = order_bets(panel, arms, given, fresh, ALL)
    assert found.own == {ALL: (), ABOVE: ()}
    assert found.top == 0


def test_a_list_alone_is_bet_on(world):
    panel = panel_of(world, usable(world, 1))
    arms, given = scores_of(panel, np.random.default_rng(0))
    found = order_bets(panel, arms, given, np.ones(1, bool), None)
    assert list(map(tuple, found.own.values())) == [(0.0,)] * 2, "nothing is known of its places yet"
    assert NO_RACE.take(found, ALPHA).leader is None


RULE = EvidenceRule(ALPHA, 1_000)


def seen(own, count=300, order=NO_BETS, **more):
    fresh = told(own, count, 5)
    return Comparison(fresh, fresh, (), (), count, {0: count}, order=order, **more)


BY_ORDER = weigh(Standing(), RULE, 1, 0, seen(EVEN, 60, bets(all=GAIN, above=EVEN)))[0]


def test_a_version_that_only_orders_lists_is_best_and_does_not_search():
    standing, outcome = weigh(Standing(), RULE, 1, 0, seen(LOSS, 300, bets(all=GAIN, above=EVEN)))
    assert (outcome.promoted, outcome.reach, outcome.fell) == (True, False, False)
    assert (standing.anchor, standing.race.leader) == (0, ALL)
    assert not outcome.improved
    assert not outcome.decided, "nothing says that its arms have stopped learning"
    plain = weigh(Standing(), RULE, 1, 0, seen(LOSS, 300, bets(all=EVEN, above=EVEN)))[1]
    assert (plain.promoted, plain.decided) == (False, True)


def test_a_form_that_orders_better_than_the_arms_takes_nothing_from_what_only_orders():
    order = bets(200, all=GAIN, above=EVEN)
    order = replace(order, own={**order.own, FORM: told(0.2, 200)}, lead={FORM: told(0.1, 200)})
    standing, outcome = weigh(BY_ORDER, RULE, 2, 1, seen(EVEN, 20, order))
    assert (outcome.promoted, outcome.fell, standing.race.leader) == (True, False, ALL)
    standing, outcome = weigh(replace(BY_ORDER, anchor=1), RULE, 2, 1, seen(EVEN, 20, order))
    assert (outcome.promoted, outcome.reach) == (True, True)
    assert (standing.race.leader, standing.race.choice) == (FORM, None)


def test_it_searches_as_soon_as_that_is_proven():
    standing, outcome = weigh(BY_ORDER, RULE, 2, 1, seen(2 * GAIN, 300, bets(50, all=GAIN, above=EVEN)))
    assert (outcome.promoted, outcome.reach) == (True, True)
    assert (standing.anchor, standing.race.leader) == (2, ALL)
    standing, outcome = weigh(standing, RULE, 3, 2, seen(EVEN, 20, bets(50, all=GAIN, above=EVEN)))
    assert (outcome.promoted, outcome.reach) == (True, True)


def test_without_new_lists_the_order_stands():
    order = OrderBets({ALL: (), ABOVE: ()})
    standing, outcome = weigh(BY_ORDER, RULE, 2, 1, seen(EVEN, 0, order))
    assert (outcome.promoted, outcome.reach, outcome.fell) == (True, False, False)
    assert standing.race.leader == ALL


@pytest.mark.parametrize("order", [bets(900, all=-0.1, above=-0.1, lead={"above": EVEN}), NO_BETS])
def test_what_only_orders_goes_where_its_order_falls_or_its_arms_are_gone(order):
    standing, outcome = weigh(BY_ORDER, RULE, 2, 1, seen(EVEN, 20, order))
    assert (outcome.promoted, outcome.fell) == (False, True)
    assert standing.race.leader is None
    searching = replace(BY_ORDER, anchor=1)
    standing, outcome = weigh(searching, RULE, 2, 1, seen(EVEN, 20, order))
    assert (outcome.promoted, outcome.fell, outcome.reach) == (True, False, True), "it goes on to search"
    assert standing.race.choice is None


def test_what_searches_falls_and_its_order_is_kept():
    searching = replace(BY_ORDER, anchor=1)
    lost = seen(LOSS, 300, bets(20, all=GAIN, above=EVEN))
    standing, outcome = weigh(searching, RULE, 2, 1, replace(lost, fresh_best=told(-0.1, 600)))
    assert (outcome.fell, standing.anchor, standing.race.leader) == (True, 0, ALL)
    standing, outcome = weigh(standing, RULE, 3, 0, seen(LOSS, 30, bets(20, all=GAIN, above=EVEN)))
    assert (outcome.promoted, outcome.reach) == (True, False)


def test_the_race_and_those_that_search_share_the_error():
    assert BY_ORDER.alpha(RULE) == ALPHA / 2
    assert replace(BY_ORDER, falls=1).alpha(RULE) == ALPHA / 4
    assert Standing().alpha(RULE) == ALPHA
    for count in range(5, 200, 5):
        standing, _ = weigh(Standing(), RULE, 1, 0, seen(EVEN, 5, bets(count, all=GAIN)))
        assert (standing.race.leader is not None) is (
            standing.race.own[ALL].capital.log >= -math.log(ALPHA / 2)
        )


def test_an_older_standing_has_no_race():
    said = BY_ORDER.to_json()
    assert Standing.from_json(json.loads(json.dumps(said))) == BY_ORDER
    assert Standing.from_json({name: one for name, one in said.items() if name != "race"}).race == NO_RACE
