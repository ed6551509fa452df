"""Every map is a transformer of scikit-learn: its own checks, its pipelines, its searches."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from learners import KINDS, MapError, MapTransformer, ViewConfig, as_block, fit_map, load_map

from .examples import block, dense
from .test_map_kernels import counts, points

SETTINGS: dict[str, dict[str, Any]] = {
    "rff": {"components": 12},
    "rplap": {"directions": 12},
    "chain": {"maps": [ViewConfig("unit"), ViewConfig("whiten")]},
    "kernels": {"maps": [ViewConfig("cosine"), ViewConfig("whiten")]},
}
HISTOGRAMS = ("tfidf", "shares", "sqrt", "hike", "addkpca")
OF_MAPS = ("chain", "kernels")
"""Which rows they take depends on the maps in them: no fixed tag says it."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OF_MAPS])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_a_map_passes_the_checks_that_scikit_learn_has_for_transformers(kind: str) -> None:
    check_estimator(MapTransformer(kind, **SETTINGS.get(kind, {})))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", ["dense", "sparse"])
def test_it_gives_the_bits_of_the_map_in_every_batch_also_after_pickling(kind: str, rows: str) -> None:
    values = (counts(60) if kind in HISTOGRAMS or rows == "sparse" else points(60)).astype(np.float32)
    try:
        wanted = fit_map(ViewConfig(kind, SETTINGS.get(kind, {})), block(values, rows))
    except MapError:
        if kind not in ("tfidf", "by_count"):  # which takes dense counts here as sparse ones
            with pytest.raises((ValueError, TypeError)):
                MapTransformer(kind, **SETTINGS.get(kind, {})).fit(sparse.csr_array(values))
        return
    given = sparse.csr_array(values) if rows == "sparse" else values
    fitted = MapTransformer(kind, **SETTINGS.get(kind, {})).fit(given)
    whole = in_full(fitted.transform(given))
    np.testing.assert_array_equal(whole, dense(wanted.transform(block(values, rows))))
    again = pickle.loads(pickle.dumps(fitted))
    assert (
        b"".join(in_full(again.transform(given[n : n + 1])).tobytes() for n in range(60)) == whole.tobytes()
    )
    assert in_full(clone(fitted).fit_transform(given)).tobytes() == whole.tobytes()


def in_full(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def test_dense_counts_are_weighed_as_sparse_ones() -> None:
    values = counts().astype(np.float32)
    found = MapTransformer("tfidf").fit_transform(values)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(
        found.toarray(), MapTransformer("tfidf").fit_transform(sparse.csr_array(values)).toarray()
    )


def test_a_pipeline_learns_through_it_and_a_search_finds_its_options() -> None:
    """Rings inside each other, which no line tells apart."""
    rng = np.random.default_rng(0)
    turns, labels = rng.random(300) * 2 * np.pi, np.arange(300) % 3
    X = (1 + labels)[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1) + rng.normal(
        0, 0.1, (300, 2)
    )
    pipe = make_pipeline(MapTransformer("nystroem", landmarks=100, bandwidth=0.5), RidgeClassifier())
    search = GridSearchCV(pipe, {"maptransformer__components": [1, 40], "maptransformer__seed": [3]}, cv=3)
    search.fit(X, labels)
    assert search.best_params_ == {"maptransformer__components": 40, "maptransformer__seed": 3}
    assert search.best_score_ > 0.95
    assert RidgeClassifier().fit(X, labels).score(X, labels) < 0.6


def test_names_of_columns_are_given() -> None:
    fitted = MapTransformer("pcalap", directions=2).fit(points())
    assert list(fitted.get_feature_names_out()) == [f"maptransformer{n}" for n in range(4)]


def test_what_it_fitted_is_the_map_that_a_version_holds() -> None:
    fitted = MapTransformer("addkpca").fit(counts())
    same = load_map({"kind": "addkpca", **fitted.map_.spec()}, fitted.map_.arrays())
    x = counts(seed=3).astype(np.float32)
    np.testing.assert_array_equal(dense(same.transform(as_block(x))), fitted.transform(x))


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        ("magic", {}, "unknown kind"),
        ("unit", {"levels": 3}, "no option 'levels'"),
        ("hike", {"levels": 0}, "levels"),
    ],
)
def test_what_no_map_has_is_refused_when_it_is_fitted(kind: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(MapError, match=word):
        MapTransformer(kind, **options).fit(counts())
