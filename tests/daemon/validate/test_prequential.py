"""Lists that are learned from are bet on, too: each once, by a version that has not learned from it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from checkpoints.entries import aliases
from daemon.validate import evaluator
from daemon.validate.betting import STAKES, log_capital
from daemon.validate.comparing import Scored, compare
from daemon.validate.evaluator import LEAST_TRAINED
from daemon.validate.evidence import Bettor, Standing
from daemon.validate.holdout import HeldImpression, Holdout, Window
from daemon.validate.ledger import fold
from daemon.validate.preferences import differences
from daemon.validate.scorer import MappedObjects, make_panel
from daemon.validate.shown import shown_lists
from streams.codec import encode_impression
from streams.event import Impression, ObjectRef
from streams.open import ensure_topic, open_sink, open_source
from tests.daemon.validate.helpers import never, turn, usable
from tests.daemon.validate.test_preferences import ALPHA, examined, lists_of
from tests.daemon.validate.test_preferences import usable as tells

BY_CLICKS = {"validate__judgments": "", "validate__alpha": 1e-4}


def marked(lists):
    return [replace(one, trained=True) for one in lists]


def send(world, *lists):
    world.send([encode_impression(one) for one in lists])


def newest_ms(world):
    return 1000 * world.serial


def highest(told):
    """The largest log capital that bets on each stream ever reach."""
    logs, found = np.zeros((len(told), len(STAKES))), np.zeros(len(told))
    for difference in told.T:
        logs += np.log1p(difference[:, None] * STAKES)
        found = np.maximum(found, log_capital(logs))
    return found


def rounds(world, start, held, trained, count=6, **more):
    """Each: lists come, a version learns from those before it, and is judged. Rounds until one is promoted,
    and the standing then."""
    world.publish()
    validator, inputs = start(world, **{**BY_CLICKS, **more})
    for number in range(count):
        send(world, *usable(world, held), *marked(usable(world, trained)))
        world.learn(300)
        world.publish(watermark=newest_ms(world))
        while turn(validator) is not None:
            pass
        standing = fold(world.ledger.entries(), inputs.rule).standing
        if aliases(world.ledger.entries()).get("best"):
            return number, standing
    return count, standing


def test_what_is_better_is_found_sooner(make_world, start):
    alone, without = rounds(make_world("alone"), start, held=12, trained=0)
    sooner, beside = rounds(make_world("beside"), start, held=12, trained=60)
    assert sooner < alone
    assert without.trained == 0
    assert beside.trained >= 60
    assert beside.lists > beside.trained


def test_the_answer_counts_both(world, start):
    rounds(world, start, held=12, trained=60, count=3, validate__alpha=1e-30)
    told = [entry.measures for entry in world.ledger.entries() if entry.kind == "KEEP"][-1]["answer"]
    standing = world.ledger.entries()[-1].measures["evidence"]["standing"]
    assert standing["trained"] == 120  # the third version's own are left for it to bet on
    assert (
        told["details"][0] == f"{standing['lists']} lists so far, {standing['lists'] - 120} of them held out"
    )


def bets_of(monkeypatch):
    """Which lists that are learned from were bet on by which version, as (version, time)."""
    found = []

    def spied(panel, versions, states, fresh, through, *, alike=True):
        lists = [panel.impressions[place] for place in np.argsort(panel.order)]
        assert {one.trained for one in lists} == {not alike}
        if not alike:
            found.extend(
                (states[0][0], one.ts) for one, is_bet_on in zip(lists, fresh, strict=True) if is_bet_on
            )
        return compare(panel, versions, states, fresh, through, alike=alike)

    monkeypatch.setattr(evaluator, "compare", spied)
    return found


def test_each_list_is_bet_on_once_by_a_version_that_has_not_learned_from_it(world, start, monkeypatch):
    """Also where lists are fed twice, where few of them come, where versions are passed over, after a restart
    and where lists come later than what was learned after them.
    """
    found, learned = bets_of(monkeypatch), {}
    world.publish()
    validator, _ = start(world, **BY_CLICKS)
    before = []
    for number in range(9):
        late = usable(world, 2)
        came = marked(usable(world, 8 if number % 3 == 2 else LEAST_TRAINED))
        send(world, *usable(world, 12), *came, *before)
        world.learn(100)
        learned[world.publish(watermark=newest_ms(world))] = newest_ms(world)
        if number == 4:
            learned[world.publish(watermark=newest_ms(world))] = newest_ms(world)
        if number == 6:
            validator, _ = start(world, **BY_CLICKS)
        while turn(validator) is not None:
            pass
        before = [*came, *marked(late)]
    assert len(found) > 4 * LEAST_TRAINED
    assert len({ts for _, ts in found}) == len(found)
    assert [version for version, _ in found] == sorted(version for version, _ in found)
    assert all(learned[version] < ts for version, ts in found)


def test_few_wait_for_more(world, start):
    world.publish()
    validator, inputs = start(world, **BY_CLICKS)
    seen = []
    for trained in (5, LEAST_TRAINED - 10, 20):
        send(world, *usable(world, 12), *marked(usable(world, trained)))
        world.publish(watermark=newest_ms(world))
        while turn(validator) is not None:
            pass
        standing = fold(world.ledger.entries(), inputs.rule).standing
        seen.append((standing.trained, standing.bettor.version))
    assert seen == [
        (0, 1),
        (0, 1),
        (LEAST_TRAINED + 10, 3),
    ]  # the first five came before anything was learned


def test_lists_that_arms_learn_do_not_make_up_for_few_that_are_learned_from(world, start):
    """How far two rankings usually differ is said by the latter alone."""
    world.publish()
    validator, inputs = start(world, **BY_CLICKS)
    seen = []
    for trained in (5, 10, LEAST_TRAINED):
        send(world, *[replace(one, for_arms=True) for one in usable(world, 60)])
        send(world, *marked(usable(world, trained)))
        world.publish(watermark=newest_ms(world))
        while turn(validator) is not None:
            pass
        standing = fold(world.ledger.entries(), inputs.rule).standing
        seen.append((standing.trained, standing.bettor.version))
    assert seen == [(0, 1), (0, 1), (10 + LEAST_TRAINED, 3)]


def test_a_version_that_is_gone_bets_on_nothing(world, start):
    world.publish()
    validator, inputs = start(world, **BY_CLICKS)
    for number in range(2):
        send(world, *usable(world, 12), *marked(usable(world, LEAST_TRAINED)))
        world.learn(100)
        world.publish(watermark=newest_ms(world))
        if number:
            for name in world.store.list("versions/"):
                if "00000001" in name:
                    world.store.delete(name)
            validator, inputs = start(world, **BY_CLICKS)
        while turn(validator) is not None:
            pass
    standing = fold(world.ledger.entries(), inputs.rule).standing
    assert (standing.trained, standing.bettor) == (0, Bettor(2, newest_ms(world)))


def test_a_standing_of_an_older_release_has_nobody_who_bets():
    said = Standing(trained=7, bettor=Bettor(3, 9_000)).to_json()
    assert Standing.from_json(said).bettor == Bettor(3, 9_000)
    older = {name: value for name, value in said.items() if name not in ("trained", "bettor")}
    assert Standing.from_json(older) == Standing()


def test_means_over_held_out_lists_know_nothing_of_others(make_world, start):
    """Measures, the choice of a form and the wait for enough lists."""
    measured = []
    for name, trained in (("plain", 0), ("mixed", 90)):
        world = make_world(name)
        held, others = usable(world, 30), marked(usable(world, 90))[:trained]
        world.publish()
        world.learn(500)
        world.publish()
        validator, _ = start(world, **BY_CLICKS)
        send(world, *held, *others)
        while turn(validator) is not None:
            pass
        found = [entry.measures for entry in world.ledger.entries() if entry.kind == "KEEP"][-1]
        left_out = ("evidence", "holdout_positions", "state_hash")
        measured.append({name: value for name, value in found.items() if name not in left_out})
    assert measured[0] == measured[1]
    assert measured[0]["impressions"] == 30


def test_they_take_no_room_of_those_that_are_held_out():
    window = Window(4, {0: 0}, spread=8)
    plain = Window(4, {0: 0})
    kept, offset = [], 0
    for number in range(40):
        is_trained = number % 4 != 3
        one = Impression(f"i{number}", number, ObjectRef("q"), (), (), trained=is_trained)
        assert window.add(HeldImpression(0, offset, one)) is not is_trained
        if not is_trained:
            plain.add(HeldImpression(0, len(kept), one))
            kept.append(one)
        offset += 1
    assert [one.impression for one in window] == [one.impression for one in plain] == kept[-4:]
    assert len(window) == 4
    assert [one.impression.ts for one in window.trained()] == [34, 36, 37, 38]
    window.move(0, offset + 32)
    assert (list(window), window.trained()) == ([], [])


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_window_with_both_read_again_at_its_positions_is_the_same(make_world, partitions):
    world = make_world(partitions=partitions)
    ensure_topic(world.address.dead, 1)

    def read(upto=None):
        source, dead = open_source(world.address.holdout), open_sink(world.address.dead)
        holdout = Holdout(
            source, dead, space=world.space, catalog=world.catalog, size=12, spread=4, upto=upto
        )
        more(holdout)
        return holdout

    def more(holdout):
        while not holdout.caught_up():
            holdout.poll(0.0, never)

    def names(holdout):
        return [[one.impression.id for one in found] for found in (holdout.window, holdout.window.trained())]

    def lists(count):
        draw = np.random.default_rng(count)
        return [replace(one, trained=draw.random() < 0.75) for one in usable(world, count)]

    send(world, *lists(50))
    holdout = read()
    send(world, *lists(61))
    more(holdout)
    positions, before = holdout.window.positions, names(holdout)
    assert all(len(found) > 5 for found in before)
    assert names(read()) == before  # after a restart
    send(world, *lists(70))
    assert names(read()) != before
    assert names(read(upto=positions)) == before  # long after


STREAMS, LISTS, BETWEEN, OBJECTS = 1_000, 120, 20, 24


def test_of_a_thousand_streams_that_are_bet_on_and_then_learned_from_at_most_one_in_twenty_is_promoted():
    """Clicks by rank alone, and versions that remember which objects were clicked more than usual at their
    ranks: all that they know is chance. Beside it, bet on by the version that has learned from them: what
    must not be done.
    """
    rng = np.random.default_rng(8)
    before, after = np.zeros((STREAMS, LISTS)), np.zeros((STREAMS, LISTS))
    usual = 0.6 * examined(4)
    for row, leaking in zip(before, after, strict=True):
        clicked = rng.random((2 * LISTS, 4)) < usual
        clicked = clicked[tells(clicked)][:LISTS]
        shown = np.argsort(rng.random((len(clicked), OBJECTS)), axis=1)[:, :4]
        lists, place = lists_of(clicked), -np.tile(np.arange(4.0), (len(clicked), 1))
        known = np.zeros(OBJECTS)
        for start in range(0, len(clicked), BETWEEN):
            part = slice(start, start + BETWEEN)
            like = np.zeros(len(clicked), bool)
            like[part] = True
            if start:
                row[part] = differences(place + 3 * known[shown], place, lists, like)[part]
            np.add.at(known, shown[part], clicked[part] - usual)
            leaking[part] = differences(place + 3 * known[shown], place, lists, like)[part]
    falsely, leaked = ((highest(one) >= -math.log(ALPHA)).mean() for one in (before, after))
    print(
        f"false promotions of {STREAMS:,} streams: {falsely:.4f}; by who has learned from them: {leaked:.4f}"
    )
    assert falsely <= ALPHA
    assert leaked > 10 * ALPHA, "it would not matter who bets: nothing is tested"


def test_how_far_rankings_usually_differ_is_said_by_the_lists_that_are_bet_on_alone(world):
    """Those that a version has learned from are ordered as they were clicked: taken along, they would say
    something of the clicks that came before.
    """
    lists = usable(world, 60)
    panel = make_panel(MappedObjects(world.space, world.catalog, world.fitted), lists)
    shown = shown_lists(lists)
    place = -np.tile(np.arange(float(shown.valid.shape[1])), (60, 1))
    fresh = np.arange(60) >= 30
    noise = np.random.default_rng(1).standard_normal(place.shape)
    found = []
    for learned in (0.0, 9.0):
        scores = place + 4 * noise + np.where(fresh[:, None], 0.0, learned * shown.clicked)
        one, zero = (Scored({}, score) for score in (scores, place))
        states = (1, 9), (0, 0), (0, 0), (0, 0)
        found.append(
            [
                compare(panel, (one, zero, zero, zero), states, fresh, {}, alike=alike).fresh
                for alike in (False, True)
            ]
        )
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
