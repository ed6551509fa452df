"""Questions with a key: each answered by its own model, in one batch, over whatever items there are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from daemon.config.schema import ServingConfig
from daemon.replica.view import ModelId, View
from daemon.serve.query import OWN, VERSION_0, ByKey, Query, QueryError
from daemon.serve.retrieve import GraphSearch, KeySettings, Searcher
from daemon.versions.forms import KeyedForm, KeyedForms, MatrixForms
from daemon.versions.key_verdicts import COSINE, LEARNED, KeyVerdict, KeyVerdicts
from learners.block import TripletBatch
from learners.keyed import Keyed, KeyedConfig
from learners.oasis import Oasis, OasisConfig
from tests.daemon.serve.retrieve.makers import (
    DIM,
    Items,
    OneReplica,
    learned,
    searcher_of,
    several_parts,
    view_of,
)
from tests.learners.examples import block, rows

OASIS = OasisConfig(C=0.1)
SERVING = ServingConfig.model_validate({})


@dataclass
class Heard:
    """What was told of keys."""

    held: list[int] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def made(self, held: int) -> None:
        self.held.append(held)

    def answered(self, model: str) -> None:
        self.answers.append(model)


def keyed_view(kind: str) -> View:
    """A version in which "a" and "b" have learned different things."""
    learner = Keyed(
        DIM,
        KeyedConfig(
            lambda dim: Oasis(dim, OASIS), lambda arrays: Oasis.from_state(arrays, OASIS, copy=False), 3
        ),
    )
    rng = np.random.default_rng(5)
    for key in "ab":
        parts = [block(rows(rng, 200, DIM), kind) for _ in range(3)]
        learner.learn_many(TripletBatch(*parts, keys=np.full(200, key.encode(), "S64")))
    form = KeyedForms(MatrixForms()).make(learner, 3, SERVING)
    return View(ModelId(3, 0, None, 400), "map", form, 400)


def searcher(items: Items, view: View, graphs: GraphSearch | None = None, **settings: Any) -> Searcher:
    plain, _ = searcher_of(items)
    replica = OneReplica()
    keys = KeySettings(**settings)
    made = Searcher({"latest": replica}, items.snapshot, plain._lookup, graphs, keys=keys)
    replica.view = replace(view, prepared=made.prepare(view))
    return made


def best(items: Items, view: View, key: str | None, name: str, k: int) -> dict[str, float]:
    assert isinstance(view.form, KeyedForm)
    model = None if key is None else view.form.model_of(key)
    form = view.form.base if model is None else model.form()
    names, vectors = items.block()
    scores = form.scores(vectors.take([names.index(name)]), vectors)[0]
    order = [row for row in np.argsort(-scores, kind="stable") if names[row] != name][:k]
    return {names[row]: float(scores[row]) for row in order}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_each_question_of_a_batch_is_answered_by_its_own_model(kind: str) -> None:
    items, view, heard = several_parts(kind), keyed_view(kind), Heard()
    asked = ["a", None, "b", "nobody", "a", "b"]
    queries = [Query(id=f"b{n}", k=5, key=key) for n, key in enumerate(asked)]
    answers = searcher(items, view, observe=heard).search("latest", queries)
    for number, (key, hits) in enumerate(zip(asked, answers.results, strict=True)):
        wanted = best(items, view, key if key in ("a", "b") else None, f"b{number}", 5)
        assert not isinstance(hits, QueryError)
        assert {hit.id for hit in hits} == set(wanted)
        np.testing.assert_allclose([hit.score for hit in hits], list(wanted.values()), rtol=2e-5, atol=2e-6)
    own = {key: ByKey(key, OWN, None, 400) for key in "ab"}
    stranger = ByKey("nobody", VERSION_0, "unknown_key", None)
    assert [one.by for one in answers.each] == [own["a"], None, own["b"], stranger, own["a"], own["b"]]
    assert (heard.held, sorted(heard.answers)) == ([1, 2], [OWN, OWN, VERSION_0])


def test_a_verdict_against_it_leaves_version_0_to_answer() -> None:
    items, view = several_parts("dense"), keyed_view("dense")
    told = {
        "a": ((3,), (KeyVerdict(9, 1, 0, LEARNED),)),
        "b": ((3,), (KeyVerdict(9, 0, 1, COSINE),)),
    }
    found = searcher(items, view, verdicts=lambda: KeyVerdicts((3,), told))
    answers = found.search("latest", [Query(id="b1", key=key) for key in ("a", "b", None)])
    assert [None if by is None else by.model for by in (one.by for one in answers.each)] == [
        OWN,
        VERSION_0,
        None,
    ]
    assert answers.results[1] == answers.results[2] != answers.results[0]


def test_objects_that_come_and_go_are_in_the_answers_of_keys_too() -> None:
    items, view = several_parts("dense"), keyed_view("dense")
    found = searcher(items, view)
    ask = Query(id="b1", k=400, key="a")
    (before,) = found.search("latest", [ask]).results
    items.put(["new"], rows(np.random.default_rng(9), 1, DIM))
    items.remove(["b2"])
    replica = found._replicas["latest"]
    assert isinstance(replica, OneReplica)
    replica.view = replace(view, prepared=found.prepare(view))
    (after,) = found.search("latest", [ask]).results
    assert not isinstance(before, QueryError)
    assert not isinstance(after, QueryError)
    names = [{hit.id for hit in hits} for hits in (before, after)]
    assert names[0] ^ names[1] == {"new", "b2"}
    assert {hit.id: hit.score for hit in after} == pytest.approx(best(items, view, "a", "b1", 400), abs=2e-6)


def test_a_key_is_refused_where_one_model_answers_all_and_spoils_no_other_question() -> None:
    items = several_parts("dense")
    found, _ = searcher_of(items, view_of(learned(1)))
    refused, hits = found.search("latest", [Query(id="b1", key="a"), Query(id="b1")]).results
    assert isinstance(refused, QueryError)
    assert (refused.code, refused.field, refused.status) == ("no_keys", "key", 422)
    assert not isinstance(hits, QueryError)
