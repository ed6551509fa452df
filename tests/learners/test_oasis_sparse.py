"""OASIS with touched entries alone: what is kept when there are too many, states that are a function of the
steps and not of where entries lie, symmetric forms that follow steps, and merging."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from learners import ConfigError, Oasis, OasisConfig, SparseBlock, StateError, StepBatch, TripletBatch
from learners.forms.touched import Tables, entries_of
from learners.merge_touched import TouchedMerge
from learners.oasis_sparse import OasisSparse, OasisSparseConfig, touched_bytes
from learners.outcome import DEGENERATE, UPDATED

from .examples import triplets
from .under_test import bits, saved, without_counters

DIM = 40
FULL = OasisSparseConfig(C=0.5, entries=600)
"""So few entries that some must go again and again."""
SEEDS = st.integers(0, 2**32 - 1)


def clicks(seed: int, n: int, dim: int = DIM, of: int = 6) -> TripletBatch:
    """Triplets of vectors with so many numbers each, at columns of which the first come most."""
    rng = np.random.default_rng(seed)

    def some() -> SparseBlock:
        chosen = [
            np.unique((dim * rng.random(of) ** 2).astype(np.int32)) for _ in range(n)
        ]  # fmt: skip
        pointers = np.concatenate([[0], np.cumsum([len(one) for one in chosen])]).astype(np.int64)
        columns = np.concatenate(chosen)
        return SparseBlock(pointers, columns, rng.normal(0, 0.5, len(columns)).astype(np.float32), dim)

    return TripletBatch(some(), some(), some())


def dense_of(learner: OasisSparse) -> NDArray[np.float32]:
    """W - W_0."""
    return learner.change().toarray()


@given(seed=SEEDS, cuts=st.lists(st.integers(0, 300), min_size=1, max_size=4), pieces=st.integers(1, 50))
@settings(max_examples=15, deadline=None)
def test_while_entries_go_all_who_take_the_steps_have_the_same_bits(
    seed: int, cuts: list[int], pieces: int
) -> None:
    """At once, in parts, from a saved state between any two events, as a clone, and by steps."""
    batch = clicks(seed, 300)
    whole, parts, copy = (OasisSparse(DIM, FULL) for _ in range(3))
    whole.learn_many(batch)
    assert whole.drops > 2
    at = 0
    for number, cut in enumerate([*sorted(cuts), 300]):
        part = batch.slice(at, cut)
        info = parts.learn_many(part)
        for steps in parts.taken(part, info):
            for start in range(0, max(1, len(steps)), pieces):
                copy.replay(steps.slice(start, start + pieces))
        state = saved(parts)
        parts = OasisSparse.from_state(state, FULL) if number % 2 else parts.clone()
        if number % 2 == 0:
            copy = OasisSparse.from_state(saved(copy), FULL)
        at = cut
    assert bits(parts) == bits(whole)
    assert without_counters(bits(copy)) == without_counters(bits(whole))


def test_the_state_is_the_touched_entries_by_row_and_column() -> None:
    learner, batch = OasisSparse(DIM, OasisSparseConfig(C=0.5)), clicks(1, 30)
    info = learner.learn_many(batch)
    wanted, touched = np.zeros((DIM, DIM), np.float32), np.zeros((DIM, DIM), bool)
    for steps in learner.taken(batch, info):
        assert isinstance(steps, StepBatch)
        q, e = (one.checked_csr().toarray() for one in (steps.query, steps.error))  # type: ignore[union-attr]
        for tau, left, right in zip(steps.tau, q, e, strict=True):
            V = np.outer(tau * left, right).astype(np.float32)
            wanted += V
            touched |= np.outer(left != 0, right != 0)
    state = learner.state()
    rows, columns = np.nonzero(touched)
    assert np.array_equal(np.repeat(state["rows"], np.diff(state["starts"])), rows)
    assert np.array_equal(state["columns"], columns)
    assert state["values"].tobytes() == wanted[touched].tobytes()
    assert 0 < learner.entries == touched.sum() < DIM * DIM
    assert int(state["dim"]) == DIM


def test_an_entry_that_becomes_0_stays_and_is_saved() -> None:
    learner = OasisSparse(2)
    q, e = (sparse.csr_array(np.array([row], np.float32)) for row in ([1.0, 0.0], [0.0, 1.0]))
    for tau in (0.5, -0.5):
        learner.replay(StepBatch(np.array([tau], np.float32), *(_row(one) for one in (q, e))))
    assert learner.entries == 1
    again = OasisSparse.from_state(saved(learner))
    assert again.entries == 1
    assert again.state()["values"].tolist() == [0.0]


def _row(matrix: sparse.csr_array) -> SparseBlock:
    return SparseBlock(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, matrix.shape[1]
    )


def kept_by_the_rule(values: NDArray[np.float32], most: int) -> NDArray[np.bool_]:
    """Which of entries in the order of row and column stay: by the upper 15 bits of their magnitude, then by
    their place."""
    magnitude = (values.view(np.uint32) & 0x7FFFFFFF) >> 16
    order = np.lexsort((np.arange(len(values)), -magnitude.astype(np.int64)))
    stays = np.zeros(len(values), bool)
    stays[order[:most]] = True
    return stays


@given(seed=SEEDS, most=st.integers(1, 500), alike=st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_largest_stay_and_of_those_that_are_alike_the_first(seed: int, most: int, alike: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array((DIM, DIM), density=0.3, rng=rng, format="csr", dtype=np.float32)
    values = rng.normal(size=matrix.nnz)
    matrix.data = (np.sign(values) * 0.25 if alike else values).astype(np.float32)
    before = entries_of(matrix)
    tables = Tables.of_entries(DIM, before)
    other = tables.transposed()
    stays = kept_by_the_rule(before["values"], most)
    cut = tables.cut_for(most)
    went = tables.drop_below(cut)
    other.drop_below(cut, transposed=True)
    after = tables.entries()
    rows = np.repeat(before["rows"], np.diff(before["starts"]))
    assert went == (~stays).sum()
    assert tables.count == min(most, matrix.nnz)
    assert np.array_equal(np.repeat(after["rows"], np.diff(after["starts"])), rows[stays])
    assert np.array_equal(after["columns"], before["columns"][stays])
    assert after["values"].tobytes() == before["values"][stays].tobytes()
    assert np.array_equal(other.matrix().toarray(), tables.matrix().toarray().T)


def test_a_step_is_never_cut_and_the_budget_holds() -> None:
    learner, most = OasisSparse(DIM, FULL), 0
    for t in range(300):
        batch = clicks(t, 1)
        before, drops = learner.entries, learner.drops
        info = learner.learn_many(batch)
        most = max(most, learner.entries)
        if learner.drops > drops:
            assert info.outcome[0] == UPDATED
            assert before > FULL.entries // 2
            assert FULL.entries // 2 <= learner.entries
    assert most <= FULL.entries
    assert learner.drops > 2
    assert learner.dropped > learner.drops


def test_a_step_of_more_than_half_of_the_entries_is_not_taken() -> None:
    learner = OasisSparse(DIM, OasisSparseConfig(entries=64))
    rows = np.full((3, DIM), 0.5, np.float32)
    info = learner.learn_many(rows[:1], rows[1:2], -rows[2:])
    assert (info.outcome[0], learner.entries, learner.events) == (DEGENERATE, 0, 1)
    one = _row(sparse.csr_array(rows[:1]))
    with pytest.raises(ValueError, match="step 0 of 1"):
        learner.replay(StepBatch(np.ones(1, np.float32), one, one))


@pytest.mark.parametrize("dim", [1, 7, 40, 3_000])
def test_without_a_budget_it_is_oasis_to_rounding(dim: int) -> None:
    learner, other = OasisSparse(dim, OasisSparseConfig(C=0.5)), Oasis(dim, OasisConfig(C=0.5))
    for seed in range(10):
        batch = clicks(seed, 100, dim)
        mine, its = learner.learn_many(batch), other.learn_many(batch)
        assert (mine.outcome == its.outcome).all()
        np.testing.assert_allclose(mine.tau, its.tau, rtol=1e-3, atol=1e-5)
    W = np.eye(dim, dtype=np.float32) + dense_of(learner)
    np.testing.assert_allclose(W, other.W, atol=1e-4)


def test_memory_goes_by_what_was_touched_and_not_by_columns() -> None:
    dim = 1_000_000
    learner = OasisSparse(dim)
    for seed in range(10):
        learner.learn_many(clicks(seed, 100, dim, 20))
    assert learner.entries > 100_000
    used = learner.tables.nbytes - 16 * dim  # and W_0, 4 bytes a column
    assert used < 24 * learner.entries + 100_000
    assert used + 20 * dim <= touched_bytes(dim, learner.entries) + 100_000
    state = sum(array.nbytes for array in learner.state().values())
    assert state < 8 * learner.entries + 12 * dim // 50
    assert OasisSparse.from_state(saved(learner)).tables.nbytes - 16 * dim < 20 * learner.entries


@given(seed=SEEDS, pieces=st.integers(1, 80))
@settings(max_examples=10, deadline=None)
def test_a_symmetric_form_follows_the_steps_that_a_copy_takes(seed: int, pieces: int) -> None:
    """Also while entries go."""
    learner, copy, batch = OasisSparse(DIM, FULL), OasisSparse(DIM, FULL), clicks(seed, 200)
    (steps,) = learner.taken(batch, learner.learn_many(batch))
    copy.form(copy=False)
    for start in range(0, len(steps), pieces):
        copy.replay(steps.slice(start, start + pieces))  # type: ignore[union-attr]
        if start % 3 == 0:
            copy = copy.clone()
    form = copy.form(copy=False)
    assert form.transposed is not None
    assert np.array_equal(form.transposed.matrix().toarray(), dense_of(learner).T)
    W = dense_of(learner).astype(float) + np.eye(DIM)
    queries = batch.query.checked_csr().toarray()  # type: ignore[union-attr]
    np.testing.assert_allclose(form.fold(batch.query), queries @ (W + W.T) / 2, atol=1e-4)
    learned = copy.as_learned(copy=False)
    np.testing.assert_allclose(learned.fold(batch.query), queries @ W, atol=1e-4)
    assert np.abs(W - W.T).max() > 0.1


def test_a_form_that_is_a_copy_stays_and_one_that_is_none_is_made_anew_after_learning() -> None:
    learner = OasisSparse(DIM)
    learner.learn_many(clicks(1, 50))
    kept, batch = learner.form(), clicks(2, 50)
    before = kept.fold(batch.query)
    learner.learn_many(batch)
    assert np.array_equal(kept.fold(batch.query), before)
    now = learner.form(copy=False)
    assert now.transposed is not None
    assert np.array_equal(now.transposed.matrix().toarray(), dense_of(learner).T)


def merged(states: list[dict[str, Any]], updates: list[int], **how: Any) -> NDArray[np.float64]:
    found = TouchedMerge(OasisSparseConfig()).states(states[0], states[1:], updates, **how)
    return OasisSparse.from_state(found).change().toarray().astype(float)


@pytest.mark.parametrize("summed", [True, False])
def test_merged_are_the_entries_of_all(summed: bool) -> None:
    base = OasisSparse(DIM)
    base.learn_many(clicks(0, 20))
    first, second = base.clone(), base.clone()
    first.learn_many(clicks(1, 20))
    second.learn_many(clicks(2, 20))
    S, A, B = (dense_of(one).astype(float) for one in (base, first, second))
    factors = (1, 1) if summed else (0.75, 0.25)
    found = merged([saved(one) for one in (base, first, second)], [30, 10], summed=summed)
    np.testing.assert_allclose(found, S + factors[0] * (A - S) + factors[1] * (B - S), atol=1e-6)


def test_a_merge_keeps_to_the_budget_and_counts_what_went() -> None:
    config = OasisSparseConfig(C=0.5, entries=300)
    base = OasisSparse(DIM, config)
    states, before = [], np.zeros(2, np.int64)
    for seed in (1, 2):
        one = base.clone()
        one.learn_many(clicks(seed, 8))
        states.append(saved(one))
        before += [one.drops, one.dropped]
    merge = TouchedMerge(config)
    found = OasisSparse.from_state(merge.states(saved(base), states, [8, 8]), config)
    both = merged([saved(base), *states], [8, 8])
    assert np.count_nonzero(both) > 300 == found.entries
    assert [found.drops, found.dropped] == (before + [1, np.count_nonzero(both) - 300]).tolist()
    assert found.events == 16
    wrong = saved(OasisSparse(DIM + 1, config))
    with pytest.raises(StateError, match="other dimensions"):
        merge.states(saved(base), [wrong], [1])
    with pytest.raises(StateError, match="other arrays"):
        merge.rebased(saved(base), {"W": np.eye(3)}, saved(base))


def test_settings_and_sizes_that_cannot_be_are_refused() -> None:
    for wrong in ({"C": 0.0}, {"entries": 63}, {"entries": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            OasisSparseConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dim"):
        OasisSparse(0)


def test_dense_rows_are_the_sparse_rows_that_they_are() -> None:
    learners = [OasisSparse(DIM, FULL) for _ in range(2)]
    for learner, kind in zip(learners, ("dense", "sparse"), strict=True):
        learner.learn_many(triplets(3, 50, DIM, kind))
    assert bits(learners[0]) == bits(learners[1])
