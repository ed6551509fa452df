"""The protocol of ridge regression: its formula, what the parts see, and what centring does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from learners import ViewConfig
from tests.results.ridge import (
    RHOS,
    SplitRows,
    SplitVectors,
    cell,
    class_rate,
    classify,
    embed,
    lines,
    rank,
    ridge,
    vectors,
)


@pytest.mark.parametrize("shape", [(40, 7), (7, 40)])
@pytest.mark.parametrize("columns", [1, 3])
def test_the_weights_are_those_of_the_formula(shape: tuple[int, int], columns: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=shape), rng.normal(size=(shape[0], columns))
    for rho, W in zip(RHOS, ridge(X, Y), strict=True):
        expected = np.linalg.inv(X.T @ X + rho * np.eye(shape[1])) @ X.T @ Y
        np.testing.assert_allclose(W, expected, rtol=1e-4, atol=1e-6)


def test_a_rate_is_the_mean_over_classes() -> None:
    scores = np.eye(3)[[0, 0, 0, 0, 1, 0]]
    assert class_rate(scores, np.array([0, 0, 0, 0, 1, 2])) == pytest.approx(2 / 3)


def test_parts_are_disjoint_and_drawn_by_the_seed() -> None:
    parts = SplitRows.of(100, 0)
    assert [len(rows) for rows in (parts.train, parts.test, parts.validation)] == [60, 20, 20]
    assert len({*parts.train, *parts.test, *parts.validation}) == 100
    assert not np.array_equal(parts.test, SplitRows.of(100, 1).test)


def test_an_embedding_is_fitted_on_the_training_part_alone_and_scaled_by_one_number() -> None:
    rng = np.random.default_rng(0)
    rows, parts = rng.normal(size=(200, 5)).astype(np.float32), SplitRows.of(200, 0)
    plan = ViewConfig("pcalap", {"directions": 3})
    found = embed(plan, rows, parts, 0)
    assert np.square(found.train).sum(axis=1).mean() == pytest.approx(1)
    changed = rows.copy()
    changed[parts.test] *= 100
    other = embed(plan, changed, parts, 0)
    np.testing.assert_array_equal(other.train, found.train)
    np.testing.assert_array_equal(other.validation, found.validation)
    assert not np.array_equal(other.test, found.test)


def clusters(
    count: int = 900, far: float = 0.0, noise: float = 0.6
) -> tuple[SplitRows, SplitVectors, np.ndarray]:
    """Three classes around corners of a triangle, their middle so far from the origin."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    Z = rng.normal(0, noise, (count, 6))
    Z[:, :3] += np.eye(3)[labels] * 2
    Z[:, 5] += far
    parts = SplitRows.of(count, 0)
    return parts, SplitVectors(Z[parts.train], Z[parts.test], Z[parts.validation]), labels


def test_more_labels_classify_better_than_chance_and_than_few() -> None:
    parts, Z, labels = clusters()
    few, many = (classify(parts, Z.centred(), labels, each, 0) for each in (1, 100))
    assert 1 / 3 < few < many
    assert many > 0.9


def test_centring_matters_where_nearly_all_labels_are_positive() -> None:
    """Far from the origin all labels pull along the mean; about the mean they do not (section 4.4)."""
    parts, Z, labels = clusters(far=5.0, noise=1.2)
    as_they_are, centred = (rank(parts, rows, labels, 150, 5, 0) for rows in (Z, Z.centred()))
    assert as_they_are is not None
    assert centred is not None
    assert centred > as_they_are + 0.1


def test_a_class_with_too_few_rows_is_not_ranked_for() -> None:
    parts, Z, labels = clusters()
    assert rank(parts, Z, labels, 10_000, 5, 0) is None


def test_every_set_has_the_embeddings_that_make_sense_of_it() -> None:
    assert {"AddKPCA", "HIKE", "SQRT", "RFF"} <= set(vectors("photos").embeddings())
    gist = vectors("gist").embeddings()
    assert {"AddKPCA-gaussian", "PCALap-50", "RPLap"} <= set(gist)
    assert not {"AddKPCA", "HIKE", "SQRT"} & set(gist)


def test_a_cell_is_measured_once_and_drawn_with_its_deviation(tmp_path: Path) -> None:
    found = cell("gist", "Nystroem-50", 0, tmp_path)
    assert 0.1 < found["3"] < found["100"] < 1
    path = tmp_path / "gist" / "Nystroem-50" / "0.json"
    kept = json.loads(path.read_text())
    assert kept["found"] == found
    kept["found"]["3"] = 0.25
    path.write_text(json.dumps(kept))
    assert cell("gist", "Nystroem-50", 0, tmp_path)["3"] == 0.25
    kept["found"]["3"] = 0.35
    (path.parent / "1.json").write_text(json.dumps(kept))
    drawn = list(lines(["gist"], tmp_path))
    (row,) = [line for line in drawn if line.startswith("| Nystroem-50 |") and ".300" in line]
    assert "**.300 ± .071**" in row
    kept["version"] = 0
    path.write_text(json.dumps(kept))
    assert cell("gist", "Nystroem-50", 0, tmp_path) == found
