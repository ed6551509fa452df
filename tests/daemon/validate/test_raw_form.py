"""Where clicks depend on how good an object is for any query, the judge takes raw scores; elsewhere not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemon.validate.choosing import LEAST_LISTS, FormChooser
from daemon.validate.judge import Judge
from daemon.validate.scorer import MappedObjects
from daemon.versions.forms import FIRST, OFFERED, RAW, FormChoice
from learners.block import DenseBlock, TripletBatch
from learners.forms.serving import ServingForm
from learners.maps import SpaceMap, ViewConfig
from learners.maps.base import OwnRanking
from learners.oasis import Oasis, OasisConfig
from streams.catalog import Catalog
from streams.event import DenseColumn, Impression, ObjectRef, SpaceSpec, ViewSpec

OBJECTS, CLASSES, DIM, LENGTH = 600, 6, 12, 10
TAUGHT, HELD = 4_000, 1_500


class Shop:
    """Objects of six classes, each more or less good, as one of its coordinates tells."""

    def __init__(self, popularity: bool, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.classes, self.good = self.draw.integers(CLASSES, size=OBJECTS), self.draw.random(OBJECTS)
        centres = 1.2 * self.draw.standard_normal((CLASSES, 5))
        given = [
            centres[self.classes] + 0.5 * self.draw.standard_normal((OBJECTS, 5)),
            1.5 * (2 * self.good - 1)[:, None],
            np.full((OBJECTS, 1), 1.5),
            self.draw.standard_normal((OBJECTS, DIM - 7)),
        ]
        self.values = np.concatenate(given, axis=1).astype(np.float32)
        fitted = SpaceMap({"x": ViewConfig("unit")}).fit({"x": DenseBlock(self.values)})
        space = SpaceSpec("shop", (ViewSpec("x", "dense", DIM),))
        self.ids = [f"o{row}" for row in range(OBJECTS)]
        catalog = Catalog(self.ids, {"x": DenseColumn(self.values)}, space)
        self.objects = MappedObjects(space, catalog, fitted)
        self.mapped = fitted.transform({"x": DenseBlock(self.values)}).values
        own = self.mapped @ self.mapped.T
        np.fill_diagonal(own, -np.inf)
        self.nearest = np.argsort(-own, axis=1)[:, :LENGTH]
        self.weight = 0.1 + 1.5 * self.good**2 if popularity else np.ones(OBJECTS)
        asked = self.draw.random(OBJECTS) < 0.7
        self.asking, self.held = np.flatnonzero(asked), np.flatnonzero(~asked)

    def lists(self, among: np.ndarray, count: int):
        """(query, objects shown, whether clicked): position-biased clicks on the class, and on others now and
        then."""
        examined = 1 / np.sqrt(np.arange(1, LENGTH + 1))
        for query in self.draw.choice(among, count).tolist():
            shown = self.nearest[query]
            wanted = np.where(self.classes[shown] == self.classes[query], 0.6, 0.1) * self.weight[shown]
            yield query, shown, self.draw.random(LENGTH) < np.minimum(wanted * examined, 0.95)

    def learned(self) -> np.ndarray:
        """W after the lists of those who ask: skip-above pairs, and a random object for each click."""
        rows = []
        for query, shown, clicked in self.lists(self.asking, TAUGHT):
            for rank in np.flatnonzero(clicked).tolist():
                rows += [(query, shown[rank], shown[above]) for above in range(rank) if not clicked[above]]
                rows.append((query, shown[rank], self.draw.integers(OBJECTS)))
        block, learner = DenseBlock(self.mapped), Oasis(DIM, OasisConfig(C=0.1))
        queries, right, wrong = np.array(rows).T
        learner.learn_many(TripletBatch(block.take(queries), block.take(right), block.take(wrong)))
        return learner.W

    def chosen(self, now: FormChoice | None = None) -> FormChoice:
        """What the judge takes of what was learned."""
        W = self.learned()

        def learned(choice: FormChoice) -> ServingForm:
            made = ServingForm.from_matrix(W, power=choice.power)
            return replace(made, normalised=False) if choice.raw else made

        impressions = [
            Impression(
                str(at), at, self.ref(query), tuple(map(self.ref, shown)), tuple(np.flatnonzero(clicked))
            )
            for at, (query, shown, clicked) in enumerate(self.lists(self.held, HELD))
            if 0 < clicked.sum() < LENGTH
        ]
        assert len(impressions) > LEAST_LISTS
        chooser = FormChooser(Judge(self.objects, None, 100), impressions, impressions)
        return chooser.choose(2, now, learned, OwnRanking("cosine", np.ones(DIM, np.float32)))

    def ref(self, row: int) -> ObjectRef:
        return ObjectRef(self.ids[row])


@pytest.mark.parametrize("seed", [1, 2])
def test_where_popularity_matters_raw_scores_are_taken(seed):
    found = Shop(popularity=True, seed=seed).chosen()
    assert found.raw
    assert found.told == "raw scores of what was learned"
    assert found.why.startswith(found.told)


@pytest.mark.parametrize("seed", [1, 2])
def test_where_it_does_not_they_are_not_taken_and_left(seed):
    assert not Shop(popularity=False, seed=seed).chosen().raw
    assert not Shop(popularity=False, seed=seed).chosen(OFFERED[FIRST]).raw


def test_a_choice_of_raw_scores_is_written_and_read():
    raw = replace(OFFERED[RAW], why="why")
    assert FormChoice.from_json(raw.to_json()) == raw
    assert raw.to_json()["score"] == "raw"
    for other in OFFERED[RAW + 1 :]:
        assert "score" not in other.to_json(), "as releases before it write it"
        assert FormChoice.from_json(other.to_json()) == other
