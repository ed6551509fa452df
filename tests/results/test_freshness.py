"""What is said of freshness rests on this: an answer comes from the model of then, worlds change as they say,
and times and clicks are counted right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemon.demo.users import position_biased
from tests.quality.bench.forms import own_scores
from tests.quality.bench.retrieval import nearest
from tests.quality.bench.sets import RawSet, load, unit
from tests.quality.bench.users import LENGTH, split
from tests.results.freshness import corrections
from tests.results.freshness.answers import answered, expected_clicks
from tests.results.freshness.delays import (
    DAY,
    DELAYS,
    HOUR,
    MINUTE,
    DelayedModels,
    arrivals,
    delayed,
    looks,
    recovery,
)
from tests.results.freshness.stream import Made, Stream, StreamCell, Visitors, shown
from tests.results.freshness.worlds import DRIFTS, WorldState, make

ROWS, CLASSES = 360, 9
CHANGES = tuple(HOUR * step for step in range(1, 5))


@pytest.fixture(scope="module")
def data() -> RawSet:
    """Classes around centres that are close to each other."""
    rng = np.random.default_rng(0)
    labels = np.arange(ROWS, dtype=np.int64) % CLASSES
    centres = rng.normal(size=(CLASSES, 16))
    return RawSet("small", {"x": unit(centres[labels] + rng.normal(size=(ROWS, 16)))}, labels)


@pytest.fixture(scope="module")
def lists(data):
    return nearest(own_scores(data.joined()), 60, len(data))


def test_every_look_is_at_the_model_of_then():
    wanted = looks([DAY, 2 * DAY], list(DELAYS.values()))
    assert len(wanted) == 8
    assert [one.taken for one in wanted] == sorted(one.moment - one.delay for one in wanted)


def test_a_model_of_then_has_learned_every_list_until_then_and_none_after():
    cell = StreamCell("digits", "nothing", "steadily", 0)
    data = load("digits")
    near = nearest(own_scores(data.joined()), 20, len(data))
    world = make(data, near[:, :LENGTH], "nothing", 0, ())
    stream, times = Stream(cell, data, near, world, HOUR), arrivals(10, HOUR, 0)
    before = stream.served()(np.arange(3))
    for look in looks([30 * MINUTE, 50 * MINUTE], [0.3, MINUTE, HOUR / 4]):
        stream.go_on(look.taken)
        assert stream.learned == np.count_nonzero(times <= look.taken)
    assert stream.learned > 450
    assert not np.allclose(stream.served()(np.arange(3)), before)


def test_the_delayed_model_is_the_newest_that_was_there():
    rng = np.random.default_rng(1)
    kept, asked = np.sort(rng.random(200)), np.sort(rng.random(300))
    models: DelayedModels[float] = DelayedModels(-1.0)
    place = 0
    for time in asked:
        while place < len(kept) and kept[place] <= time + 0.1:  # newer ones are there already
            models.keep(float(kept[place]), float(kept[place]))
            place += 1
        there = kept[kept <= time]
        assert models.at(float(time)) == (there[-1] if len(there) else -1.0)
    with pytest.raises(ValueError, match="comes after"):
        models.keep(0.0, 0.0)
    with pytest.raises(ValueError, match="forgotten"):
        models.at(-1.0)


def test_lists_come_at_the_rate_and_in_order():
    times = arrivals(10, DAY, 3)
    assert abs(len(times) - 14_400) < 500
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] <= DAY


@pytest.mark.parametrize("drift", DRIFTS)
def test_worlds_change_as_they_say(data, lists, drift):
    """What is there and what is asked only grows, a class begins and is regrouped as a whole, and the last
    state is the same however many steps lead to it."""
    world = make(data, lists[:, :LENGTH], drift, 1, CHANGES)
    at_once = make(data, lists[:, :LENGTH], drift, 1, CHANGES[:1])
    assert len(world.states) == len(CHANGES) + 1
    for one, other in ((0, 0), (-1, -1)):
        for name in ("there", "asked", "labels", "touched"):
            left, right = (getattr(w.states[at], name) for w, at in ((world, one), (at_once, other)))
            assert (left == right).all(), name
    for state, later in zip(world.states, world.states[1:], strict=False):
        assert (later.there | ~state.there).all()
        assert (later.asked | ~state.asked).all()
    for state in world.states:
        for number in range(CLASSES):
            of = data.labels == number
            assert len(np.unique(state.labels[of])) == len(np.unique(state.asked[of])) == 1
    first, last = world.states[0], world.states[-1]
    assert last.there.all()
    assert last.asked.all()
    assert first.there.all() == (drift not in ("new objects", "all together"))
    assert first.asked.all() == (drift not in ("new intents", "all together"))
    assert (first.labels == last.labels).all() == (drift not in ("shifting tastes", "all together"))
    assert not first.touched.any()
    assert last.touched.any() == (drift != "nothing")


def test_a_taste_pairs_two_classes_and_later_each_with_another(data, lists):
    first, *_, last = make(data, lists[:, :LENGTH], "shifting tastes", 1, CHANGES).states

    def partners(state: WorldState) -> dict[int, set[int]]:
        return {
            number: {*data.labels[state.labels == state.labels[data.labels == number][0]].tolist()}
            for number in range(CLASSES)
        }

    before, after = partners(first), partners(last)
    alone = [number for number in before if len(before[number]) == 1]
    assert len(alone) == 1  # nine classes are two fours
    for number in before:
        assert len(before[number]) == len(after[number]) == (1 if number in alone else 2)
        assert (before[number] & after[number] == {number}) or number in alone
        assert last.touched[data.labels == number].all() == (number not in alone)


def test_a_change_counts_from_its_own_time_on(data, lists):
    world = make(data, lists[:, :LENGTH], "new objects", 1, CHANGES)
    assert [world.at(one) for one in (-np.inf, 0, HOUR - 1, HOUR, 4 * HOUR, DAY)] == [0, 0, 0, 1, 4, 4]


def test_users_see_and_ask_only_what_is_there(data, lists):
    state = make(data, lists[:, :LENGTH], "all together", 2, CHANGES).states[0]
    visitors = Visitors(data, 2, split(data, 2), state)
    seen = visitors.look(shown(lists, state.there), 300)
    assert state.there[seen.rows].all()
    assert state.asked[seen.rows[0]].all()
    everything = Visitors(data, 2, split(data, 2), replace(state, there=np.ones(len(data), bool)))
    assert not state.there[everything.look(lists[:, :LENGTH], 300).rows].all()
    made = Made(own_scores(data.joined()), state.there)
    rows = split(data, 2).asking[:50]
    assert (made[rows] == shown(lists, state.there)[rows]).all()


def test_a_list_too_short_is_refused(lists):
    there = np.zeros(ROWS, bool)
    there[:LENGTH] = True
    with pytest.raises(ValueError, match="fewer than 10"):
        shown(lists, there)


def test_answers_are_of_what_is_there_and_judged_by_what_is_right_now(data):
    rows, every = np.arange(0, ROWS, 7), np.ones(ROWS, bool)
    state = WorldState(every, every, data.labels, data.labels == 0)
    perfect = np.where(data.labels[:, None] == data.labels, 1.0, 0.0).astype(np.float32)
    found = answered(lambda some: perfect[some], state, rows)
    assert found.ap == found.p10 == found.touched == 1
    assert found.clicks == pytest.approx(0.8 * (1 / np.sqrt(np.arange(1, 11))).sum())
    gone = replace(state, there=(data.labels % 2 == 0) | (np.arange(ROWS) < 3 * CLASSES))
    half = answered(lambda some: perfect[some], gone, rows)
    assert half.ap == 1
    assert half.p10 < 1  # of odd classes there are three objects
    swapped = replace(state, labels=(data.labels // 2).astype(np.int64))
    assert answered(lambda some: perfect[some], swapped, rows).ap < 0.95


def test_expected_clicks_are_those_of_simulated_users():
    right = np.array([True, False, True, True, False, False, True, False, True, True])
    rng = np.random.default_rng(0)
    drawn = np.mean([len(position_biased(right, rng)) for _ in range(20_000)])
    assert expected_clicks(right[None])[0] == pytest.approx(drawn, abs=0.03)


def test_recovery_is_when_nine_tenths_of_the_way_are_reached():
    assert recovery([0, 10, 20, 30, 40], [0, 0.5, 1, 1, 1]) == pytest.approx(18)
    assert recovery([0, 10, 20, 30, 40], [0.2, 1.2, 1.2, 1.2, 1.2]) == pytest.approx(9)
    assert recovery([0, 10, 20, 30, 40], [0, 0, 0.9, 1.2, 0.9]) == pytest.approx(20)
    assert recovery([0, 10, 20, 30], [1, 0.5, 1, 1]) is None
    assert recovery([0, 10, 20, 30], [1, 1, 1, 1], 0.5) is None


def test_a_delay_shows_the_same_curve_later():
    times, values = [0, HOUR, DAY], [0.0, 1.0, 1.0]
    assert delayed(times, values, 0, DAY) == pytest.approx(1 - 0.5 / 24, abs=1e-3)
    assert delayed(times, values, 6 * HOUR, DAY) == pytest.approx(0.75 - 0.5 / 24, abs=1e-3)
    assert delayed(times, values, DAY, DAY) == pytest.approx(0, abs=1e-3)


def test_a_correction_is_the_right_object_over_wrong_ones_above_it(data):
    one = corrections.Correction(0, CLASSES)  # rows 0, 9, 18 ... are of one class
    answer = np.array([1, 18, 2, 3, CLASSES, 4, 5, 6, 7, 8])
    rows = corrections.triplets(data, one, answer, np.random.default_rng(0))
    assert (rows[:2].T == (0, CLASSES)).all()
    assert {*rows[2, :-1]} == {1, 2, 3}
    missing = np.array([1, 2, 3, 4, 5, 6, 7, 8, 10, 18])
    rows = corrections.triplets(data, one, missing, np.random.default_rng(0))
    assert rows.shape[1] == 5 + 1
    assert not {0, CLASSES} & {*rows[2]}
    assert (data.labels[rows[2, :-1]] != data.labels[0]).all()


def test_a_rescorer_changes_its_own_query_and_forgets(data):
    setting, own = corrections.Setting(data, 0), own_scores(data.joined())
    one = corrections.Correction(0, int(np.argsort(own(np.array([0]))[0])[-3]))
    rows = np.arange(20)
    gained = corrections.rescored(setting, [one], 3)(rows) - own(rows)
    assert gained[0, one.right] == pytest.approx(corrections.BOOST * 3 / 4, abs=1e-6)
    assert np.count_nonzero(gained) == 1
    assert corrections.decayed(2 * corrections.HALF_LIFE) == 0.25
    later = corrections.rescored(setting, [one], 3, corrections.HALF_LIFE)(rows) - own(rows)
    assert later[0, one.right] == pytest.approx(corrections.BOOST * 1.5 / 2.5, abs=1e-6)
