"""The best version over time: judged on its challenger's window, replaced only by a better one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from checkpoints.entries import aliases
from daemon.validate.ledger import fold
from streams.codec import encode_impression
from streams.event import EITHER, FIRST, SECOND, Draft, DraftModel
from tests.daemon.validate.helpers import better_and_better, kinds, measures_of, turn


def test_the_best_is_judged_on_the_window_of_the_candidate(world, start):
    validator, inputs = start()
    for _ in better_and_better(world, 3):
        turn(validator)
    assert aliases(world.ledger.entries()) == {"best": 2}
    keep = measures_of(world, 2)
    assert measures_of(world, 1)["best_before"] == 0
    assert keep["best_before"] == 1
    window = inputs.holdout.window
    judge, one = inputs.judge(), inputs.candidates.open(1)
    again = judge.look(one.scorer, judge.panel([held.impression for held in window])).measures
    assert keep["best_decision"] == again["map_full"]
    assert keep["decision"] >= keep["best_decision"] + keep["min_delta"]
    assert "+" in world.ledger.entries()[-1].reason


def test_the_best_is_ranked_once(world, start):
    """What the candidate was ranked for is kept when it becomes best; a new window costs its clicks."""
    validator, inputs = start()
    for _ in better_and_better(world, 2):
        turn(validator)
    best, asked = inputs.candidates.open(1).scorer, []
    catalog = best.catalog
    best.catalog = lambda folded: asked.append(len(folded)) or catalog(folded)
    worse = np.random.default_rng(1).standard_normal((12, 12))
    for version, fed, ranked in ((2, 0, 0), (3, 5, 1)):
        if fed:
            world.feed(fed)
        world.publish(W=worse)
        turn(validator)
        assert measures_of(world, version)["best_before"] == 1
        assert len(asked) == ranked


@pytest.mark.parametrize("labels", [True, False])
def test_a_validator_restarted_before_every_step_writes_the_same(make_world, start, labels):
    """Nothing of the best, its measures or patience lives in the process alone."""
    settings = {"validate__patience_events": 1_400, "validate__min_versions": 2}
    settings |= {} if labels else {"validate__judgments": ""}
    written = []
    for name in ("one process", "many processes"):
        world = make_world(name)
        world.feed(600)
        validator, inputs = start(world, **settings)
        for _ in better_and_better(world, 6):
            if name == "many processes":
                validator, inputs = start(world, **settings)
            turn(validator)
        told = world.ledger.entries()
        assert fold(told[::-1], inputs.rule) == fold(told, inputs.rule)
        written.append([(e.kind, e.version, e.reason, e.measures) for e in told])
    assert written[0] == written[1]
    assert any(measures.get("best_before") for *_, measures in written[0])


def test_a_best_that_cannot_be_read_any_more_gives_way(world, start):
    validator, _ = start()
    for _ in better_and_better(world, 3):
        turn(validator)
    assert aliases(world.ledger.entries()) == {"best": 2}
    state = next((world.path / "checkpoints").rglob("0000000002/state*"))
    data = bytearray(state.read_bytes())
    data[-5] ^= 1
    state.chmod(0o600)
    state.write_bytes(bytes(data))
    world.publish()
    validator, _ = start()
    before = len(kinds(world))
    while turn(validator) is not None:
        pass
    assert kinds(world)[before:] == [("KEEP", 2), ("PROMOTE", 1), ("KEEP", 3), ("PROMOTE", 3)]
    assert measures_of(world, 2)["refused"]
    assert measures_of(world, 3)["best_before"] == 1


def test_a_best_that_loses_to_version_0_is_told_and_gives_way(world, start):
    """Clicks turned round: `best` goes back by itself, and one like the version that fell does not return."""
    validator, inputs = start(validate__judgments="", validate__window=600)
    value = inputs.metrics.registry.get_sample_value
    world.feed(700)
    world.publish()
    turn(validator)
    world.learn(3000)
    world.publish()
    turn(validator)
    assert aliases(world.ledger.entries()) == {"best": 1}
    assert value("tripletd_best_holds") == 1
    world.feed(700, flipped=True)
    world.publish()
    turn(validator)
    keep = measures_of(world, 2)
    assert keep["best_holds"] is False
    assert keep["best_decision"] < keep["version_0"]["decision"]
    assert keep["evidence"]["fell"]
    assert value("tripletd_better_for_users", {"finding": "inferior"}) == 1
    assert value("tripletd_judged_version", {"which": "best"}) == 0
    assert keep["answer"]["sentence"] == "No: version 1 lost to your ranking, which is served again"
    assert aliases(world.ledger.entries()) == {"best": 0}
    assert kinds(world)[-1] == ("ROLLBACK", 0)
    world.feed(100, flipped=True)
    world.publish()
    turn(start(validate__judgments="", validate__window=600)[0])
    assert aliases(world.ledger.entries()) == {"best": 0}


@pytest.mark.parametrize("interleaved", [True, False])
def test_lists_that_two_versions_made_together_decide_by_their_teams(world, start, interleaved):
    """Clicks by chance say nothing of either order; that they go to the later version's objects does."""
    validator, inputs = start(validate__judgments="")
    world.publish(counters={"records": 0})
    world.learn(500)
    world.publish(counters={"records": 500})
    models = DraftModel("stable", 0, 0), DraftModel("latest", 0, 480)
    lists = []
    for _ in range(120):
        made = world.impression()
        clicked = int(world.random.integers(len(made.shown)))
        teams = [FIRST] * len(made.shown)
        teams[clicked] = SECOND if world.random.random() < 0.8 else EITHER
        draft = Draft(models, tuple(teams)) if interleaved else None
        lists.append(encode_impression(replace(made, clicked=(clicked,), draft=draft)))
    world.send(lists)
    for _ in range(2):
        turn(validator)
    assert aliases(world.ledger.entries()).get("best", 0) == (1 if interleaved else 0)
    standing = fold(world.ledger.entries(), inputs.rule).standing
    assert (standing.interleaved > 100) == interleaved
