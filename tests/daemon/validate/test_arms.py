"""Versions with arms, judged on a log: promoted to order given lists, then to search, and what is written."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs

from checkpoints.entries import aliases
from daemon.validate.holdout import is_usable
from daemon.validate.ledger import fold
from daemon.validate.race import OWN_SHARES
from daemon.versions.order import OrderChoice, answering
from learners.block import DenseBlock
from learners.maps import SpaceMap, ViewConfig
from streams.codec import encode_impression
from tests.daemon.validate.conftest import DIM
from tests.daemon.validate.helpers import kinds, turn, usable
from tests.daemon.validate.test_catalog import of_own_ranking

BY_CLICKS = {"validate__judgments": ""}


@pytest.fixture
def own_world(world):
    """Where the user's own ranking is known."""
    world.fitted = SpaceMap({"x": ViewConfig("unit")}, similarity="cosine").fit(
        {"x": DenseBlock(world.values)}
    )
    world.mapped = world.fitted.transform({"x": DenseBlock(world.values)})
    assert world.fitted.own is not None
    return world


def diagonal(*values):
    return {"W": np.diag(np.array([*values, *[1.0] * (DIM - len(values))], np.float32))}


KNOWS, OWN, TURNED = diagonal(5, 5, 5), diagonal(), diagonal(-9, -9, -9)
"""Classes lie in the first three columns: what knows so, what is the user's own ranking, what takes them the
wrong way round."""
NOTHING = np.eye(DIM, dtype=np.float32)


def judged(world, validator, count=150, **version):
    """Another version, judged on lists of its own; its number."""
    world.send([encode_impression(one) for one in usable(world, count)])
    number = world.publish(**version)
    while turn(validator) is not None:
        pass
    return number


def newest(world, kind="KEEP"):
    return [entry for entry in world.ledger.entries() if entry.kind == kind][-1]


def how(world, number):
    return answering(world.ledger.entries(), number)


def test_what_orders_lists_is_best_without_searching_until_that_is_proven(own_world, start):
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN, "above": OWN})
    validator, inputs = start(world, **BY_CLICKS)
    first = judged(world, validator, W=NOTHING, arms={"all": KNOWS, "above": OWN})
    entry = newest(world)
    choice = OrderChoice.from_json(entry.measures["order"])
    assert (entry.version, choice.arm) == (first, "all")
    assert choice.own_share in OWN_SHARES
    assert choice.top == 1, "its lists show hardly any of the first objects of the user's own ranking"
    assert not entry.measures["evidence"]["reach"]
    higher = entry.measures["clicked_higher"]
    assert higher > 0.6, "of the order, and not of the form, which is the user's own ranking"
    assert entry.measures["answer"]["sentence"] == (
        "Yes: it orders given lists better. "
        f"Clicked objects stand higher in {100 * higher:.0f} of 100 held-out lists"
    )
    moved = newest(world, "PROMOTE")
    assert (moved.version, moved.measures["order"], moved.measures["reach"]) == (
        first,
        choice.to_json(),
        False,
    )
    assert moved.reason == "it orders given lists better; your own ranking searches the catalog"
    assert (how(world, first).order, how(world, first).reach) == (choice, False)
    # after a restart, and without new lists, nothing changes
    before = world.ledger.entries()
    validator, inputs = start(world, **BY_CLICKS)
    assert turn(validator) is None
    assert world.ledger.entries() == before
    # what searches better is shown to, too
    W = 5 * NOTHING
    W[3:, 3:] = np.eye(DIM - 3)
    best = diagonal(20, 20, 20)  # the form sharpens W, and would order as well as what knows no more
    later = [judged(world, validator, W=W, arms={"all": best, "above": OWN}) for _ in range(4)]
    history = fold(world.ledger.entries(), inputs.rule)
    assert history.reach
    assert history.standing.anchor in later
    assert aliases(world.ledger.entries())["best"] == later[-1]
    assert how(world, later[-1]).reach
    assert how(world, later[-1]).order.arm == "all"
    assert not how(world, first).reach


def test_on_lists_that_arms_learn_the_version_before_bets_for_the_order(own_world, start):
    """The newest may know their clicks; its form does not, and bets on them as on all that are held out."""
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN})
    validator, inputs = start(world, **BY_CLICKS)
    world.send([encode_impression(one) for one in usable(world, 60)])
    world.publish(W=NOTHING, arms={"all": KNOWS}, watermark=1000 * world.serial)
    while turn(validator) is not None:
        pass
    before = fold(world.ledger.entries(), inputs.rule).standing
    assert not before.race.own["all", 0.0].bets > 60
    world.send([encode_impression(replace(one, for_arms=True)) for one in usable(world, 200)])
    world.publish(W=NOTHING, arms={"all": TURNED}, watermark=1000 * world.serial)
    while turn(validator) is not None:
        pass
    after = fold(world.ledger.entries(), inputs.rule).standing
    assert after.lists == before.lists + 200
    assert after.trained == 0
    gained = after.race.own["all", 0.0]
    assert gained.bets > before.race.own["all", 0.0].bets + 50
    assert gained.mean > 0.03, "by what the version before knew, not by what the newest takes the wrong way"


