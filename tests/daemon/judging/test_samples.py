"""Errors of means over lists of the same queries, differences on the same queries, and which versions are
told from the best."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from daemon.judging.samples import MeanEstimate, QuerySample, VersionScores, compare


def test_the_error_of_a_mean_is_that_of_clusters() -> None:
    values, query = np.array([1.0, 3.0, 2.0, np.nan, 6.0]), np.array([0, 0, 1, 1, 2])
    found = QuerySample.of_lists(values, query, 4).estimate()
    mean = 3.0
    residuals = [1.0 + 3.0 - 2 * mean, 2.0 - mean, 6.0 - mean]
    error = math.sqrt(sum(one**2 for one in residuals) * 3 / 2) / 4
    assert found == MeanEstimate(mean, pytest.approx(error), 3)


def test_of_one_list_for_each_query_it_is_the_usual_one() -> None:
    values = np.random.default_rng(1).normal(size=50)
    found = QuerySample.of_queries(values).estimate()
    assert found.mean == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / math.sqrt(50))


def test_what_makes_queries_hard_for_both_cancels_out() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(scale=10.0, size=200)
    one, other = (
        QuerySample.of_queries(hard + 0.1),
        QuerySample.of_queries(hard + rng.normal(scale=0.01, size=200)),
    )
    difference = one.less(other)
    assert difference.mean == pytest.approx(0.1, abs=0.01)
    assert difference.error < 0.01 < one.estimate().error


def test_a_difference_is_of_the_queries_that_both_have() -> None:
    one, other = (
        QuerySample.of_queries(np.array([1.0, np.nan, 3.0])),
        QuerySample.of_queries(np.array([0.0, 9.0, 1.0])),
    )
    assert one.less(other).mean == 1.5
    assert one.less(other).queries == 2


def test_nothing_is_known_of_one_query_or_none() -> None:
    assert QuerySample.of_queries(np.array([1.0])).estimate().half_width() == math.inf
    assert math.isnan(QuerySample.of_queries(np.array([np.nan])).estimate().mean)


def test_scores_come_back_bit_for_bit() -> None:
    values = np.random.default_rng(3).normal(size=20)
    scores = VersionScores({"map_shown": 1 / 3}, {"map_shown": QuerySample.of_queries(values)})
    back = VersionScores.from_json(json.loads(json.dumps(scores.to_json())))
    assert back.measures == scores.measures
    assert back.samples["map_shown"].sums.tobytes() == values.tobytes()


def of(values: np.ndarray, measure: str = "map_shown") -> VersionScores:
    return VersionScores({}, {measure: QuerySample.of_queries(values)})


def test_the_best_comes_first_and_the_surely_worse_are_told() -> None:
    rng = np.random.default_rng(4)
    hard = rng.normal(size=300)
    near, far = hard + rng.normal(scale=0.1, size=300), hard - 0.5 + rng.normal(scale=0.1, size=300)
    rows = compare([of(far), of(hard + 0.001), VersionScores({}), of(near)], "map_shown")
    assert [one.at for one in rows][-1] == 0
    assert {one.at for one in rows} == {0, 1, 3}
    assert [one.noise for one in rows] == [True, True, False]
    assert rows[0].is_best
    assert rows[0].to_best.mean == 0.0


def test_of_a_loss_less_is_better() -> None:
    rows = compare([of(np.array([2.0, 2.1, 1.9]), "loss"), of(np.array([1.0, 1.1, 0.9]), "loss")], "loss")
    assert [one.at for one in rows] == [1, 0]
    assert rows[1].to_best.mean == pytest.approx(1.0)
    assert not rows[1].noise


def test_the_truly_best_is_left_out_in_one_of_twenty_at_most() -> None:
    """The hardest case: 20 settings that are all alike, of which the first is called the best."""
    rng = np.random.default_rng(5)
    left_out = 0
    for _ in range(300):
        hard = rng.normal(size=100)
        rows = compare([of(hard + rng.normal(scale=0.3, size=100)) for _ in range(20)], "map_shown")
        left_out += not next(one for one in rows if one.at == 0).noise
    assert left_out <= 25  # 300 / 20 = 15 are allowed on average, and 25 is beyond three deviations of it
