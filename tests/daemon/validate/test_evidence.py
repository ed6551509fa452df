"""What follows from evidence, judgement by judgement."""

from __future__ import annotations

import json

import numpy as np
import pytest

from daemon.validate.betting import Capital, PairedTest
from daemon.validate.decide import (
    Incumbent,
    Judged,
    JudgedHistory,
    StopRule,
    best_version,
    outstanding,
    stopped_by,
)
from daemon.validate.evidence import (
    Comparison,
    Conclusion,
    EvidenceRule,
    Standing,
    Weighed,
    lists_missing,
    weigh,
)

RULE = EvidenceRule(0.05, 1_000)
UP, DOWN, SAME = 0.05, -0.05, 0.0


def told(mean, count, seed=0):
    found = mean + 0.2 * np.random.default_rng(seed).standard_normal(count)
    return np.clip(found - found.mean() + mean, -1, 1).tolist()


def seen(own, count=300, anchor=None, best=(), window=(), **more):
    fresh = told(own, count)
    against = fresh if anchor is None else told(anchor, count, seed=1)
    return Comparison(fresh, against, best, window, count, {0: count}, **more)


def answer(standing, best, version, outcome, shown=None):
    return Weighed(version, best, standing, outcome, RULE, shown).answer


PROVEN = weigh(Standing(), RULE, 1, 0, seen(UP))[0]


def test_what_is_surely_better_becomes_best_and_the_anchor():
    standing, outcome = weigh(Standing(), RULE, 1, 0, seen(UP))
    assert outcome == Conclusion("superior", promoted=True)
    assert (standing.anchor, standing.step.bets, standing.line.bets) == (1, 0, 300)
    words = answer(standing, 0, 1, outcome, seen(UP, higher=0.731))
    assert words.sentence == (
        "Yes: better than your ranking. Clicked objects stand higher in 73 of 100 held-out lists"
    )
    assert words.details[0] == "version 1 is shown to be better, error at most 0.05"


def test_several_versions_prove_together_what_none_can_alone():
    standing, found = Standing(), []
    for version in range(1, 4):
        standing, outcome = weigh(standing, RULE, version, 0, seen(UP, 60))
        found.append(outcome.found)
    assert found == ["not yet", "not yet", "superior"]
    assert standing.anchor == 3


@pytest.mark.parametrize(("mean", "finding"), [(DOWN, "inferior"), (SAME, "equivalent")])
def test_what_is_not_better_stays_where_it_is(mean, finding):
    standing, outcome = weigh(Standing(), RULE, 1, 0, seen(mean, 2_000))
    assert outcome == Conclusion(finding, reach=False)
    assert answer(standing, 0, 1, outcome).answer == "no"


def test_what_is_missing_is_said():
    standing, outcome = weigh(Standing(), RULE, 1, 0, seen(UP, 60))
    assert outcome == Conclusion("not yet", reach=False)
    missing = lists_missing(standing, RULE)
    assert 20 < missing < 300
    words = answer(standing, 0, 1, outcome, seen(UP, 60))
    assert words.sentence == f"Not known yet: about {missing:,} more held-out lists are needed"
    assert words.details == ("60 held-out lists so far",)
    drafted, outcome = weigh(standing, RULE, 2, 0, seen(SAME, 10, interleaved=4))
    assert answer(drafted, 0, 2, outcome).details == ("70 held-out lists so far, 4 of them interleaved",)
    nowhere, outcome = weigh(Standing(), RULE, 1, 0, seen(DOWN, 30))
    assert answer(nowhere, 0, 1, outcome).sentence == (
        "Not known yet: 30 held-out lists are not enough to tell"
    )


@pytest.mark.parametrize(
    ("guarded", "why"),
    [
        ({"window": told(DOWN, 300)}, "order of version 1"),
        ({"fresh_lead": told(DOWN, 300)}, "what was best before, such as version 1"),
    ],
)
def test_a_guard_holds_back_what_clicks_in_the_list_prefer(guarded, why):
    standing, outcome = weigh(PROVEN, RULE, 2, 1, seen(UP, **guarded))
    assert not outcome.promoted
    assert outcome.decided
    assert standing.anchor == 1
    words = answer(standing, 1, 2, outcome, seen(UP, **guarded))
    assert words.answer == "yes"
    assert why in " ".join(words.details)


def test_once_proven_best_follows_the_newest_that_is_not_worse():
    standing, outcome = weigh(PROVEN, RULE, 2, 1, seen(UP, anchor=SAME, count=100))
    assert outcome == Conclusion("not yet", promoted=True)
    assert standing.anchor == 1
    words = answer(standing, 1, 2, outcome)
    assert words.answer == "yes"
    assert words.details[0] == "version 1 is shown to be better, error at most 0.05"
    assert words.details[-1] == "nothing shows that version 2, which is best now, is worse"
    standing, outcome = weigh(standing, RULE, 3, 2, seen(UP, anchor=UP))
    assert outcome.improved
    assert standing.anchor == 3