def test_lists_that_arms_learn_are_all_bet_on_however_small_the_window(own_world, start):
    """Of those that come between two versions no more enter it at a time than it has room for."""
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN})
    validator, inputs = start(world, **BY_CLICKS, validate__window=60)
    world.send([encode_impression(one) for one in usable(world, 60)])
    world.publish(W=NOTHING, arms={"all": KNOWS}, watermark=1000 * world.serial)
    while turn(validator) is not None:
        pass
    before = fold(world.ledger.entries(), inputs.rule).standing.race.own["all", 0.0].bets
    world.send([encode_impression(replace(one, for_arms=True)) for one in usable(world, 300)])
    world.publish(W=NOTHING, arms={"all": TURNED}, watermark=1000 * world.serial)
    while turn(validator) is not None:
        pass
    standing = fold(world.ledger.entries(), inputs.rule).standing
    assert standing.bettor.version == 2
    assert standing.race.own["all", 0.0].bets > before + 100, "its queries, once for each 60 lists"


def test_lists_of_the_users_own_ranking_are_put_in_order_as_far_as_they_go(own_world, start):
    """And further lists that say nothing change nothing of that."""
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN})
    validator, _ = start(world, **BY_CLICKS)
    lists = of_own_ranking(world, usable(world, 400), range(9))
    clicked = [[ref.id for ref in one.shown if same_class(world, one.query, ref)] for one in lists]
    lists = [
        replace(one, clicked=tuple(at for at, ref in enumerate(one.shown) if ref.id in ids))
        for one, ids in zip(lists, clicked, strict=True)
    ]
    world.send([encode_impression(one) for one in lists if is_usable(one)])
    number = judged(world, validator, count=0, W=NOTHING, arms={"all": KNOWS})
    assert how(world, number).order.top == 9
    assert (
        newest(world).measures["answer"]["sentence"].startswith("Yes: it orders the first 9 objects of your")
    )
    again = judged(world, validator, count=0, W=NOTHING, arms={"all": KNOWS})
    assert (how(world, again).order.top, aliases(world.ledger.entries())["best"]) == (9, again)


def same_class(world, query, ref):
    return world.labels[int(query.id[1:])] == world.labels[int(ref.id[1:])]


def test_a_version_that_is_judged_without_new_lists_keeps_its_order(own_world, start):
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN})
    validator, inputs = start(world, **BY_CLICKS)
    judged(world, validator, W=NOTHING, arms={"all": KNOWS})
    before = fold(world.ledger.entries(), inputs.rule).standing.race
    again = judged(world, validator, count=0, W=NOTHING, arms={"all": KNOWS})
    race = fold(world.ledger.entries(), inputs.rule).standing.race
    assert (race.own, race.leader) == (before.own, before.leader)
    assert aliases(world.ledger.entries())["best"] == again
    assert "ROLLBACK" not in dict(kinds(world))


@pytest.mark.parametrize("arms", [{"all": TURNED}, None])
def test_what_loses_its_order_is_best_no_more(own_world, start, arms):
    """It is wrong now, or there are no arms any more."""
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN})
    validator, inputs = start(world, **BY_CLICKS)
    judged(world, validator, W=NOTHING, arms={"all": KNOWS})
    assert aliases(world.ledger.entries())["best"] == 1
    for _ in range(6):
        last = judged(world, validator, W=NOTHING, arms=arms)
        if aliases(world.ledger.entries())["best"] == 0:
            break
    assert newest(world, "ROLLBACK").reason.endswith("lost to version 0")
    assert newest(world).measures["order"] is None
    assert how(world, last).order is None
    history = fold(world.ledger.entries(), inputs.rule)
    assert (history.promoted, history.standing.race.leader) == (0, None)


def test_after_a_stop_what_only_orders_is_carried_on(own_world, start):
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN})
    validator, inputs = start(world, **BY_CLICKS)
    first = judged(world, validator, W=NOTHING, arms={"all": KNOWS})
    positions = {str(p): offset for p, offset in inputs.holdout.window.positions.items()}
    for kind in ("STOP", "RESUME"):
        world.ledger.append(
            {
                "kind": kind,
                "version": first,
                "by": "operator",
                "reason": "",
                "measures": {"holdout_positions": positions},
            }
        )
    history = fold(world.ledger.entries(), inputs.rule)
    assert (history.standing.anchor, history.standing.race.leader[0]) == (0, "all")
    assert not history.reach
    validator, inputs = start(world, **BY_CLICKS)
    while turn(validator) is not None:
        pass
    entry = newest(world)
    assert (entry.version, entry.measures["evidence"]["promoted"], entry.measures["evidence"]["reach"]) == (
        first,
        True,
        False,
    )
    assert aliases(world.ledger.entries())["best"] == first
    second = judged(world, validator, W=NOTHING, arms={"all": KNOWS})
    assert aliases(world.ledger.entries())["best"] == second
    assert not how(world, second).reach
    json.dumps(newest(world).measures)


def test_an_arm_that_is_surely_worse_is_given_up_by_name(own_world, start):
    world = own_world
    world.publish(W=NOTHING, arms={"all": OWN, "above": OWN})
    validator, _ = start(world, **BY_CLICKS)
    for _ in range(4):
        judged(world, validator, W=NOTHING, arms={"all": KNOWS, "above": TURNED})
    entries = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"]
    assert entries[-1].measures["dropped_arms"] == ["above"]
    assert all(entry.measures.get("dropped_arms", ["above"]) == ["above"] for entry in entries)
    assert "dropped_arms" not in entries[0].measures


def test_a_number_that_a_learner_claimed_is_no_version_that_is_passed_over(own_world, start):
    world = own_world
    world.publish(W=NOTHING)
    validator, inputs = start(world, **BY_CLICKS)
    judged(world, validator, W=NOTHING, parent=0)
    world.epoch = None  # the next one is written by a learner that was started again
    with capture_logs() as said:
        number = judged(world, validator, W=NOTHING, parent=1)
    assert number == 3
    assert not [line for line in said if line["event"] == "versions passed over"]
    assert inputs.metrics.registry.get_sample_value("tripletd_passed_over_versions_total") == 0
