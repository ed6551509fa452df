"""Whose lists decide: a source that sends many counts as others do, and honest ones lose nothing."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from daemon.validate.comparing import Scored, compare, order_bets, with_trained
from daemon.validate.evidence import Comparison, Standing, Weighed, weigh
from daemon.validate.preferences import balanced, bets_of, outcomes
from daemon.validate.race import NO_RACE, OrderBets
from daemon.validate.sources import MOST, counted_lists, only_counted
from daemon.versions.verdict import SourceShare
from streams.codec import encode_impression
from streams.event import FIRST, SECOND, Draft, DraftModel, Impression, ObjectRef
from tests.daemon.validate import test_makers, test_prequential
from tests.daemon.validate.helpers import judge_of, turn, usable
from tests.daemon.validate.test_preferences import examined, lists_of, shown_order
from tests.daemon.validate.test_preferences import usable as tells
from tests.daemon.validate.test_race import ABOVE, ALL, ALPHA, RULE, panel_of, scores_of


def lists_by(*sources):
    """One list of each of these sources."""
    query, shown = ObjectRef("q"), (ObjectRef("a"), ObjectRef("b"))
    return [Impression(f"i{n}", n, query, shown, (0,), source=one) for n, one in enumerate(sources)]


def test_without_sources_or_with_few_lists_of_each_all_count():
    for sources in ([], [None] * 9, [f"s{n}" for n in range(9)], [f"s{n // 5}" for n in range(45)]):
        assert counted_lists(lists_by(*sources))[0].all()


def test_of_a_source_with_many_lists_as_many_count_as_twice_the_median():
    sources = ["bot"] * 40 + [f"u{n // 3}" for n in range(30)] + [None] * 20
    counted, strongest = counted_lists(lists_by(*sources))
    assert Counter(one for one, counts in zip(sources, counted, strict=True) if not counts) == {"bot": 34}
    assert strongest == SourceShare(40, 90, 6)
    assert strongest.share == pytest.approx(40 / 90)
    assert MOST == 2


def test_which_lists_count_depends_on_no_click_and_on_no_place():
    lists = lists_by(*["bot"] * 40, *[f"u{n}" for n in range(30)])
    counted = counted_lists(lists)[0]
    other = counted_lists([replace(one, clicked=(1,)) for one in lists])[0]
    turned = counted_lists(lists[::-1])[0][::-1]
    assert np.array_equal(counted, other)
    assert np.array_equal(counted, turned)
    assert not counted[:2].all(), "they are not simply the first"


@pytest.mark.parametrize("sources", [["shop"] * 50, ["shop"] * 50 + [None] * 50, ["a"] * 50 + ["b"] * 2])
def test_of_two_sources_nothing_tells_which_is_unlike_others(sources):
    counted, strongest = counted_lists(lists_by(*sources))
    assert counted.all()
    assert (strongest.lists, strongest.counted) == (50, 50)


def test_where_each_list_has_a_source_of_its_own_bets_are_the_same(world):
    lists = usable(world, 60)
    fresh, rng = np.arange(60) >= 25, np.random.default_rng(0)
    panel = panel_of(world, lists)
    arms, given = scores_of(panel, rng)
    sessions = [replace(one, source=f"session {at}") for at, one in enumerate(lists)]
    for named in (sessions, [replace(one, source=f"user {at // 5}") for at, one in enumerate(lists)]):
        found = order_bets(panel_of(world, named), arms, given, fresh, ALL)
        assert found == order_bets(panel, arms, given, fresh, ALL)


def test_lists_that_do_not_count_tell_nothing(world):
    """Neither by themselves, nor by the shares of clicks with which others are balanced."""
    lists = usable(world, 60)
    sources = ["bot" if at % 2 else f"u{at // 4}" for at in range(60)]
    named = [replace(one, source=source) for one, source in zip(lists, sources, strict=True)]
    counted = counted_lists(named)[0]
    assert counted.sum() == 34
    panel, fresh = panel_of(world, named), np.ones(60, bool)
    arms, given = scores_of(panel, np.random.default_rng(0))
    without = [one for one, counts in zip(lists, counted, strict=True) if counts]
    left = {name: one[counted] for name, one in arms.items()}
    rest = panel_of(world, without)
    width = rest.lists.valid.shape[1]
    left, known = {name: one[:, :width] for name, one in left.items()}, given[counted][:, :width]
    found, wanted = (
        order_bets(panel, arms, given, fresh, ALL),
        order_bets(rest, left, known, np.ones(34, bool), ALL),
    )
    assert found.own.keys() == wanted.own.keys()
    for name in arms:
        assert sorted(found.own[name]) == pytest.approx(sorted(wanted.own[name]))
    assert found.lead[ABOVE] == pytest.approx(wanted.lead[ABOVE])
    looks = [Scored({}, arms[ALL]), Scored({}, given), Scored({}, given), Scored({}, given)]
    states = ((1, 10), (0, 0), (0, 0), (0, 0))
    seen = compare(panel, looks, states, fresh, {})
    looks = [Scored({}, one.scores[counted][:, :width]) for one in looks]
    by_hand = compare(rest, looks, states, fresh[:34], {})
    assert seen.fresh == pytest.approx(by_hand.fresh)
    assert seen.higher == pytest.approx(by_hand.higher)
    assert (seen.lists, by_hand.lists) == (60, 34), "all of them were taken"
    assert seen.strongest == SourceShare(30, 60, 4)


def test_the_teams_of_lists_that_do_not_count_tell_nothing(world):
    models = DraftModel("own", 0, 0), DraftModel("latest", 1, 10)
    sources = ["bot" if at % 2 else f"u{at // 4}" for at in range(60)]
    lists = [
        replace(one, source=source, draft=Draft(models, tuple((FIRST, SECOND)[place % 2] for place in shown)))
        for one, source in zip(usable(world, 60), sources, strict=True)
        for shown in [range(len(one.shown))]
    ]
    panel, counted = panel_of(world, lists), counted_lists(lists)[0]
    looks = [Scored({}, np.zeros(panel.lists.valid.shape, np.float32)) for _ in range(4)]
    states = ((1, 10), (0, 0), (0, 0), (0, 0))
    seen = compare(panel, looks, states, np.ones(60, bool), {})
    told = np.where(counted, outcomes(lists, (0, 0)), np.nan)
    assert seen.fresh == bets_of(told, panel.in_time(panel.group).tolist())
    assert (seen.interleaved, counted.sum()) == (34, 34)
    known = told[~np.isnan(told)]
    assert seen.higher == pytest.approx(np.average(known > 0, weights=np.abs(known)))


def test_an_entry_says_what_the_strongest_source_gave_and_not_who_it_is():
    strongest = SourceShare(40, 90, 6)
    held = Comparison((), (), (), (), 90, {0: 90}, strongest=strongest)
    standing, outcome = weigh(Standing(), RULE, 1, 0, held)
    found = Weighed(1, 0, standing, outcome, RULE, held).to_json()
    assert json.loads(json.dumps(found))["strongest_source"] == {"lists": 40, "of": 90, "counted": 6}
    alone = Weighed(1, 0, standing, outcome, RULE, replace(held, strongest=None)).to_json()
    assert found.keys() - alone.keys() == {"strongest_source"}
    for before in (None, SourceShare(10, 90, 6), SourceShare(60, 90, 6)):
        both = with_trained(held, replace(held, strongest=before))
        assert both.strongest == (before if before and before.lists == 60 else strongest)
    assert with_trained(replace(held, strongest=None), replace(held, strongest=None)).strongest is None


def test_the_ledger_and_the_answer_say_what_one_source_gave(world, start):
    world.publish()
    validator, _ = start(world, **test_prequential.BY_CLICKS)
    for _ in range(2):
        held, trained = usable(world, 40), test_prequential.marked(usable(world, 60))
        for at, one in enumerate([*held, *trained]):
            source = "anna of the shop" if at % 2 else f"u{world.serial}-{at // 4}"
            world.send([encode_impression(replace(one, source=source))])
        world.learn(300)
        world.publish(watermark=test_prequential.newest_ms(world))
        while turn(validator) is not None:
            pass
    entries = [entry for entry in world.ledger.entries() if "evidence" in entry.measures]
    found = entries[-1].measures["evidence"]["strongest_source"]
    assert (found["lists"] / found["of"], found["counted"]) == (0.5, 4)
    said = f"; one source gave 50 % of the lists, of which 4 in {found['lists']} count"
    assert entries[-1].measures["answer"]["sentence"].endswith(said)
    assert "anna of the shop" not in json.dumps([entry.measures for entry in entries])


class Loop(test_makers.Loop):
    """Lists in an order of chance (of version 7), of users who come again, and of a program."""

    def __post_init__(self):
        super().__post_init__()
        self.noise[7], self.scores[7] = 99.0, []

    def mixed(self, count, users, bot=0.0, clicks=None):
        """users: draws who has the next list of a user. bot: the share of a program, which always clicks what
        `clicks`, a version and a sign, puts first."""
        for _ in range(count):
            before = self.held
            while self.held == before:
                self.lists(1, 7)
            source, clicked = users(), self.window[-1].clicked
            if self.rng.random() < bot:
                version, sign = clicks
                source, clicked = source and "bot", (int(np.argmax(sign * self.scores[version][-1])),)
            self.window[-1] = replace(self.window[-1], source=source, clicked=clicked)

    def judged(self, version, **how):
        """After ten looks."""
        for _ in range(10):
            self.mixed(200, **how)
            self.judge(version)
        return self


@pytest.fixture
def loop_of(world):
    objects = judge_of(world)[1]
    return lambda: Loop(objects)


def each_has(count):
    """Users with so many lists each, one after the other."""
    numbers = itertools.count()
    return lambda: f"u{next(numbers) // count}"


def geometric(mean, rng):
    """As many as chance gives, in any order."""
    waiting = []

    def user():
        if len(waiting) < 100:
            name = f"u{rng.integers(1 << 40)}"
            waiting.extend([name] * rng.geometric(1 / mean))
        return waiting.pop(rng.integers(len(waiting)))

    return user


@pytest.mark.parametrize(("version", "sign"), [(1, -1), (9, 1)], ids=["against better", "for worse"])
def test_a_program_with_half_of_the_lists_decides_without_sources_and_not_with_them(loop_of, version, sign):
    known, unknown, honest = loop_of(), loop_of(), loop_of()
    known.judged(version, users=each_has(5), bot=0.5, clicks=(version, sign))
    unknown.judged(version, users=lambda: None, bot=0.5, clicks=(version, sign))
    honest.judged(version, users=each_has(5))
    right = 0 if version == 9 else version
    assert (known.best, unknown.best, honest.best) == (right, version - right, right)
    assert re.search(r"; one source gave [45]\d % of the lists, of which \d+ in \d+ count", known.said[-1][1])
    assert not any("one source" in text for _, text in (*unknown.said, *honest.said))
    assert known.standing.line.found(ALPHA) == ("superior" if right else "inferior")


def test_users_with_lists_of_their_own_lose_little_evidence(loop_of):
    def capital(users):
        return loop_of().judged(1, users=users).standing.line.above.log

    today = capital(lambda: None)
    kept = {mean: capital(geometric(mean, np.random.default_rng(1))) / today for mean in (1.5, 2, 3, 5)}
    print("evidence of users with so many lists on average:", kept)
    assert today > 30
    assert capital(each_has(5)) == capital(each_has(1)) == today
    assert min(kept.values()) > 0.7


STREAMS, LISTS, AT_ONCE, LENGTH = 1_000, 300, 50, 5


def stream_without_preference(rng):
    """Clicks by place alone, half of them of a program, which likes other places than users do."""
    bot = rng.random(2 * LISTS) < 0.5
    seen = np.where(bot[:, None], np.linspace(0.1, 0.9, LENGTH), 0.6 * examined(LENGTH))
    clicked = rng.random(seen.shape) < seen
    told = np.flatnonzero(tells(clicked))[:LISTS]
    lists, users = lists_of(clicked[told]), rng.integers(0, 40, len(told))
    sources = ["bot" if of else f"u{user}" for of, user in zip(bot[told], users, strict=True)]
    shape = lists.clicked.shape
    own = rng.uniform(0, 2) * shown_order(*shape) + rng.standard_normal(shape)
    arm = rng.standard_normal(shape) + rng.uniform(-1, 1) * shown_order(*shape)
    return lists_by(*sources), lists, own, {ALL: arm + 3 * own, ABOVE: arm}


def test_of_a_thousand_streams_without_preference_something_leads_in_one_of_twenty_at_most():
    """Looked at after each part, on all lists so far, as a window that has room for them."""
    rng = np.random.default_rng(3)
    leads = bets = 0
    for _ in range(STREAMS):
        impressions, lists, own, arms = stream_without_preference(rng)
        race, ever = NO_RACE, False
        for start in range(0, LISTS, AT_ONCE):
            end = slice(0, start + AT_ONCE)
            counted = counted_lists(impressions[end])[0]
            known = only_counted(lists.at(end), counted)
            told = {name: balanced(one[end], own[end], known) for name, one in arms.items()}
            part = {name: values[start:][counted[start:]].tolist() for name, values in told.items()}
            bets += len(part[ALL])
            race = race.take(OrderBets(part, {}, LENGTH), ALPHA)
            ever |= race.leader is not None
        leads += ever
    print(f"false leads of {STREAMS:,} streams: {leads / STREAMS:.4f}, {bets / STREAMS:.0f} bets each")
    assert leads / STREAMS <= ALPHA
    assert 0.4 * LISTS < bets / STREAMS < 0.6 * LISTS, "the program has its lists, or users lose theirs"
