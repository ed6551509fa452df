"""What a validator says of itself is the same after a restart, and what it does not know it does not say."""

from __future__ import annotations

import pytest

from daemon.telemetry import Health
from daemon.telemetry.server import status_of
from streams.codec import encode_event
from streams.event import Event
from streams.open import open_sink
from streams.source import OutRecord
from tests.daemon.validate.helpers import kinds, never, turn
from tests.harness.gauges import state_gauges
from tests.harness.topics import delete_topic

ANSWERED = "tripletd_better"


def rest(validator):
    """One turn in which there is nothing to judge."""
    assert turn(validator) is None
    validator.try_again()


@pytest.mark.parametrize("judgments", [True, False])
def test_gauges_are_the_same_after_a_restart_with_nothing_to_judge(world, start, judgments):
    settings = {"validate__patience_events": 500, "validate__window": 600}
    settings |= {} if judgments else {"validate__judgments": "", "validate__min_impressions": 50}
    validator, inputs = start(**settings)
    world.feed(500)
    for events in (0, 900, 1_800, 2_700):
        world.publish(events=events)
        turn(validator)
        if not events:
            world.learn(3_000)
    if judgments:
        assert kinds(world)[-1] == ("STOP", 1)
    rest(validator)
    before = state_gauges(inputs.metrics.registry)
    assert before["tripletd_stopped"] == judgments
    assert before["tripletd_best_holds"] == 1
    assert before['tripletd_judged_version{"which": "best"}'] >= 1
    assert before['tripletd_holdout_decision{"which": "newest"}'] > 0
    assert before[f'{ANSWERED}{{"answer": "yes"}}'] == 1
    assert ("tripletd_evidence" in before) == (not judgments)
    again, reopened = start(**settings)
    assert not {name for name in state_gauges(reopened.metrics.registry) if "holdout" in name}
    rest(again)
    assert state_gauges(reopened.metrics.registry) == before


def test_what_is_not_known_has_no_series(world, start):
    """An alert on 0 must not take a validator that has just started for one with bad news."""
    _, inputs = start()
    known = state_gauges(inputs.metrics.registry)
    absent = ("tripletd_stopped", "tripletd_best_holds", "tripletd_evidence", "tripletd_holdout", ANSWERED)
    assert not [name for name in known if name.startswith(absent)]
    assert status_of(inputs.metrics.registry, Health()).holdout_loss is None


def arrive(world, count):
    """Events that wait in the training topic."""
    sink = open_sink(world.address)
    a, b, c = (world.ref(row) for row in range(3))
    sink.send([OutRecord(encode_event(Event(f"e{n}", n, a, b, c)), partition=0) for n in range(count)])
    sink.close()


def test_a_stop_ends_by_a_trial_after_as_many_new_events_as_the_last_gain_took_then_twice_as_many(
    world, start
):
    settings = {"validate__patience_events": 40, "validate__min_versions": 1}
    validator, _ = start(**settings)
    world.feed(200)
    world.publish()
    turn(validator)
    world.learn(3_000)
    world.publish(events=100)
    turn(validator)
    arrive(world, 30)  # came before the STOP: a log that is learned in one go is no live stream
    world.publish(events=210)
    turn(validator)
    assert kinds(world)[-1] == ("STOP", 1)
    stop = world.ledger.entries()[-1]
    assert stop.reason == "no gain of .002 in 110 events and 1 judged versions"
    assert stop.measures["stopped"]["wait"] == 100

    def try_with(more):
        arrive(world, more)
        again, reopened = start(**settings)  # the ledger remembers what is waited for
        again.read(0.0, never, lambda: None)
        again.try_again()
        return again, reopened

    try_with(99)
    assert kinds(world)[-1] == ("STOP", 1)
    again, reopened = try_with(1)
    resumed = world.ledger.entries()[-1]
    assert (resumed.kind, resumed.version, resumed.by) == ("RESUME", 1, "validate")
    assert resumed.reason == "trial: 100 new events have come since learning was stopped"
    assert state_gauges(reopened.metrics.registry)["tripletd_stopped"] == 0
    for events in (300, 400):
        world.publish(events=events)
        turn(again)
        turn(again)
        turn(again)
    assert kinds(world)[-1] == ("STOP", 1)
    assert world.ledger.entries()[-1].measures["stopped"]["wait"] == 200, "no gain came of the trial"


def test_where_a_stop_ends_the_learner_nothing_is_tried(world, start):
    settings = {"validate__patience_events": 40, "validate__min_versions": 1, "validate__on_stop": "exit"}
    validator, _ = start(**settings)
    world.feed(200)
    for events in (0, 100, 200):
        world.publish(events=events)
        turn(validator)
    assert kinds(world)[-1][0] == "STOP"
    arrive(world, 500)
    validator.try_again()
    assert kinds(world)[-1][0] == "STOP"


@pytest.mark.parametrize("stopped", [True, False])
def test_a_training_topic_that_was_removed_ends_no_validator(world, start, stopped):
    """It is asked for its end alone, before a STOP and while one is in force; `learn` reports it."""
    validator, _ = start(validate__patience_events=40, validate__min_versions=1)
    world.feed(200)
    for events in (0, 100, 200):
        if events == 200 and not stopped:
            delete_topic(world.address)
        world.publish(events=events)
        turn(validator)
    assert kinds(world)[-1][0] == ("STOP" if stopped else "KEEP")
    if stopped:
        delete_topic(world.address)
    validator.try_again()
    assert turn(validator) is None
    assert kinds(world)[-1][0] == ("STOP" if stopped else "KEEP")
