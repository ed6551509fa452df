"""Kinds of queries that no click covered are not answered worse than by the user's own ranking."""

from __future__ import annotations

from daemon.validate.choosing import CAREFUL
from daemon.versions.forms import DEFAULT_FORM
from tests.quality.bench.backoff import Giving, measured

SHARP = Giving(1.5, 0.0)
LISTS, QUERIES = 2_000, 150
NOISE = 0.012
"""Of mAP and P@10 on so many queries, about two standard errors of a paired difference."""


def test_the_default_gives_way_where_no_click_helped() -> None:
    """Handwritten digits: ten large classes, of which two or three never come, the worst case there is."""
    offered = Giving.of(DEFAULT_FORM), Giving.of(CAREFUL)
    found = {how: pairs for _, how, pairs in measured("digits", [LISTS], QUERIES, (SHARP, *offered))}
    lost = found[SHARP]["never clicked"]
    assert lost[0] < -0.15
    assert lost[1] < -0.05, "nothing is lost: nothing is tested"
    for how in offered:
        apart, gained = found[how]["never clicked"], found[how]["clicked"]
        print(how, apart, gained)
        assert apart[0] > -NOISE, how
        assert apart[1] > -NOISE, how
    assert found[offered[0]]["clicked"][0] > 0, "nothing is left of what was learned"
