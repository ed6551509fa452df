"""What a rule makes of measures, as tables: guards, margin, and windows that cannot decide."""

from __future__ import annotations

import pytest

from daemon.validate.decide import CLICKS, FULL_CATALOG, Incumbent, is_finite, judge_by

ZERO = {"position_balanced": 0.5, "clicked_vs_random": 0.9}


def clicks(**changes):
    return {"impressions": 900, **ZERO, "position_balanced": 0.55} | changes


@pytest.mark.parametrize(
    ("rule", "own", "reference", "eligible"),
    [
        (FULL_CATALOG, {"map_full": 0.4, "p10_full": 0.5}, {"map_full": 0.2, "p10_full": 0.5}, True),
        (FULL_CATALOG, {"map_full": 0.4, "p10_full": 0.49}, {"map_full": 0.2, "p10_full": 0.5}, False),
        (FULL_CATALOG, {"map_full": 0.2, "p10_full": 0.5}, {"map_full": 0.2, "p10_full": 0.5}, False),
        (CLICKS, clicks(), ZERO, True),
        (CLICKS, clicks(position_balanced=0.5201), ZERO, True),
        (CLICKS, clicks(position_balanced=0.5199), ZERO, False),
        (CLICKS, clicks(clicked_vs_random=0.8701), ZERO, True),
        (CLICKS, clicks(clicked_vs_random=0.8699), ZERO, False),
        (CLICKS, clicks(impressions=500, position_balanced=0.5201), ZERO, True),
        (
            CLICKS,
            clicks(impressions=100, position_balanced=0.5670),
            ZERO,
            True,
        ),  # .02 (500 / 100)^.75 = .0669
        (CLICKS, clicks(impressions=100, position_balanced=0.5668), ZERO, False),
    ],
)
def test_eligible(rule, own, reference, eligible):
    judged = judge_by(rule, 4, own, reference)
    assert judged.eligible is eligible
    assert judged.gain == pytest.approx(own[rule.measure] - reference[rule.measure])


def test_a_guard_without_evidence_leaves_the_window_undecided():
    without = {name: value for name, value in ZERO.items() if name != "clicked_vs_random"}
    own = {name: value for name, value in clicks().items() if name != "clicked_vs_random"}
    judged = judge_by(CLICKS, 4, own, without)
    assert not judged.enough
    assert not judged.eligible
    fallen = judge_by(CLICKS, 4, own, ZERO)
    assert fallen.enough
    assert not fallen.guarded


@pytest.mark.parametrize(
    ("own", "best", "beats"),
    [
        (clicks(), None, True),
        (clicks(position_balanced=0.51), None, False),  # within the margin over version 0
        (clicks(), Incumbent(3, 0.5399, 0.01), True),
        (clicks(), Incumbent(3, 0.5401, 0.01), False),
        (clicks(), Incumbent(3, 0.55, 0.0), False),
        (clicks(position_balanced=0.51), Incumbent(3, 0.4, 0.01), False),
        (clicks(clicked_vs_random=0.86), Incumbent(3, 0.4, 0.01), False),
        (clicks(impressions=100), Incumbent(3, 0.4, 0.01), False),
    ],
)
def test_beats(own, best, beats):
    assert judge_by(CLICKS, 4, own, ZERO, best).beats is beats


def test_a_measure_that_is_not_a_number_decides_nothing():
    assert not is_finite({"map_full": float("nan")}, FULL_CATALOG)
    assert not is_finite({}, FULL_CATALOG)
    assert is_finite({"map_full": 0.1}, FULL_CATALOG)
