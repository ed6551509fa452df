"""The skeletons that people copy keep the laws of what they are: a learner, a map, a reader; the store keeps
those of tests/checkpoints/contract.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from learners import DenseBlock, Learner, MapError, StateError
from learners.maps import ViewMap
from streams.event import Impression, ObjectRef
from streams.feed.inputs import Input
from streams.feed.items import Dropped
from streams.feed.options import ReaderOptions
from tests.learners.examples import malformed, triplets
from tests.learners.under_test import bits

SKELETONS = Path(__file__).parents[2] / "docs" / "skeletons"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"skeleton_{name}", SKELETONS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for the types
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_learner_learns_the_same_however_it_is_cut(kind: str) -> None:
    Perceptron = load("learner").Perceptron
    Perceptron.warm_up()
    batch = triplets(0, 40, 6, kind)
    whole: Learner = Perceptron(6)
    single, copy = Perceptron(6), Perceptron(6)
    info = whole.learn_many(batch)
    for t in range(40):
        single.learn_many(batch.slice(t, t + 1))
    for steps in whole.taken(batch, info):
        copy.replay(steps)
    assert bits(whole) == bits(single) == bits(copy) == bits(Perceptron.from_state(whole.state()))
    before = bits(whole)
    for bad, reason in malformed(kind, 6):
        assert whole.learn_many(bad).reason.tolist() == [reason]
    assert bits(whole) == before
    with pytest.raises(StateError, match="w has dtype"):
        Perceptron.from_state({"w": np.ones(6, np.float32)})


def test_the_learner_prefers_what_was_clicked() -> None:
    learner = load("learner").Perceptron(3)
    q, c, s = [1, 1, 0], [1, 0, 0], [0, 1, 0]
    for _ in range(20):
        learner.learn_one(q, c, s)
    clicked, skipped = learner.form(normalised=False).scores([q], [c, s])[0]
    assert clicked > skipped


def test_the_map_is_one_and_is_read_back() -> None:
    rng = np.random.default_rng(0)
    sample = DenseBlock(rng.standard_normal((50, 4)))
    fitted: ViewMap = load("map").TanhMap.fit(sample, {"scale": 2.0})
    again = type(fitted).load(fitted.spec(), fitted.arrays())
    rows = fitted.transform(sample)
    assert isinstance(rows, DenseBlock)
    assert rows.values.tobytes() == again.transform(sample).values.tobytes()
    assert rows.values[7:8].tobytes() == fitted.transform(sample.slice(7, 8)).values.tobytes()
    assert not fitted.transform(DenseBlock(np.zeros((1, 4)))).values.any()
    with pytest.raises(MapError, match="fitted on 4"):
        fitted.transform(DenseBlock(np.zeros((1, 5))))
    with pytest.raises(MapError, match="no option"):
        type(fitted).fit(sample, {"width": 1})


def test_the_reader_gives_impressions_and_drops_bad_lines_by_name(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_bytes(
        b"visit-7,2026-05-01T12:00:00Z,red shoes,shoe-1|shoe-9|boot-3,shoe-9\n"
        b"visit-8,,boots,boot-3|boot-4,hat-1\n\xff,,,,\nvisit-9,soon,boots,boot-3,\na,b\n"
        b"visit-10,,boots,boot-3|boot-4,\n"
    )
    with Input(str(path)) as source:
        items = dict(load("reader").read_csv(source, ReaderOptions(now_ms=5, source="shop")))
    first, *bad, last = items.values()
    shown = tuple(ObjectRef(id=one) for one in ("shoe-1", "shoe-9", "boot-3"))
    assert first == Impression(
        "visit-7", 1777636800000, ObjectRef(id="red shoes"), shown, (1,), source="shop"
    )
    assert all(isinstance(one, Dropped) for one in bad)
    assert [one.reason.removeprefix("malformed:") for one in bad] == [
        "bad_clicked_id",
        "bad_row",
        "bad_timestamp",
        "bad_row",
    ]
    assert isinstance(last, Impression)
    assert (last.ts, last.clicked) == (5, ())
