"""Configured as a paper scores, a version is written, loaded, followed and served with its scores.

Events go through the log and `tripletd learn`; what a replica answers is compared with oracles in float64
that learn the same triplets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.commands.models_export import export
from daemon.config import load_config
from daemon.exits import EX_OK, UserError
from daemon.models.vectors import ExportSource, adapter_of, embedding_of
from daemon.replica.replica import Replica
from daemon.replica.settings import VersionSource, read_space, step_log_of
from daemon.versions.restore import DERIVED, learner_of, serving_form
from learners import as_block
from learners.forms.quadratic import folds
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from tests.daemon.learn.conftest import DIM, Site
from tests.daemon.replica.world import QUICK
from tests.daemon.serve.test_role import Place
from tests.harness.waiting import until
from tests.learners.oracle_oasis import DissimOracle, OasisOracle
from tests.learners.oracle_soml import SomlDaOracle, SomlTgOracle
from tests.learners.oracle_step import Oracle, all_scores, run

Doubles = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Mode:
    """A configuration, and the oracle of what it serves, of so many columns. exact: to what."""

    name: str
    settings: dict[str, Any]
    oracle: Callable[[int], Oracle]
    exact: float = 2e-3
    views: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


AS_LEARNED = {"serving.form": "as_learned", "learner.start": "identity"}
MODES = [
    Mode("oasis", {"learner.algorithm": "oasis", **AS_LEARNED}, lambda dim: OasisOracle(dim, 0.1)),
    Mode(
        "oasis-online",
        {"learner.algorithm": "oasis", "learner.symmetric": "online", **AS_LEARNED},
        lambda dim: OasisOracle(dim, 0.1, True),
    ),
    Mode("dissim-oasis", {"learner.algorithm": "dissim-oasis", **AS_LEARNED}, DissimOracle),
    Mode(
        "soml-tg",
        {"learner.algorithm": "soml-tg", "learner.eta": 0.3, "learner.lam": 0.01, **AS_LEARNED},
        lambda dim: SomlTgOracle(dim, 0.3, 0.01),
    ),
    Mode(
        "soml-da",
        {
            "learner.algorithm": "soml-da",
            "learner.gamma": 0.1,
            "learner.rho": 0.05,
            "learner.lam": 0.002,
            **AS_LEARNED,
        },
        lambda dim: SomlDaOracle(dim, 0.1, 0.05, 0.002),
    ),
]
EVERY = pytest.mark.parametrize("mode", MODES, ids=str)


def drawn(count: int, seed: int) -> tuple[list[bytes], list[tuple[Doubles, Doubles, Doubles]]]:
    """Events, and their triplets as the map has them: of unit length."""
    rng, events, triplets = np.random.default_rng(seed), [], []
    for number in range(count):
        vectors = rng.standard_normal((3, DIM)).astype(np.float32)
        query, clicked, skipped = (ObjectRef(x=one) for one in vectors)
        events.append(encode_event(Event(f"e{seed}.{number}", 1000 + number, query, clicked, skipped)))
        q, c, s = (unit(one) for one in vectors)
        triplets.append((q, c, s))
    return events, triplets


def unit(vector: Any) -> Doubles:
    found: Doubles = vector.astype(np.float64) / np.linalg.norm(vector.astype(np.float64))
    return found


def objects(count: int, seed: int) -> Doubles:
    return np.array([unit(one) for one in np.random.default_rng(seed).standard_normal((count, DIM))])


def site_of(folder: Path, mode: Mode) -> Site:
    site = Site(folder, f"log:{folder}/clicks.log")
    site.settings |= {"steps.every": "10ms", "stream.poll_records": 16, "space.views.x.map": "unit"}
    site.settings |= mode.settings
    return site


def expected(oracle: Oracle, triplets: list[Any], queries: Doubles, items: Doubles) -> Doubles:
    columns = tuple(np.array(one) for one in zip(*triplets, strict=True))
    run(oracle, columns, np.ones(len(triplets)))  # type: ignore[arg-type]
    return all_scores(oracle, queries, items)


def source_of(site: Site) -> VersionSource:
    found = read_space(site.versions)
    assert found is not None
    return VersionSource(site.versions, site.ledger, found[0], site.config().serving)


@EVERY
def test_versions_and_the_steps_behind_them_are_served_as_the_oracle_scores(
    mode: Mode, tmp_path: Path
) -> None:
    site, oracle = site_of(tmp_path, mode), mode.oracle(DIM)
    queries, items = objects(6, 1), objects(20, 2)
    first, then = drawn(150, 0), drawn(60, 1)
    site.feed(first[0])
    assert site.learn() == EX_OK
    replica = Replica("latest", source_of(site), QUICK, steps=step_log_of(site.config(), "latest"))
    replica.start()

    def served(records: int) -> tuple[Doubles, str]:
        until(lambda: replica.status().model is not None, replica.status)
        until(lambda: _scored(replica, queries, items)[1] == records, replica.status)
        return _scored(replica, queries, items)[0], replica.status().following

    try:
        wanted = expected(oracle, first[1], queries, items)
        assert np.ptp(wanted) > 10 * mode.exact
        np.testing.assert_allclose(served(150)[0], wanted, atol=mode.exact)
        site.feed(then[0])
        assert site.learn() == EX_OK
        now = expected(oracle, then[1], queries, items)
        assert np.abs(now - wanted).max() > 10 * mode.exact
        np.testing.assert_allclose(served(210)[0], now, atol=mode.exact)
    finally:
        replica.close()
    assert replica.status().swaps["version"] == 1, "the rest came as steps"


def _scored(replica: Replica, queries: Doubles, items: Doubles) -> tuple[Doubles, int]:
    """Scores of a view, and at which record its form was made."""
    with replica.read() as view:
        left, right = as_block(queries.astype(np.float32)), as_block(items.astype(np.float32))
        return view.form.scores(left, right).astype(np.float64), view.formed


@EVERY
def test_judged_and_exported_it_is_the_same_form(mode: Mode, tmp_path: Path) -> None:
    site = site_of(tmp_path, mode)
    events, triplets = drawn(150, 0)
    site.feed(events)
    assert site.learn() == EX_OK
    number, config = site.newest().number, site.config()
    queries, items = objects(6, 1), objects(20, 2)
    wanted = expected(mode.oracle(DIM), triplets, queries, items)
    form = serving_form(site.versions, site.versions.load(number), config.serving)
    np.testing.assert_allclose(
        form.scores(queries.astype(np.float32), items.astype(np.float32)), wanted, atol=mode.exact
    )
    assert site.versions.attached_meta(number, DERIVED) is None, "nothing is computed, so nothing is kept"
    learner = learner_of(site.versions.load(number))
    scores = learner.similarity(queries.astype(np.float32), items.astype(np.float32))
    np.testing.assert_allclose(scores, wanted, atol=mode.exact)
    if not folds(form):
        return
    embedding = embedding_of(ExportSource.load(site.versions, number, config.serving, None))
    asked = embedding.queries(queries.astype(np.float32)).values
    held = embedding.documents(items.astype(np.float32)).values
    made = np.asarray(asked, np.float64) @ np.asarray(held, np.float64).T
    np.testing.assert_allclose(made, wanted, atol=mode.exact)


def test_the_exported_matrix_folds_a_query_to_the_transpose(tmp_path: Path) -> None:
    site = site_of(tmp_path, MODES[0])
    events, triplets = drawn(150, 0)
    site.feed(events)
    assert site.learn() == EX_OK
    oracle, queries = OasisOracle(DIM, 0.1), objects(6, 1)
    expected(oracle, triplets, queries, queries)
    F, bias, _ = adapter_of(ExportSource.load(site.versions, 1, site.config().serving, None))
    assert bias is None
    np.testing.assert_allclose(queries @ F.T, queries @ oracle.W, atol=2e-3)
    assert np.abs(F - F.T).max() > 0.05


SERVED = """
[learner]
algorithm = "oasis"
start = "identity"
[serving]
form = "as_learned"
"""


def test_the_server_answers_and_explains_by_the_asymmetric_score(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.file.write_text(place.file.read_text() + SERVED)
    place.feed(80, seed=1)
    place.learn()
    number = place.newest().number
    W, rows = place.versions.load(number).arrays["W"].astype(np.float64), place.rows
    scores = rows @ W @ rows.T
    assert np.abs(scores - scores.T).max() > 0.1
    try:
        role = place.start("serve")
        until(lambda: role.get("/v1/similar?id=o3&alias=latest")[0] == 200, role.said)
        for own in (3, 11, 30):
            status, body = role.get(f"/v1/similar?id=o{own}&k=5&alias=latest&explain=true")
            assert status == 200, body
            best = [row for row in np.argsort(-scores[own], kind="stable").tolist() if row != own][:5]
            assert [hit["id"] for hit in body["results"]] == [f"o{row}" for row in best]
            found = [hit["score"] for hit in body["results"]]
            np.testing.assert_allclose(found, scores[own, best], rtol=1e-4, atol=1e-3)
            for hit in body["results"]:
                shares = sum(one["contribution"] for one in hit["why"]["views"])
                assert shares == pytest.approx(hit["score"], rel=1e-4, abs=1e-3)
        assert role.stop() == EX_OK
    finally:
        place.end()


@pytest.mark.parametrize("more", ['score = "normalised"', 'psd = "full"', "power = 1.0", "own_share = 0.3"])
def test_what_would_change_the_scores_is_refused(more: str, tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    file.write_text(f'[space.views.x]\ndim = 6\n[serving]\nform = "as_learned"\n{more}\n')
    with pytest.raises(UserError, match=f"leave {more.split(maxsplit=1)[0]} out") as told:
        load_config(file)
    assert "serving" in str(told.value)


def test_a_factor_of_it_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.file.write_text(place.file.read_text() + SERVED)
    with pytest.raises(UserError, match="symmetric matrix"):
        export("latest", factor=tmp_path / "A.npy", config=place.file)
    assert not (tmp_path / "A.npy").exists()
