"""The page on the library runs from top to bottom, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "learners.md"
DIM, N = 8, 20


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the blocks of the page leave, run in order over random vectors."""
    rng = np.random.default_rng(0)
    queries, clicked, skipped, items = (rng.standard_normal((N, DIM), np.float32) for _ in range(4))
    left: dict[str, Any] = {
        "queries": queries, "clicked": clicked, "skipped": skipped, "items": items, "dim": DIM, "n": N
    }  # fmt: skip
    left["new"] = rng.standard_normal((100, 6), np.float32)
    left["old"] = left["new"] @ rng.standard_normal((6, DIM), np.float32)
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), left)
    return left


LEARNERS = (
    "oasis", "softmax", "oasis_softmax", "averaged", "dissim", "lego", "soml_da", "soml_tg", "oks", "omks",
    "oasis_diagonal", "oasis_sparse", "loreta", "lego_pairs", "omks_maps", "tethered", "keyed",
)  # fmt: skip


@pytest.mark.parametrize("name", LEARNERS)
def test_each_learner_of_the_page_learns_scores_and_searches(names: dict[str, Any], name: str) -> None:
    learner, items = names[name].clone(), names["items"]
    triplets = names["queries"], names["clicked"], names["skipped"]
    keys = ["ann"] * N if name == "keyed" else None
    before = {key: array.copy() for key, array in learner.state().items()}
    assert len(learner.learn_many(*triplets, keys=keys)) == N
    assert any(not np.array_equal(array, before[key]) for key, array in learner.state().items())
    assert learner.similarity(names["queries"], items).shape == (N, N)
    for normalised in (True, False):
        form = learner.form(normalised)
        scores, rows = names["SearchIndex"](form, items).search(names["queries"], 3)
        expected = form.scores(names["queries"], items)
        np.testing.assert_allclose(scores, np.sort(expected, axis=1)[:, ::-1][:, :3], atol=1e-4)
        np.testing.assert_allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-4)


def test_what_was_saved_is_what_was_learned(names: dict[str, Any]) -> None:
    oasis, again, fitted, same = (names[name] for name in ("oasis", "again", "fitted", "same"))
    assert again.W.tobytes() == oasis.W.tobytes()
    assert same.id == fitted.id
    mapped = names["mapped"]
    assert (
        mapped.values.tobytes()
        == same.transform({"image": names["queries"], "colour": abs(names["queries"])}).values.tobytes()
    )


def test_an_embedding_has_the_scores_as_inner_products(names: dict[str, Any]) -> None:
    matrix = names["oasis"].form().matrix
    np.testing.assert_allclose(
        names["embedded"] @ names["embedded"].T, names["items"] @ matrix @ names["items"].T, atol=1e-4
    )


def test_embedded_vectors_have_the_scores_of_the_form_as_inner_products(names: dict[str, Any]) -> None:
    expected = names["oasis"].form().scores(names["queries"], names["items"])
    np.testing.assert_allclose(names["asked"] @ names["documents"].T, expected, atol=1e-5)


def test_a_query_of_the_other_model_comes_to_where_its_pair_is(names: dict[str, Any]) -> None:
    vector, old = names["vector"], names["old"][0]
    assert vector @ old > 0.99 * np.linalg.norm(vector) * np.linalg.norm(old)
