"""How a computation is cut into pieces changes no bit of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from learners.block import Block, DenseBlock, as_block
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import Pieces, ServedForm, batches, whole
from learners.forms.serving import ServingForm

DIM, ROWS = 300, 1_500


def cut_in(size: int, cuts: list[int] | None = None) -> Pieces:
    """Pieces of `size`; how many there were is added to `cuts`."""

    def pieces(count: int) -> Iterator[slice]:
        for start in range(0, count, size):
            if cuts is not None:
                cuts.append(start)
            yield slice(start, min(start + size, count))

    return pieces


def items(kind: str) -> Block:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(ROWS, DIM)).astype(np.float32)
    if kind == "dense":
        return DenseBlock(values)
    values[rng.random(values.shape) < 0.9] = 0
    return as_block(csr_array(values))


def learned() -> np.ndarray:
    rng = np.random.default_rng(4)
    return (np.eye(DIM) + rng.normal(0, 0.1, (DIM, DIM))).astype(np.float32)


FORMS: dict[str, Callable[[], ServedForm]] = {
    "matrix": lambda: ServingForm.from_matrix(learned()),
    "low rank": lambda: ServingForm.from_matrix(learned(), full_up_to=0, pairs=5),
    "carried matrix": lambda: CarriedForm.of(ServingForm.from_matrix(learned()), learned()),
    "carried low rank": lambda: CarriedForm.of(
        ServingForm.from_matrix(learned(), full_up_to=0, pairs=5), learned()
    ),
}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", FORMS)
def test_self_scores_have_the_same_bits_however_they_are_cut(name: str, kind: str) -> None:
    form, block = FORMS[name](), items(kind)
    cuts = list[int]()
    at_once = form.self_scores(block)
    for size in (1, 2, 7, 1000):
        assert form.self_scores(block, cut_in(size, cuts)).tobytes() == at_once.tobytes()
    assert len(cuts) > 8, "the work was cut"
    assert np.any(at_once > 0)


@given(st.integers(0, 10_000), st.integers(0, 1 << 26), st.integers(1, 50))
def test_batches_follow_from_the_shape_alone(rows: int, products: int, size: int) -> None:
    found = list(batches(rows, products, whole))
    assert found == list(batches(rows, products, cut_in(size)))
    assert [row for batch in found for row in range(batch.start, batch.stop)] == list(range(rows))
