"""Every version is judged, in order, on lists that the log determines: at any speed one ledger."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.versions import VersionStore
from daemon.learn import start as learning
from daemon.learn.resume.origin import LearnOptions
from daemon.telemetry import ValidateMetrics
from daemon.validate import holdout, validator
from daemon.validate.inputs import open_inputs
from daemon.validate.role import ValidateOptions, run
from daemon.validate.validator import Validator
from streams.codec import encode_event, encode_impression
from streams.event import Event
from streams.open import open_sink
from streams.source import OutRecord
from tests.daemon.validate.conftest import World
from tests.daemon.validate.helpers import turn, usable

LISTS, HELD_OUT = 450, 3
"""Lists of a log, of which one in so many is held out."""
EVERY = 150
"""Events of a version."""
ONCE = ValidateOptions(exit_when_caught_up=True)


def write(world):
    """A log of clicks; lists that are learned from are in the holdout topic, too."""
    events, lists = [], []
    for count, one in enumerate(usable(world, LISTS)):
        is_trained = count % HELD_OUT != 0
        lists.append(encode_impression(replace(one, trained=is_trained)))
        skipped = [place for place in range(len(one.shown)) if place not in one.clicked]
        for clicked in one.clicked if is_trained else ():
            pair = one.shown[clicked], one.shown[skipped[len(events) % len(skipped)]]
            events.append(encode_event(Event(f"e{len(events)}", one.ts, one.query, *pair)))
    world.send(lists)
    sink = open_sink(world.address)
    sink.send([OutRecord(one, partition=n % world.partitions) for n, one in enumerate(events)])
    sink.close()


class Log:
    """A log that was learned to its end, with a version at every multiple."""

    def __init__(self, folder, partitions):
        self.world = World(folder, partitions)
        write(self.world)
        assert learning.run(self.config("learned", {}), LearnOptions(exit_when_caught_up=True)) == 0
        self.numbers = VersionStore(LocalStore(folder / "learned")).versions()

    def config(self, name, settings):
        common = {
            "checkpoints.path": str(self.world.path / name),
            "checkpoints.every": "0s",
            "checkpoints.every_events": EVERY,
            "checkpoints.keep": 1000,
            "feed.holdout_share": 1 / HELD_OUT,
            "http.learn_port": 0,
            "validate.drift": "off",
            "validate.window": 60,
        }
        return self.world.config(**common | settings)

    def appear(self, name, *numbers):
        """Let these versions be in a folder."""
        for number in numbers:
            part = f"versions/{number:010d}"
            shutil.copytree(self.world.path / "learned" / part, self.world.path / name / part)

    def said(self, name):
        """The ledger of a folder, but for its times."""
        return [replace(one, at="") for one in Ledger(LocalStore(self.world.path / name)).entries()]

    def judged_at_the_end(self, name, settings):
        self.appear(name, *self.numbers)
        assert run(self.config(name, settings), ONCE) == 0
        return self.said(name)

    def judged_one_by_one(self, name, settings, restarts=False):
        """After each version, with nothing newer there, by one process or a new one each time."""
        with ExitStack() as stack:
            judge = None
            for number in self.numbers:
                self.appear(name, number)
                if judge is None or restarts:
                    judge = Validator(open_inputs(stack, self.config(name, settings), ValidateMetrics()))
                until_idle(judge)
        return self.said(name)


def until_idle(judge):
    stood = None
    while turn(judge) is not None or judge.state() != stood:
        stood = judge.state()


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return {count: Log(tmp_path_factory.mktemp(f"log{count}"), count) for count in (1, 2)}


LEAST = 5
"""Lists for which a version is judged again, in the world of these tests."""
BY_CLICKS = {"validate.judgments": "", "validate.min_versions": 1}
MODES = {
    "race": BY_CLICKS | {"validate.alpha": 1e-3},
    "few lists": BY_CLICKS | {"validate.min_impressions": 55, "validate.window": 300},
    "full windows": BY_CLICKS | {"validate.window": 12},
    "map_full": {"validate.patience_events": 2 * EVERY, "validate.min_delta": 0.04},
    "map_shown": {
        "validate.decide": "map_shown",
        "validate.patience_events": 2 * EVERY,
        "validate.min_delta": 0.03,
    },
    "map_clicks": BY_CLICKS
    | {"validate.decide": "map_clicks", "validate.patience_events": 2 * EVERY, "validate.min_delta": 0.03},
}


@pytest.mark.parametrize(
    ("mode", "partitions"),
    [*((mode, 1) for mode in MODES), ("race", 2), ("full windows", 2), ("map_clicks", 2)],
)
def test_the_ledger_is_the_same_at_any_speed(logs, monkeypatch, mode, partitions):
    """Judged all at the end, after each version, and by a new process for each that reads slowly."""
    log, settings = logs[partitions], MODES[mode]
    whole = log.judged_at_the_end(f"{mode} at the end", settings)
    judged = [entry.version for entry in whole if entry.kind == "KEEP"]
    assert judged == sorted(judged)
    assert set(judged) == set(range(judged[-1] + 1))
    if partitions == 1:  # else in which order partitions were learned from is luck
        assert (whole[-1].kind == "STOP") == ("patience" in str(settings))
    assert log.judged_one_by_one(f"{mode} one by one", settings) == whole
    monkeypatch.setattr(holdout, "POLL_RECORDS", 7)
    monkeypatch.setattr(validator, "MAX_POLLS", 1)
    assert log.judged_one_by_one(f"{mode} restarted", settings, restarts=True) == whole


@pytest.mark.parametrize("mode", ["race", "full windows"])
def test_every_held_out_list_is_bet_on_once(logs, mode):
    """Also where more of them come between two versions than the window holds."""
    log = logs[1]
    whole = log.judged_at_the_end(f"{mode} counted", MODES[mode])
    standing = [one.measures["evidence"]["standing"] for one in whole if "evidence" in one.measures][-1]
    left = LISTS // HELD_OUT - (standing["lists"] - standing["trained"])
    assert 0 <= left < LEAST, "but for the last few, which wait for more"


def test_versions_that_are_gone_are_passed_over_counted_and_said(logs):
    log = logs[1]
    log.appear("pruned", 0, 1, 4, 5)
    with ExitStack() as stack, capture_logs() as said:
        inputs = open_inputs(stack, log.config("pruned", MODES["race"]), ValidateMetrics())
        until_idle(Validator(inputs))
        passed = inputs.metrics.registry.get_sample_value("tripletd_passed_over_versions_total")
    assert passed == 2
    lines = [line for line in said if line["event"] == "versions passed over"]
    assert [(line["first"], line["last"], line["pruned"]) for line in lines] == [(2, 3, 2)]
    judged = [entry for entry in log.said("pruned") if entry.kind == "KEEP"]
    assert sorted({entry.version for entry in judged}) == [0, 1, 4, 5]
    standing = judged[-1].measures["evidence"]["standing"]
    through = judged[-1].measures["holdout_positions"]["0"]
    assert standing["lists"] - standing["trained"] == -(-through // HELD_OUT)  # of those between, too


@pytest.mark.parametrize("partitions", [1, 2])
def test_reading_waits_for_versions_and_memory_is_bounded(logs, monkeypatch, partitions):
    monkeypatch.setattr(holdout, "POLL_RECORDS", 7)
    log, settings = logs[partitions], MODES["full windows"]
    log.appear(f"waiting{partitions}", 0)
    with ExitStack() as stack:
        inputs = open_inputs(stack, log.config(f"waiting{partitions}", settings), ValidateMetrics())
        judge, held = Validator(inputs), inputs.holdout
        most = 12 // partitions + 7
        for number in log.numbers[1:]:
            until_idle(judge)
            assert number > 3 or not held.caught_up()
            assert all(len(ahead) <= most for ahead in held._ahead.values())
            assert judge.unfinished() is not None
            log.appear(f"waiting{partitions}", number)
        until_idle(judge)
        assert held.caught_up()
        assert judge.unfinished() is None


def test_a_list_with_a_wrong_time_holds_nothing_up(world, start):
    """Years ahead, or in another order than that of time: what stands after it is judged all the same."""
    lists = usable(world, 60)
    for place in (3, 20, 21):
        lists[place] = replace(lists[place], ts=10**14)
    lists[40], lists[44] = lists[44], lists[40]
    world.send([encode_impression(one) for one in lists])
    sink = open_sink(world.address)
    sink.send([OutRecord(b"not learned yet")])
    sink.close()
    world.publish()
    for count in (30, 50):
        world.publish(watermark=lists[count].ts)
    validator, _ = start(world, validate__judgments="", validate__window=100)
    until_idle(validator)
    judged = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"]
    assert [(one.version, one.measures["holdout_positions"]["0"]) for one in judged] == [
        (0, 30),
        (1, 30),
        (2, 50),
    ]
