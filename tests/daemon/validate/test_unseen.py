"""Kinds of queries of which nothing is learned are judged apart, and never bet on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from daemon.look.overview import read_all, summary
from daemon.validate.evaluator import Candidate, Evaluator
from daemon.validate.holdout import HeldImpression, Window
from daemon.validate.scorer import NotFinite, Scorer
from learners.forms.serving import ServingForm
from streams.codec import encode_impression
from tests.daemon.validate.conftest import DIM, PER_CLASS
from tests.daemon.validate.helpers import judge_of, measures_of, plain, turn, usable

KIND = "o3"


@dataclass(frozen=True)
class Numbered:
    """As much of a manifest as judging needs."""

    number: int
    counters: dict[str, int] = field(default_factory=dict)


def of_kind(world, count):
    """Lists of queries of the first class, marked."""
    lists = usable(world, 10 * count)  # one query in six
    mine = [one for one in lists if int(one.query.id[1:]) < PER_CLASS]
    return [replace(one, kind=KIND) for one in mine][:count]


def weighed(weights):
    return ServingForm.from_matrix(np.diag(np.asarray(weights, np.float32)), power=1.0)


SENSE = weighed([6.0] * 3 + [1.0] * (DIM - 3))
NOISE = weighed([0.01] * 3 + [1.0] * (DIM - 3))


def opened(objects, *forms):
    return [
        Candidate(Numbered(number), Scorer(form, objects), objects)
        for number, form in enumerate((plain(DIM), *forms))
    ]


def told_by(judge, version, zero, lists):
    window = Window(10_000, {0: 0})
    for at, one in enumerate(lists):
        window.add(HeldImpression(0, at, one))
    return Evaluator(judge).unseen(version, zero, window)


def test_what_users_prefer_on_such_kinds(world):
    judge, objects = judge_of(world, judgments=False)
    lists, (zero, better, worse) = of_kind(world, 60), opened(objects, SENSE, NOISE)
    above, below = (told_by(judge, one, zero, lists) for one in (better, worse))
    assert above["unseen_preference"] > above["unseen_error"] > 0
    assert below["unseen_preference"] < -below["unseen_error"]
    assert above["unseen_queries"] == below["unseen_queries"] <= PER_CLASS
    assert told_by(judge, zero, zero, lists)["unseen_preference"] == 0


def test_what_cannot_be_had_is_no_measure(world):
    judge, objects = judge_of(world, judgments=False)
    zero, version = opened(objects, SENSE)
    for count in (0, 1):
        assert told_by(judge, version, zero, of_kind(world, 10)[:count]) == {}


def test_lists_of_such_kinds_stand_apart_in_the_window(world):
    window = Window(6, {0: 0})
    made = [world.impression() for _ in range(10)]
    marked = [replace(one, kind=KIND) if at % 2 else one for at, one in enumerate(made)]
    fresh = [window.add(HeldImpression(0, at, one)) for at, one in enumerate(marked)]
    assert fresh == [True, False] * 5, "nothing else hears of them"
    assert [held.offset for held in window] == [4, 6, 8]
    assert len(window) == 3
    assert [held.offset for held in window.of_kinds()] == [5, 7, 9]
    window.add(HeldImpression(0, 10, marked[9]))
    assert [held.offset for held in window.of_kinds()] == [5, 7, 9], "one that was written twice counts once"
    window.move(0, 40)
    assert not len(window)
    assert not window.of_kinds()


def test_no_measure_and_no_bet_depends_on_them(world):
    judge, objects = judge_of(world, judgments=False)
    lists, kinds = usable(world, 60), of_kind(world, 30)
    told = []
    for added in ([], kinds):
        window, evaluator = Window(10_000, {0: 0, 1: 0}), Evaluator(judge)
        for partition, held in ((0, lists), (1, added)):
            for at, impression in enumerate(held):
                window.add(HeldImpression(partition, at, impression))
        zero, version = opened(objects, SENSE)
        seen = evaluator.compare((version, zero, zero, zero), window, {0: 50})
        told.append((evaluator.measures(version, window), replace(seen, through={})))
        assert bool(evaluator.unseen(version, zero, window)) == bool(added)
    assert told[0] == told[1]


def test_a_judged_version_tells_of_them(world, start):
    validator, _ = start(validate__judgments="", validate__min_impressions=5)
    world.publish()
    world.feed(60)
    turn(validator)
    assert "unseen_preference" not in measures_of(world, 0)
    world.learn(900)
    number = world.publish()
    world.send([encode_impression(one) for one in of_kind(world, 50)])
    world.feed(60)
    assert turn(validator) == number
    found = measures_of(world, number)
    assert found["unseen_queries"] == pytest.approx(PER_CLASS, abs=6)
    assert found["unseen_preference"] > found["unseen_error"] > 0
    told = f"by {found['unseen_preference']:+.4f} (error {found['unseen_error']:.4f})"
    said = summary(read_all(world.versions, world.ledger).entries).unseen
    assert said is not None
    assert said.startswith(f"version {number} is preferred to your own ranking {told} on ")
    assert said.endswith(f" {found['unseen_queries']:.0f} queries of kinds that are never learned")


def test_scores_that_are_no_numbers_are_refused(world):
    judge, objects = judge_of(world, judgments=False)
    zero, broken = opened(objects, replace(plain(DIM), matrix=np.full((DIM, DIM), np.nan, np.float32)))
    with pytest.raises(NotFinite):
        told_by(judge, broken, zero, of_kind(world, 5))
