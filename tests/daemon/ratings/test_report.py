"""What ratings say, against cases worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daemon.exits import EX_DATAERR, UserError
from daemon.ratings.report import (
    agreement_of,
    average_precision,
    estimates,
    fleiss_kappa,
    precision_at,
    qrels,
    report_of,
)
from daemon.ratings.study import LIST
from daemon.validate.judgments import load_judgments
from tests.daemon.ratings.made import rating, study

A = [f"a{n}" for n in range(10)]
B = ["a0", *(f"b{n}" for n in range(9))]
TWO = study({"q": (A, B), "r": (A, B)})


def test_precision_at_k_is_the_share_of_the_first_k_that_is_relevant() -> None:
    found = precision_at([True, False, True, True])
    assert found[:4] == pytest.approx([1, 1 / 2, 2 / 3, 3 / 4])
    assert found[9] == pytest.approx(3 / 10), "places that a short list lacks are misses"
    assert average_precision(found) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision(np.zeros(LIST)) == 0


def test_both_systems_get_what_was_marked_in_their_lists() -> None:
    said = [rating(TWO, "q", "anna", ["a0", "a1", "b8"])]
    report = report_of("first", said)
    assert report.systems is not None
    first, second = report.systems
    assert (first.system.name, first.system.model, second.system.name) == ("stable", "12+340", "0")
    assert [one.mean for one in first.precision[:3]] == pytest.approx([1, 1, 2 / 3])
    assert [one.mean for one in second.precision] == pytest.approx([1 / k for k in range(1, 10)] + [2 / 10])
    assert [one.mean for one in report.difference[:2]] == pytest.approx([0, 1 / 2])
    assert report.difference[0].error is None, "one query has no error"
    assert first.spread_queries is None
    assert report.raters == {"anna": 1}


def test_means_are_over_raters_within_a_query_then_over_queries() -> None:
    said = [
        rating(TWO, "q", "Anna", A),
        rating(TWO, "q", "ben", []),
        rating(TWO, "q", "cleo", []),
        rating(TWO, "r", "anna", A),
    ]
    report = report_of("first", said)
    assert report.systems is not None
    first = report.systems[0]
    assert [one.mean for one in first.precision] == pytest.approx([(1 / 3 + 1) / 2] * LIST)
    assert {name: row[0] for name, row in first.by_rater.items()} == {"Anna": 1.0, "ben": 0.0, "cleo": 0.0}
    assert report.raters == {"Anna": 2, "ben": 1, "cleo": 1}
    assert first.spread_queries == pytest.approx(0), "Anna alone has two queries, and marked both alike"
    assert first.spread_raters == pytest.approx(np.std([1, 0, 0], ddof=1))


def test_errors_come_from_drawing_the_queries_again() -> None:
    draws = np.random.default_rng(1)
    rows = draws.normal(0.5, 0.2, (60, 2))
    one, _ = estimates(rows)
    error = rows[:, 0].std(ddof=1) / 60**0.5
    assert one.error == pytest.approx(error, rel=0.1)
    assert one.low == pytest.approx(one.mean - 1.96 * error, abs=0.2 * error)
    assert one.high == pytest.approx(one.mean + 1.96 * error, abs=0.2 * error)
    assert estimates(rows)[0] == one, "the same ratings have the same report"


def test_raters_who_all_say_the_same_leave_an_error_of_nothing() -> None:
    report = report_of("first", [rating(TWO, query, "anna", A) for query in ("q", "r")])
    assert report.systems is not None
    one = report.systems[0].precision[0]
    assert (one.mean, one.error, one.low, one.high) == (1, 0, 1, 1)


def test_kappa_of_two_raters_is_that_of_the_textbook() -> None:
    lists = study({"q": ([f"x{n}" for n in range(10)], [f"y{n}" for n in range(10)])})
    marks = [f"x{n}" for n in range(10)]
    said = [rating(lists, "q", "anna", marks), rating(lists, "q", "ben", [*marks[:7], "y0", "y1"])]
    # both: 7 yes, 8 no; 3 and 2 apart: observed 15/20; by chance 10/20 * 9/20 + 10/20 * 11/20 = 1/2.
    found = agreement_of(said)
    assert (found.objects, found.pairs) == (20, 1)
    assert found.same == pytest.approx(0.75)
    assert found.cohen == pytest.approx((0.75 - 0.5) / (1 - 0.5))
    yes = 19 / 40
    chance = yes**2 + (1 - yes) ** 2
    assert found.fleiss == pytest.approx((0.75 - chance) / (1 - chance))


def test_fleiss_kappa_is_that_of_a_worked_example() -> None:
    # Ten subjects, fourteen raters, five categories: kappa .210 (en.wikipedia.org/wiki/Fleiss'_kappa).
    rows = [
        "0 0 0 0 14", "0 2 6 4 2", "0 0 3 5 6", "0 3 9 2 0", "2 2 8 1 1",
        "7 7 0 0 0", "3 2 6 3 0", "2 5 3 2 2", "6 5 2 1 0", "0 2 2 3 7",
    ]  # fmt: skip
    counts = np.array([row.split() for row in rows], float)
    assert fleiss_kappa(counts) == pytest.approx(0.210, abs=5e-4)


def test_agreement_that_chance_leaves_no_room_for_is_not_told() -> None:
    found = agreement_of([rating(TWO, "q", "anna", []), rating(TWO, "q", "ben", [])])
    assert (found.same, found.cohen, found.fleiss) == (1.0, None, None)
    alone = agreement_of([rating(TWO, "q", "anna", A), rating(TWO, "r", "ben", A)])
    assert (alone.objects, alone.same, alone.cohen, alone.pairs, alone.fleiss) == (0, None, None, 0, None)


def test_a_study_without_ratings_has_a_report_of_nothing() -> None:
    assert report_of("first", []).systems is None


def test_judgments_are_what_half_of_the_raters_marked_and_validate_reads_them(tmp_path: Path) -> None:
    said = [
        rating(TWO, "q", "anna", ["a1", "b2"]),
        rating(TWO, "q", "ben", ["a1"]),
        rating(TWO, "r", "anna", []),
    ]
    file = tmp_path / "qrels.txt"
    file.write_text("".join(f"{line}\n" for line in qrels(said)))
    assert load_judgments(f"qrels:{file}").relevant == {"q": {"a1", "b2"}, "r": set()}
    file.write_text("".join(f"{line}\n" for line in qrels(said, share=0.6)))
    assert load_judgments(f"qrels:{file}").relevant == {"q": {"a1"}, "r": set()}


def test_an_id_that_qrels_cannot_hold_is_told() -> None:
    odd = study({"q": (["a b"], ["c"])})
    with pytest.raises(UserError, match="the id 'a b' holds white space") as problem:
        list(qrels([rating(odd, "q", "anna", [])]))
    assert problem.value.code == EX_DATAERR
