"""`tripletd serve` of a learned distance with raw scores: the nearest, by one more number per item."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from daemon.client import follow
from daemon.exits import EX_OK
from learners.forms.quadratic import by_distance, folds
from tests.daemon.serve.test_role import Place
from tests.daemon.serve.test_role_supports import asked, offline
from tests.harness.waiting import until

RAW = """
[learner]
algorithm = "dissim-oasis"
[serving]
score = "raw"
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.file.write_text(made.file.read_text() + RAW)
    yield made
    made.end()


def test_answers_are_the_nearest_by_the_distance_of_the_version(place: Place) -> None:
    place.feed(80, seed=1)
    place.learn()
    number = place.newest().number
    form, objects = offline(place, number)
    assert by_distance(form)
    assert folds(form)
    scores = form.scores(objects, objects)
    inner = form.fold(objects) @ np.asarray(objects.kernel_rows()).T
    role = place.start("serve")
    until(lambda: role.get("/v1/similar?id=o3&alias=latest")[0] == 200, role.said)
    turned = 0
    for own in (3, 11, 30):
        hits, body = asked(role, f"id=o{own}&k=5&alias=latest")
        best = [row for row in np.argsort(-scores[own], kind="stable").tolist() if row != own][:5]
        assert body["version"] == str(number)
        assert [name for name, _ in hits] == [f"o{row}" for row in best]
        np.testing.assert_allclose([score for _, score in hits], scores[own, best], atol=1e-4)
        assert max(score for _, score in hits) <= 1e-4
        turned += np.argsort(-inner[own])[:5].tolist() != np.argsort(-scores[own])[:5].tolist()
    assert turned, "items whose own number decides"
    assert role.stop() == EX_OK
    with follow(place.file, "latest") as model:
        values = np.asarray(objects.kernel_rows())
        items = model.items(values, [f"o{row}" for row in range(len(values))])
        found, pairs = model.similar(values[3], items, k=5), model.scores(values[:4], items)
    assert [int(name[1:]) for name in found.ids] == np.argsort(-scores[3], kind="stable")[:5].tolist()
    np.testing.assert_allclose(found.scores, np.sort(scores[3])[::-1][:5], atol=1e-4)
    np.testing.assert_allclose(pairs, scores[:4], atol=1e-4)
