"""Columns of sparse views in the order of their counts: nobody who is outside notices but by the speed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.config import load_config
from daemon.config.learners import GAIN_BY_ORDER, LEARNERS, ORDERED_FROM
from daemon.exits import EX_CONFIG, EX_OK, UserError
from daemon.learn.resume.fitting import ordered_views
from daemon.models.diff import feature_names
from daemon.versions.algorithms import map_of
from tests.daemon.serve.test_role import Place
from tests.harness.waiting import until

OBJECTS, DIM = 60, 40
CONFIG = """
[stream]
address = "log:clicks.log"
[learner]
algorithm = "oasis"
[space.views.x]
kind = "sparse"
dim = 40
map = "{map}"
{order}
[catalog]
path = "catalog.jsonl"
[feed]
holdout_share = 0.0
random_negatives = 0
[checkpoints]
every = "1h"
[serve]
look_every = "50ms"
[http]
learn_port = 0
validate_port = 0
serve_port = 0
"""


class Words(Place):
    """Objects of few words of many, in a vocabulary whose order says nothing of how frequent they are."""

    def __init__(self, folder: Path, scaling: str, order: str) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.file.write_text(CONFIG.format(map=scaling, order=order and f'column_order = "{order}"'))
        draw = np.random.default_rng(6)
        frequent = draw.permutation(DIM)
        held = draw.random((OBJECTS, DIM)) < 1 / (1 + 0.3 * frequent)
        held[:, frequent.argmin()] = True
        self.words = (held * draw.integers(1, 5, (OBJECTS, DIM))).astype(np.float32)
        lines = []
        for number, row in enumerate(self.words):
            at = np.flatnonzero(row)
            sparse = {"indices": at.tolist(), "values": row[at].tolist()}
            lines.append(json.dumps({"id": f"o{number}", "x": sparse}))
        (folder / "catalog.jsonl").write_text("\n".join(lines))

    def feed(self, count: int, seed: int) -> None:
        """Lists, some of whose objects come with vectors of their own."""
        draw = np.random.default_rng(seed)
        lines = []
        for number in range(count):
            query, *shown = draw.choice(OBJECTS, 5, replace=False).tolist()
            at = np.flatnonzero(self.words[query])
            own = {"indices": at.tolist(), "values": self.words[query][at].tolist()}
            refs = {
                "q": {"id": f"new{query}", "x": own} if number % 3 == 0 else {"id": f"o{query}"},
                "shown": [{"id": f"o{one}"} for one in shown],
                "clicked": [int(np.argmax([self.words[one] @ self.words[query] for one in shown]))],
            }
            lines.append(json.dumps({"id": f"{seed}-{number}", "ts": int(time.time() * 1000), **refs}))
        source = self.folder / f"clicks{seed}.jsonl"
        source.write_text("\n".join(lines))
        assert main(["feed", str(source), "--config", str(self.file)]) == EX_OK

    def command(self, *words: str) -> int:
        return main([*words, "--config", str(self.file)])


@pytest.fixture(params=["unit", "tfidf"])
def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Words, Words]]:
    made = []
    for name, order in (("ordered", "frequency"), ("given", "given")):
        place = Words(tmp_path / name, request.param, order)
        monkeypatch.chdir(place.folder)
        place.feed(80, 1)
        place.learn()
        place.feed(80, 2)
        place.learn()  # goes on from a version
        made.append(place)
    yield made[0], made[1]
    for place in made:
        place.end()


def test_nobody_outside_sees_the_order(
    both: tuple[Words, Words], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = [place.versions.load(place.newest().number) for place in both]
    ordered, given = (map_of(version) for version in versions)
    columns = ordered.given_columns
    assert columns is not None
    assert given.given_columns is None
    counts = (both[0].words > 0).sum(axis=0)
    assert (np.diff(counts[columns]) <= 0).all()

    # the same W in other places, and recomputed to the bit
    moved, kept = (version.arrays["W"] for version in versions)
    assert np.abs(kept - versions[1].arrays["W"][0, 0] * np.eye(DIM)).max() > 0.01
    np.testing.assert_allclose(moved, kept[np.ix_(columns, columns)], atol=1e-4)
    monkeypatch.chdir(both[0].folder)
    last = str(versions[0].manifest.number)
    assert both[0].command("replay", "--from", "0", "--to", last, "--verify") == EX_OK
    assert "equal" in capsys.readouterr().out

    # features have the numbers that they have in the given vectors
    names = feature_names(ordered)
    assert [names(place) for place in range(DIM)] == [f"x[{column}]" for column in columns]
    diffs = []
    for place in both:
        monkeypatch.chdir(place.folder)
        assert place.command("models", "diff", "0", last, "--json") == EX_OK
        diffs.append(json.loads(capsys.readouterr().out)["steps"])
    largest = [{(one["first"], one["second"]): one["after"] for one in diff[:3]} for diff in diffs]
    assert largest[0] == {pair: pytest.approx(value, abs=1e-4) for pair, value in largest[1].items()}

    # a factor's columns are those of the given vectors
    factors = []
    for place in both:
        monkeypatch.chdir(place.folder)
        exported = ("models", "export", last, "--factor", "A.npy", "--embed", "E.npy")
        assert place.command(*exported) == EX_OK
        A, embedded = np.load("A.npy"), np.load("E.npy")
        factors.append(A.T @ A)
        mapped = _dense(map_of(versions[len(factors) - 1]), place.words)
        np.testing.assert_allclose(embedded, mapped @ A.T, atol=1e-4)
    np.testing.assert_allclose(factors[0], factors[1], atol=1e-3)

    # and the matrix that folds queries for an index of the given vectors
    matrices = []
    for place in both:
        monkeypatch.chdir(place.folder)
        assert place.command("models", "export", last, "--out", "F.npy", "--form", "folded") == EX_OK
        matrices.append(np.load("F.npy"))
    np.testing.assert_allclose(matrices[0], matrices[1], atol=1e-3 * np.abs(matrices[1]).max())


def _dense(fitted: Any, words: np.ndarray) -> np.ndarray:
    """Mapped rows, their columns as in the given vectors."""
    from scipy.sparse import csr_array

    mapped: np.ndarray = fitted.transform({"x": csr_array(words)}).checked_csr().toarray()
    if fitted.given_columns is None:
        return mapped
    back = np.empty_like(mapped)
    back[:, fitted.given_columns] = mapped
    return back


def test_servers_answer_alike(both: tuple[Words, Words]) -> None:
    answers = []
    for place in both:
        role = place.start("serve", "--set", "serve.aliases=latest")
        until(lambda: role.get("/readyz")[0] == 200, role.said)
        status, body = role.get("/v1/similar?id=o3&alias=latest&k=8")
        assert status == 200, body
        answers.append({hit["id"]: hit["score"] for hit in body["results"]})
    assert answers[0] == {one: pytest.approx(score, abs=1e-4) for one, score in answers[1].items()}


SPARSE = {"space.views.x.kind": "sparse", "space.views.x.dim": ORDERED_FROM, "learner.algorithm": "oasis"}


def ordered(**changes: Any) -> bool:
    settings = {**SPARSE, "catalog.path": "objects.jsonl"}
    settings |= {key.replace("__", "."): value for key, value in changes.items()}
    return ordered_views(load_config(None, settings, {})) == {"x"}


def test_it_is_done_by_itself_where_it_pays() -> None:
    view = "space__views__x__"
    assert ordered()
    assert not ordered(**{view + "dim": ORDERED_FROM - 1})
    assert not ordered(**{view + "column_order": "given"})
    assert ordered(**{view + "column_order": "frequency", view + "dim": 9, "learner__algorithm": "soml-da"})
    assert not ordered(catalog__path="")
    assert not ordered(catalog__path="", **{view + "map": "tfidf"})
    assert not ordered(**{view + "kind": "dense", view + "map": "unit"})
    assert not ordered(**{view + "kernels": [{"map": "rff"}]})
    assert {one for one in LEARNERS if ordered(learner__algorithm=one)} == set(GAIN_BY_ORDER)


@pytest.mark.parametrize(
    "changes", [{"space.views.x.kind": "dense"}, {"space.views.x.kernels": [{"map": "rff"}]}]
)
def test_an_order_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="column_order"):
        load_config(None, {**SPARSE, "space.views.x.column_order": "frequency", **changes}, {})


def test_a_folder_goes_on_in_the_order_it_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Words(tmp_path / "made", "unit", "")
    monkeypatch.chdir(place.folder)
    place.feed(10, 1)
    place.learn()
    assert map_of(place.versions.load(place.newest().number)).given_columns is None  # few columns
    text = place.file.read_text()
    place.file.write_text(text.replace('map = "unit"', 'map = "unit"\ncolumn_order = "frequency"'))
    assert place.command("learn", "--exit-when-caught-up") == EX_CONFIG
    assert "views" in capsys.readouterr().err
    place.file.write_text(text)
    place.learn()