@pytest.mark.parametrize(("best", "version", "asked"), [(1, 2, "own,stable"), (0, 2, "own,latest")])
def test_lists_that_can_tell_nothing_ask_for_interleaved_ones(best, version, asked):
    standing = PROVEN if best else Standing()
    words = answer(standing, best, version, Conclusion("not yet"), seen(UP, silent=90))
    assert words.answer == ("yes" if best else "not known yet")
    text = " ".join((words.sentence, *words.details))
    assert f"version {best or version} makes these lists itself" in text
    assert f"ask some questions with interleave={asked}" in text


def test_best_follows_several_versions_that_lose_together():
    """Each is best for too few lists to fall by itself: they are bet against together."""
    standing, best = PROVEN, 1
    for version in range(2, 12):
        standing, outcome = weigh(standing, RULE, version, best, seen(SAME, 60, best=told(DOWN, 60, version)))
        if outcome.fell:
            return
        best = version
    raise AssertionError(f"none fell: {standing.hold.log}")


def test_best_does_not_follow_what_is_worse_than_the_last_that_was_surely_better():
    """By steps too small for any to be found worse than the one before."""
    standing, outcome = weigh(PROVEN, RULE, 2, 1, seen(UP, anchor=DOWN))
    assert outcome == Conclusion("inferior")
    assert standing.anchor == 1
    words = answer(standing, 1, 2, outcome)
    assert "not so the newest, version 2: users prefer what came before it" in words.details


def test_a_best_version_that_loses_gives_way_and_the_next_proof_is_harder():
    standing, outcome = weigh(PROVEN, RULE, 2, 1, seen(DOWN, best=told(DOWN, 600)))
    assert outcome == Conclusion("inferior", fell=True) or outcome == Conclusion("not yet", fell=True)
    assert standing == Standing(falls=1, through={0: 300})
    assert standing.alpha(RULE) == RULE.alpha / 2
    words = answer(standing, 1, 2, outcome)
    assert (words.answer, words.sentence) == (
        "no",
        "No: version 1 lost to your ranking, which is served again",
    )


def test_it_is_the_same_after_the_ledger():
    again = Standing.from_json(json.loads(json.dumps(PROVEN.to_json())))
    assert again == PROVEN
    assert weigh(again, RULE, 2, 1, seen(UP)) == weigh(PROVEN, RULE, 2, 1, seen(UP))


def test_entries_of_before_go_on():
    """Without what came later: lists that two versions made, lists that are learned from, the race."""
    capital, other = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.0] * 6
    test = {"bets": 3, "total": 0.5, "squares": 0.25, "above": capital, "below": other}
    test |= {"not_below": other, "not_above": other}
    entry = {"anchor": 2, "falls": 1, "lists": 40, "line": test, "step": test, "hold": capital}
    found = Standing.from_json(entry | {"through": {"0": 40, "12": 7}})
    line = PairedTest(3, 0.5, 0.25, above=Capital(tuple(capital)))
    expected = Standing(2, line, line, hold=line.above, falls=1, lists=40, through={0: 40, 12: 7})
    assert found == expected
    assert found.to_json()["line"] == test
    assert found.to_json()["hold"] == capital
    assert found.to_json()["through"] == {"0": 40, "12": 7}


def judged(version, outcome, best=None):
    incumbent = None if best is None else Incumbent(best, 0.0, 0.0)
    return Judged(version, 0.0, 0.0, best=incumbent, outcome=outcome, events=version)


NOT_YET, BETTER, NO_WORSE = (
    Conclusion("not yet"),
    Conclusion("superior", promoted=True),
    Conclusion("not yet", promoted=True),
)
EQUAL, FELL = Conclusion("equivalent"), Conclusion("inferior", fell=True)


def test_best_moves_with_the_evidence():
    entries = [
        Judged(0, 0.0, 0.0),
        judged(1, NOT_YET),
        judged(2, BETTER),
        judged(3, NO_WORSE, 2),
        judged(4, EQUAL, 3),
    ]
    assert [best_version(entries[:count]) for count in range(1, 6)] == [0, 0, 2, 3, 3]
    assert best_version([*entries, judged(5, FELL, 3)]) == 0


def test_a_fall_is_a_rollback():
    entries = (Judged(0, 0.0, 0.0), judged(1, BETTER), judged(2, FELL, 1))
    verdicts = outstanding(JudgedHistory(entries, promoted=1), StopRule())
    assert [(one.kind, one.version) for one in verdicts] == [("ROLLBACK", 0)]


@pytest.mark.parametrize(
    ("outcome", "ends"),
    [
        (NOT_YET, False),
        (NO_WORSE, False),
        (EQUAL, True),
        (Conclusion("not yet", ("guard",)), True),
        (BETTER, False),
    ],
)
def test_patience_counts_evidence_alone(outcome, ends):
    entries = (Judged(0, 0.0, 0.0), *(judged(version, outcome) for version in range(1, 9)))
    assert (stopped_by(JudgedHistory(entries), StopRule(events=3)) is not None) is ends
