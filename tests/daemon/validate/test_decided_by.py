"""What decides (validate.decide): each statistic promotes and stops by itself, on one window for both."""

from __future__ import annotations

import pytest

from checkpoints.entries import aliases
from daemon.exits import UserError
from tests.daemon.validate.helpers import kinds, measures_of, turn

STOPS = {"validate__patience_events": 2_000, "validate__min_versions": 2, "validate__window": 600}


@pytest.mark.parametrize(
    ("decide", "judgments", "measure"),
    [
        ("race", True, None),
        ("race", False, None),
        ("map_shown", True, "map_shown"),
        ("map_shown", False, "map_shown"),
        ("map_clicks", False, "map_clicks"),
        ("map_full", True, "map_full"),
        ("auto", True, "map_full"),
        ("auto", False, None),
    ],
)
def test_each_promotes_and_stops_by_its_own_statistic(world, start, decide, judgments, measure):
    """Once better, then the same again and again: no gain, however often it is judged."""
    without = {} if judgments else {"validate__judgments": ""}
    validator, _ = start(validate__decide=decide, **STOPS, **without)
    for number in range(6):
        world.feed(400)
        world.publish(events=3_000 * number)
        if not number:
            world.learn(3_000)
        while turn(validator) is not None:
            pass
    said = world.ledger.entries()
    assert aliases(said)["best"] >= 1
    assert said[-1].kind == "STOP"
    entry = measures_of(world, 1)
    assert ("evidence" in entry) == (measure is None)
    assert ("map_full" in entry) == judgments
    assert entry["answer"]["is_better"] == "yes"
    if measure is not None:
        later = measures_of(world, 2)
        assert kinds(world).count(("PROMOTE", 1)) == 1
        assert later["decision_measure"] == measure
        assert later["decision"] == later[measure]
        assert later["best_decision"] == later["best_measures"][measure]  # on the same window
        assert later["version_0"]["decision"] == later["version_0"][measure]


@pytest.mark.parametrize("decide", ["map_shown", "map_clicks"])
def test_a_lead_below_min_delta_is_none(world, start, decide):
    validator, _ = start(validate__decide=decide, validate__judgments="", validate__min_delta=0.9)
    world.feed(300)
    world.publish()
    for events in (200, 3_000):
        world.learn(events)
        world.publish(events=events)
        while turn(validator) is not None:
            pass
    assert aliases(world.ledger.entries()) == {"best": 1}
    assert measures_of(world, 2)["decision"] > measures_of(world, 2)["best_decision"]
    assert "is not above 0.9" in world.ledger.entries()[-1].reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validate__decide": "map_full", "validate__judgments": ""}, "map_full. needs judgments"),
        (
            {"validate__decide": "map_clicks", "validate__judgments": "", "catalog__path": ""},
            "map_clicks. needs a catalog",
        ),
        (
            {"validate__decide": "map_shown", "validate__judgments": "", "keys__slots": 4},
            "is for one model, and .keys. learns one for each key",
        ),
        ({"validate__decide": "map"}, "validate.decide: .*race"),
        ({"validate__judge": "all"}, "validate.judge: .*newest"),
    ],
)
def test_what_cannot_decide_is_refused(world, start, settings, message):
    with pytest.raises(UserError, match=message) as refused:
        start(**settings)
    assert refused.value.remedy
