"""Which objects a rater is shown, in which order, and that neither tells who found them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.ratings.study import (
    LONGEST_NAME,
    StudyQuery,
    blind_order,
    next_query,
    ranks_of,
    rated,
    rater_name,
)
from tests.daemon.ratings.made import study

ids = st.lists(st.text(min_size=1, max_size=6), unique=True, min_size=1, max_size=10)


def shown(query: StudyQuery, rater: str = "anna") -> list[str]:
    return blind_order("first", query.query, rater, ranks_of(query))


@given(one=ids, other=ids)
def test_the_order_is_the_same_whoever_found_the_objects_and_at_whatever_rank(
    one: list[str], other: list[str]
) -> None:
    order = shown(StudyQuery("q", (tuple(one), tuple(other))))
    assert sorted(order) == sorted({*one, *other}), "each object once"
    assert order == shown(StudyQuery("q", (tuple(other), tuple(one)))), "with the systems exchanged"
    assert order == shown(StudyQuery("q", (tuple(one[::-1]), tuple(sorted(other))))), "with other ranks"
    everything = sorted({*one, *other})
    assert order == shown(StudyQuery("q", (tuple(everything[:1]), tuple(everything)))), "in other lists"


def test_chance_puts_neither_system_nor_rank_first() -> None:
    first, rank = Counter[str](), Counter[int]()
    for number in range(600):
        lists = [f"a{number}-{n}" for n in range(10)], [f"b{number}-{n}" for n in range(10)]
        order = shown(StudyQuery(f"q{number}", (tuple(lists[0]), tuple(lists[1]))))
        first[order[0][0]] += 1
        rank[int(order[0].rpartition("-")[2])] += 1
    assert abs(first["a"] - 300) < 5 * 12.3, "five standard deviations of a fair coin"
    assert all(abs(rank[n] - 60) < 5 * 7.4 for n in range(10))


def test_each_rater_and_each_query_has_an_order_of_its_own_that_stays() -> None:
    objects = [f"o{n}" for n in range(20)]
    orders = [
        tuple(blind_order("first", query, rater, objects))
        for query, rater in (("q", "anna"), ("q", "ben"), ("r", "anna"))
    ]
    assert len(set(orders)) == 3
    assert orders[0] == tuple(blind_order("first", "q", "Anna", reversed(objects)))


def test_an_object_of_both_lists_is_shown_once_and_counts_for_both() -> None:
    made = study({"q": (["a", "b", "c"], ["c", "d"])})
    query = made.queries[0]
    assert ranks_of(query) == {"a": (1, None), "b": (2, None), "c": (3, 1), "d": (None, 2)}
    said = rated(made, query, "anna", ["c"], at=7, token="raters")
    assert Counter(one.id for one in said.results) == Counter("abcd")
    assert {one.id: one.ranks for one in said.results if one.relevant} == {"c": (3, 1)}
    assert (said.at, said.token, said.systems) == (7, "raters", made.systems)


def test_what_was_not_shown_cannot_be_marked() -> None:
    made = study({"q": (["a"], ["b"])})
    with pytest.raises(ValueError, match="'z' was not shown"):
        rated(made, made.queries[0], "anna", ["a", "z"], at=0)


def test_all_are_asked_the_same_queries_in_the_same_order() -> None:
    made = study({name: (["a"], ["b"]) for name in "xyz"})
    found = [next_query(made, done) for done in (["y"], ["x"], "xyz")]
    assert [one and one.query for one in found] == ["x", "y", None]


@pytest.mark.parametrize(
    ("given", "kept"), [("  Anna \n B. ", "Anna B."), ("Ju\u0308rgen", "J\u00fcrgen"), ("\u5f20", "\u5f20")]
)
def test_a_name_is_kept_in_one_form(given: str, kept: str) -> None:
    assert rater_name(given) == kept


@pytest.mark.parametrize("given", ["", "  ", "a\0b", "a\u202eb", "x" * (LONGEST_NAME + 1)])
def test_what_is_no_name_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="expected a name or initials of 1 to 40"):
        rater_name(given)
