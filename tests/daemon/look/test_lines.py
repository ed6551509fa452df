"""Which versions make a line: restart, rollback, branch, lost manifests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.look.curves import Branch, lines


def test_without_versions_there_is_no_line() -> None:
    assert lines({}) == []


def test_versions_after_each_other_are_one_line_whatever_claims_lie_between() -> None:
    assert lines({0: None, 1: 0, 3: 1, 7: 3}) == [Branch(None, (0, 1, 3, 7))]


def test_going_back_leaves_a_line_behind_from_where_it_left() -> None:
    assert lines({0: None, 1: 0, 2: 1, 3: 2, 5: 1, 6: 5}) == [Branch(None, (0, 1, 5, 6)), Branch(1, (2, 3))]


def test_a_branch_of_a_branch_left_behind() -> None:
    found = lines({0: None, 1: 0, 2: 1, 3: 1, 4: 3, 5: 3, 6: 0})
    assert found == [Branch(None, (0, 6)), Branch(0, (1, 3, 5)), Branch(3, (4,)), Branch(1, (2,))]


def test_a_lost_parent_is_taken_for_the_newest_known_before_it() -> None:
    assert lines({0: None, 1: 0, 4: 3, 5: 4}) == [Branch(None, (0, 1, 4, 5))]
    assert lines({4: 3, 5: 4}) == [Branch(None, (4, 5))]


def test_a_parent_that_is_not_older_cannot_lead_in_circles() -> None:
    assert lines({1: 2, 2: 1, 3: 3}) == [Branch(None, (1, 2, 3))]


@given(st.lists(st.integers(0, 30), max_size=30))
def test_every_version_is_on_exactly_one_line(parents: list[int]) -> None:
    tree = {0: None} | dict(enumerate(parents, start=1))
    found = lines(tree)
    assert sorted(number for line in found for number in line.numbers) == sorted(tree)
    assert found[0].left is None
    assert found[0].numbers[-1] == max(tree)
    for line in found:
        assert list(line.numbers) == sorted(line.numbers)
        assert line.left is None or line.left < line.numbers[0]
