"""Rules, as a table: what one list with its clicks says under each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.feed.options import RULES

CASES = {
    "skip_above": {
        (5, (3,)): [(3, 0), (3, 1), (3, 2)],
        (5, (0,)): [],
        (5, (1, 3)): [(1, 0), (3, 0), (3, 2)],
        (3, (0, 1, 2)): [],
        (3, ()): [],
    },
    "last_click": {
        (5, (3,)): [(3, 0), (3, 1), (3, 2)],
        (5, (1, 3)): [(3, 0), (3, 2)],
        (5, (0,)): [],
        (3, ()): [],
    },
    "skip_next": {
        (5, (3,)): [(3, 4)],
        (5, (4,)): [],
        (5, (0, 1)): [(1, 2)],
        (5, (0, 2)): [(0, 1), (2, 3)],
        (3, ()): [],
    },
    "all_skipped": {
        (4, (1,)): [(1, 0), (1, 2), (1, 3)],
        (4, (0, 3)): [(0, 1), (0, 2), (3, 1), (3, 2)],
        (3, (0, 1, 2)): [],
        (3, ()): [],
    },
    "clicked_vs_random": {(5, (3,)): [], (5, (1, 3)): []},
}


@pytest.mark.parametrize(
    ("rule", "shown", "clicked", "pairs"),
    [(rule, *case, pairs) for rule, table in CASES.items() for case, pairs in table.items()],
)
def test_table(rule: str, shown: int, clicked: tuple[int, ...], pairs: list[tuple[int, int]]) -> None:
    assert list(RULES[rule](shown, clicked)) == pairs


def test_every_rule_has_a_table() -> None:
    assert set(CASES) == set(RULES)


@given(st.sampled_from(sorted(RULES)), st.lists(st.booleans(), max_size=12))
def test_pairs_are_a_clicked_and_an_unclicked_rank_each_once(rule: str, marks: list[bool]) -> None:
    clicked = tuple(rank for rank, mark in enumerate(marks) if mark)
    pairs = RULES[rule](len(marks), clicked)
    assert len(set(pairs)) == len(pairs)
    for hit, skipped in pairs:
        assert marks[hit]
        assert not marks[skipped]
