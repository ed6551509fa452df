"""Rows given in any layout are what they mean: every learner, map, form and search gives the bits it gives
for canonical rows, or refuses them by name. What the caller gave never changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from learners import (
    KINDS,
    Block,
    BlockError,
    DenseBlock,
    IdentityForm,
    LearnerError,
    MapError,
    Oasis,
    Outcome,
    Reason,
    SearchIndex,
    SpaceMap,
    SparseBlock,
    TripletBatch,
    ViewConfig,
    as_block,
    as_items,
    concatenate,
    fit_map,
    score_rows,
    topk,
)
from learners.forms.quadratic import folds
from tests.learners.by_query import ByQuery
from tests.learners.learners_under_test import EACH, EACH_IMPLEMENTATION
from tests.learners.under_test import UnderTest, bits

from .layouts import (
    BAD_INDICES,
    BAD_ROW,
    BAD_VALUES,
    DIM,
    LAYOUTS,
    NO_ROWS,
    SPARSE,
    N,
    doubled,
    exact_rows,
    refuses,
    scattered,
    unchanged,
    unsorted,
)

KINDS_OF_ROWS = pytest.mark.parametrize("kind", ["dense", "sparse"])
Q, C, S = exact_rows(0), exact_rows(1), exact_rows(2)
X = exact_rows(3, 9)


def canonical(values: NDArray[np.float32], kind: str) -> Any:
    return sparse.csr_array(values) if kind == "sparse" else values


@pytest.fixture(autouse=True)
def _no_warnings_of_numbers() -> Any:
    with np.errstate(all="ignore"):
        yield


def learn(subject: UnderTest, *triplets: Any) -> tuple[Any, list[bytes], dict[str, bytes]]:
    """(the learner, the info's bytes, the state's)."""
    learner = subject.make(DIM)
    info = learner.learn_many(TripletBatch(*triplets))
    return (
        learner,
        [getattr(info, name).tobytes() for name in ("outcome", "loss", "tau", "reason")],
        bits(learner),
    )


def scorers(learner: Any) -> dict[str, Callable[[Any, Any], NDArray[Any]]]:
    """All that scores queries and items."""
    ways: dict[str, Callable[[Any, Any], NDArray[Any]]] = {"similarity": learner.similarity}
    for name, form in {"form": learner.form(), "raw form": learner.form(normalised=False)}.items():
        ways[name] = form.scores
        ways[f"{name}, items alone"] = lambda q, x, form=form: form.self_scores(x)
        if folds(form):
            ways[f"{name}, folded"] = lambda q, x, form=form: form.fold(q)
        ways[f"{name}, searched"] = lambda q, x, form=form: np.hstack(SearchIndex(form, x).search(q, 4))
    return ways


@cache
def taught(name: str) -> Any:
    """A learner that has learned something."""
    (subject,) = (one for one in EACH if one.name == name)
    return learn(subject, Q, C, S)[0]


@EACH_IMPLEMENTATION
@KINDS_OF_ROWS
def test_every_learner_learns_from_any_layout_what_it_learns_from_canonical_rows(
    subject: UnderTest, kind: str
) -> None:
    _, *wanted = learn(subject, *(canonical(rows, kind) for rows in (Q, C, S)))
    for name, layout in LAYOUTS[kind].items():
        triplets = [layout(rows) for rows in (Q, C, S)]
        with unchanged(name, *triplets):
            _, *found = learn(subject, *triplets)
        assert found == wanted, name


@EACH_IMPLEMENTATION
@KINDS_OF_ROWS
def test_every_learner_form_and_search_scores_any_layout_as_canonical_rows(
    subject: UnderTest, kind: str
) -> None:
    ways = scorers(taught(subject.name))
    for way, score in ways.items():
        wanted = score(canonical(Q, kind), canonical(X, kind))
        for name, layout in LAYOUTS[kind].items():
            queries, items = layout(Q), layout(X)
            with unchanged(f"{way}, {name}", queries, items):
                np.testing.assert_array_equal(score(queries, items), wanted, f"{way}, {name}")


OPTIONS: dict[str, dict[str, Any]] = {
    "hike": {"levels": 4},
    "rff": {"components": 6},
    "nystroem": {"components": 3},
    "pcalap": {"directions": 3},
    "rplap": {"directions": 3},
    "chain": {"maps": [ViewConfig("shares"), ViewConfig("sqrt")]},
    "kernels": {"maps": [ViewConfig("sqrt"), ViewConfig("hike")]},
}


@pytest.mark.parametrize("map_kind", KINDS)
@KINDS_OF_ROWS
def test_every_map_is_fitted_on_and_maps_any_layout_as_canonical_rows(map_kind: str, kind: str) -> None:
    config = ViewConfig(map_kind, OPTIONS.get(map_kind, {}))
    dense_only = {"standardise", "whiten", "pca", "precondition", "cosine", "pcalap", "rplap"}
    sparse_only = {"tfidf", "by_count"}
    if (kind == "sparse" and map_kind in dense_only) or (kind == "dense" and map_kind in sparse_only):
        refuses(kind, MapError, lambda: fit_map(config, canonical(X, kind)), "use a map of")
        return
    wanted = fit_map(config, canonical(X, kind))
    mapped = wanted.transform(canonical(Q, kind))
    space = SpaceMap({"x": config}).fit(canonical(X, kind))
    joined = space.transform(canonical(Q, kind))
    for name, layout in LAYOUTS[kind].items():
        sample, rows = layout(X), layout(Q)
        with unchanged(name, sample, rows):
            fitted = SpaceMap({"x": config}).fit({"x": sample})
            assert fitted.id == space.id, name
            for found, same in (
                (fitted.transform({"x": rows}), joined),
                (fitted.transform(rows), joined),
                (fitted.views["x"].transform(rows), mapped),
                (KINDS[map_kind].fit(sample, config.options).transform(rows), mapped),
            ):
                np.testing.assert_array_equal(numbers_of(found), numbers_of(same), name)


def numbers_of(block: Block) -> NDArray[Any]:
    return block.values if isinstance(block, DenseBlock) else block.checked_csr().toarray()


@KINDS_OF_ROWS
def test_the_search_finds_in_any_layout_what_it_finds_in_canonical_rows(kind: str) -> None:
    items = as_items(canonical(X, kind))
    wanted = topk(Q, items, None, None, 4)
    for name, layout in LAYOUTS[kind].items():
        given_items = layout(X)
        with unchanged(name, given_items):
            for found in (topk(Q, given_items, None, None, 4), topk(Q, as_items(given_items), None, None, 4)):
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(one, other, name)
            np.testing.assert_array_equal(
                score_rows(Q[0], given_items, None, wanted[1][0]), wanted[0][0], name
            )
        both = numbers_of(concatenate([layout(X), layout(Q)]))
        np.testing.assert_array_equal(both, np.vstack([X, Q]), name)


@given(data=st.data())
@settings(max_examples=60)
def test_rows_in_any_order_with_any_repetitions_are_what_scipy_makes_of_them(data: st.DataObject) -> None:
    columns = st.lists(st.integers(0, DIM - 1), max_size=9)
    rows = data.draw(st.lists(columns, max_size=5))
    indices = np.array([index for row in rows for index in row], np.int32)
    values = np.arange(1, len(indices) + 1) / 8
    given_rows = sparse.csr_array((values, indices, np.cumsum([0, *map(len, rows)])), shape=(len(rows), DIM))
    with unchanged(str(rows), given_rows):
        block = as_block(given_rows)
    assert isinstance(block, SparseBlock)
    block.check_indices()
    np.testing.assert_array_equal(block.checked_csr().toarray(), given_rows.toarray())


@EACH_IMPLEMENTATION
def test_what_are_no_rows_is_refused_by_every_learner_and_form(subject: UnderTest) -> None:
    """The error names the argument; nothing was learned."""
    learner, words = taught(subject.name), ("query", "clicked", "skipped", "triplets", "quer", "dimensions")
    before, ways = bits(learner), scorers(learner)
    for name, layout in NO_ROWS.items():
        for place in range(3):
            triplets: list[Any] = [Q, C, S]
            triplets[place] = layout(triplets[place])
            with unchanged(name, *triplets):
                refuses(name, BlockError, lambda t=triplets: learner.learn_many(TripletBatch(*t)), *words)
        for way, score in ways.items():
            if "alone" not in way:
                refuses(f"{way}, {name}", BlockError, lambda s=score: s(layout(Q), X), "quer")
            if "folded" not in way:
                refuses(f"{way}, {name}", BlockError, lambda s=score: s(Q, layout(X)), "items")
    assert bits(learner) == before


@pytest.mark.parametrize("map_kind", KINDS)
def test_what_are_no_rows_is_refused_by_every_map_by_the_name_of_its_view(map_kind: str) -> None:
    plan = SpaceMap({"colour": ViewConfig(map_kind, OPTIONS.get(map_kind, {}))})
    fitted = None
    for kind in ("dense", "sparse"):
        try:
            fitted = plan.fit({"colour": canonical(X, kind)})
            break
        except MapError:
            continue
    assert fitted is not None
    for name, layout in NO_ROWS.items():
        if name != "a dict":
            refuses(name, MapError, lambda: fitted.transform({"colour": layout(Q)}), "colour")
        if "a column" not in name and name != "a dict":
            refuses(name, MapError, lambda: plan.fit({"colour": layout(Q)}), "colour")


@EACH_IMPLEMENTATION
@KINDS_OF_ROWS
def test_a_row_with_a_value_that_is_not_finite_is_rejected_and_scores_nan_everywhere(
    subject: UnderTest, kind: str
) -> None:
    ways = scorers(taught(subject.name))
    for name, layout in BAD_VALUES.items():
        for place in range(3):
            triplets = [Q, C, S]
            triplets[place] = layout(triplets[place])
            learner = subject.make(DIM)
            info = learner.learn_many(TripletBatch(*(canonical(rows, kind) for rows in triplets)))
            assert np.flatnonzero(info.reason).tolist() == [BAD_ROW], name
            assert info.reason[BAD_ROW] == Reason.NOT_FINITE
            without = [np.delete(rows, BAD_ROW, axis=0) for rows in triplets]
            assert "events" in bits(learner) or bits(learner) == learn(subject, *without)[2], name
        for way, score in ways.items():
            bad_queries, bad_items = canonical(layout(Q), kind), canonical(layout(X), kind)
            if "searched" in way:
                refuses(f"{way}, {name}", BlockError, lambda s=score: s(bad_queries, X), f"row {BAD_ROW}")
                refuses(f"{way}, {name}", BlockError, lambda s=score: s(Q, bad_items), f"row {BAD_ROW}")
                continue
            sound = score(canonical(Q, kind), canonical(X, kind))
            if "alone" not in way and "folded" not in way:
                wanted = sound.copy()
                wanted[BAD_ROW] = np.nan
                found = score(bad_queries, canonical(X, kind))
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{way}, {name}")
                wanted = sound.copy()
                wanted[:, BAD_ROW] = np.nan
                found = score(canonical(Q, kind), bad_items)
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{way}, {name}")


@EACH_IMPLEMENTATION
def test_an_index_out_of_range_is_rejected_by_the_step_and_refused_by_scores(subject: UnderTest) -> None:
    ways = scorers(taught(subject.name))
    word = "row" if isinstance(taught(subject.name), ByQuery) else f"row {BAD_ROW}"
    for name, layout in BAD_INDICES.items():
        info = subject.make(DIM).learn_many(TripletBatch(*map(sparse.csr_array, (Q, C)), layout(S)))
        assert np.flatnonzero(info.reason).tolist() == [BAD_ROW], name
        assert info.reason[BAD_ROW] == Reason.INDEX_OUT_OF_RANGE
        for way, score in ways.items():
            if "alone" not in way:
                refuses(f"{way}, {name}", BlockError, lambda s=score: s(layout(Q), X), word)
            if "folded" not in way:
                refuses(f"{way}, {name}", BlockError, lambda s=score: s(Q, layout(X)), word)


@EACH_IMPLEMENTATION
def test_a_block_whose_rows_are_out_of_order_is_rejected_by_the_step_and_refused_by_scores(
    subject: UnderTest,
) -> None:
    """A block says of itself that it is canonical: what is not is never scored as something else."""
    ways, sound = scorers(taught(subject.name)), as_block(sparse.csr_array(S))
    for layout in (unsorted, doubled, scattered):
        rows = [layout(values) for values in (Q, X)]
        queries, items = (SparseBlock(one.indptr, one.indices, one.data, DIM) for one in rows)
        info = subject.make(DIM).learn_many(TripletBatch(queries, sound, sound))
        assert set(info.reason[info.outcome == Outcome.REJECTED]) == {Reason.INDICES_NOT_INCREASING}
        assert np.count_nonzero(info.outcome == Outcome.REJECTED) == N - 1  # all but the empty row
        for way, score in ways.items():
            if "alone" not in way:
                refuses(way, BlockError, lambda s=score, q=queries: s(q, X), "not above the one before")
            if "folded" not in way:
                refuses(way, BlockError, lambda s=score, x=items: s(Q, x), "not above the one before")


@KINDS_OF_ROWS
def test_no_rows_at_all_are_rows(kind: str) -> None:
    none = canonical(Q[:0], kind)
    for subject in EACH:
        learner = taught(subject.name)
        assert len(learn(subject, none, none, none)[1][0]) == 0
        for way, score in scorers(learner).items():
            assert score(none, canonical(X, kind)).size == (len(X) if "alone" in way else 0), way
            assert score(canonical(Q, kind), none).size in (0, N * DIM, 8 * N), way
    for plan in (ViewConfig("identity"), ViewConfig("unit")):
        fitted = SpaceMap({"x": plan}).fit(canonical(X, kind))
        assert len(fitted.transform(none)) == 0


def test_weights_that_are_no_numbers_are_refused_by_name() -> None:
    learner = Oasis(DIM)
    for weights in (
        ["1"] * N, [None] * N, [1] * (N - 1), 1.0, np.ones((N, 1)), np.ones(N, complex), "1" * N,
        [[1], [1, 2]], np.ma.masked_array(np.ones(N), np.ones(N)), {"a": 1},
    ):  # fmt: skip
        refuses(
            repr(weights), BlockError, lambda w=weights: learner.learn_many(Q, C, S, weights=w), "weights"
        )
    assert learner.events == 0
    for weights in (
        [1] * N,
        (1.0,) * N,
        np.ones(N, bool),
        np.ones(2 * N, ">f4")[::2],
        np.ones(N, object) * 0 == 0,
    ):
        other = Oasis(DIM)
        other.learn_many(Q, C, S, weights=weights)
        assert bits(other) == bits(_one_weight())


def _one_weight() -> Oasis:
    learner = Oasis(DIM)
    learner.learn_many(Q, C, S)
    return learner


@pytest.mark.parametrize(
    "rows", [[0.5], [True, False], np.ones(N, bool), ["0"], [None], [2**40], [-1], [[0, [1]]]]
)
def test_rows_are_taken_by_whole_numbers_alone(rows: Any) -> None:
    """A mask would be read as the rows 1 and 0."""
    for block in (as_block(X), as_block(sparse.csr_array(X))):
        refuses(repr(rows), BlockError, lambda b=block: b.take(rows), "rows")
    refuses(repr(rows), BlockError, lambda: score_rows(Q[0], X, None, rows), "rows")


def test_settings_of_a_search_that_are_none_are_refused_by_name() -> None:
    index = SearchIndex(IdentityForm(DIM, normalised=True), X)
    for k in (2.5, 2.0, True, "2", None, -1, np.nan):
        refuses(repr(k), BlockError, lambda k=k: topk(Q, X, None, None, k), "k must")
        refuses(repr(k), BlockError, lambda k=k: index.search(Q, k), "k must")
        refuses(
            repr(k), BlockError, lambda k=k: SearchIndex(taught("oks-rbf").form(), X).search(Q, k), "k must"
        )
    assert index.search(Q, np.int64(3))[1].shape == (N, 3)
    for name, wrong in {
        "scale": ["1"] * len(X), "offset": [None] * len(X), "allowed": np.ones(len(X)),
    }.items():  # fmt: skip
        terms: dict[str, Any] = {"scale": None, "allowed": None, "offset": None, name: wrong}
        refuses(
            name,
            BlockError,
            lambda t=terms: topk(Q, X, t["scale"], t["allowed"], 3, offset=t["offset"]),
            name,
        )
    for folded in (Q.astype(np.float64), Q[0], Q[:, 1:], Q.tolist(), None, "x", Q.astype(object)):
        refuses(repr(folded), BlockError, lambda f=folded: topk(f, X, None, None, 3), "folded")


def test_triplets_that_do_not_fit_each_other_are_refused() -> None:
    for triplets in ((Q, C), (Q, C[:-1], S), (Q, sparse.csr_array(C), S), (Q,), (), (Q, C, S, None, None)):
        with pytest.raises(LearnerError):
            Oasis(DIM).learn_many(*triplets)
    for name, layout in SPARSE.items():
        refuses(name, BlockError, lambda rows=layout: TripletBatch(Q, C, rows(S)), "skipped")
