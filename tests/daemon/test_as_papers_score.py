"""Configured as a paper scores, a version is written, loaded, followed and served with its scores.

Events go through the log and `tripletd learn`; what a replica answers is compared with oracles in float64
that learn the same triplets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from daemon.commands.models_export import export
from daemon.config import load_config
from daemon.config.learners import KeysConfig, OasisKeys
from daemon.config.schema import ServingConfig
from daemon.exits import EX_OK, UserError
from daemon.memory.needs import form_bytes, learner_bytes
from daemon.models.vectors import ExportSource, adapter_of, embedding_of
from daemon.replica.replica import Replica
from daemon.replica.settings import VersionSource, read_space, step_log_of
from daemon.validate.evaluator import CandidateCache
from daemon.versions.algorithms import algorithm_of, map_of
from daemon.versions.forms import KeyedForm
from daemon.versions.restore import DERIVED, serving_form
from learners import Block, DenseBlock
from learners.forms.quadratic import folds
from streams.catalog import load_catalog
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from tests.daemon.learn.conftest import DIM, Site
from tests.daemon.replica.world import QUICK
from tests.daemon.serve.test_role import Place
from tests.daemon.serve.test_role_supports import offline
from tests.harness.waiting import until
from tests.learners.oracle_combination import Hedge
from tests.learners.oracle_kernels import cosine, polynomial
from tests.learners.oracle_lego import LegoPairsOracle
from tests.learners.oracle_oasis import DissimOracle, OasisDiagonalOracle, OasisOracle
from tests.learners.oracle_oks import OksOracle
from tests.learners.oracle_omks import MappedOasisOracle, OmksOracle
from tests.learners.oracle_soml import SomlDaOracle, SomlTgOracle
from tests.learners.oracle_step import Oracle, all_scores, run

Doubles: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Triplet: TypeAlias = tuple[Doubles, Doubles, Doubles]


@dataclass(frozen=True)
class Mode:
    """A configuration, and the oracle of what it serves, of so many columns. exact: to what. views: how many
    views the columns are cut into, "x" of all but the last 5, and "y"."""

    name: str
    settings: dict[str, Any]
    oracle: Callable[[int], Oracle]
    exact: float = 2e-4
    views: int = 1

    def __str__(self) -> str:
        return self.name


def unit(vector: Any) -> Doubles:
    found: Doubles = vector.astype(np.float64) / np.linalg.norm(vector.astype(np.float64))
    return found


def halved(vector: Doubles) -> Doubles:
    """What cos / 2 + 1/2 is the inner product of."""
    return np.append(unit(vector), 1.0) / math.sqrt(2)


def printed_beta(T: int, m: int) -> float:
    """That of Hedge of T rounds and m kernels."""
    return math.sqrt(T) / (math.sqrt(T) + math.sqrt(math.log(m)))


AS_LEARNED = {"serving.form": "as_learned", "learner.start": "identity"}
MODES = [
    Mode("oasis", {"learner.algorithm": "oasis", **AS_LEARNED}, lambda dim: OasisOracle(dim, 0.1)),
    Mode(
        "oasis-online",
        {"learner.algorithm": "oasis", "learner.symmetric": "online", **AS_LEARNED},
        lambda dim: OasisOracle(dim, 0.1, True),
    ),
    Mode("oasis-diagonal", {"learner.algorithm": "oasis-diagonal", **AS_LEARNED}, OasisDiagonalOracle),
    Mode(
        "omks-maps",
        {
            "learner.algorithm": "omks-maps",
            "learner.combine": "hedge",
            "learner.horizon": 210,
            "space.views.x.kernels": [{"map": "identity"}, {"map": "cosine"}],
            **AS_LEARNED,
        },
        lambda dim: OmksOracle(
            [MappedOasisOracle(unit, dim), MappedOasisOracle(halved, dim + 1)], Hedge(2, printed_beta(210, 2))
        ),
    ),
    Mode(
        "omks",
        {
            "learner.algorithm": "omks",
            "learner.combine": "hedge",
            "learner.horizon": 210,
            "learner.kernels": [{"kind": "cosine"}, {"kind": "polynomial"}],
            "serving.form": "as_learned",
        },
        lambda dim: OmksOracle(
            [OksOracle(cosine), OksOracle(polynomial(2, 1.0, 1.0))], Hedge(2, printed_beta(210, 2))
        ),
    ),
    Mode(
        "oks-joined",
        {
            "learner.algorithm": "oks",
            "learner.joined": True,
            "learner.kernels": [{"kind": "polynomial"}],
            "serving.form": "as_learned",
        },
        lambda dim: OksOracle(polynomial(2, 1.0, 1.0)),
        views=2,
    ),
    Mode(
        "lego-pairs",
        {
            "learner.algorithm": "lego-pairs",
            "learner.eta": 0.05,
            "learner.similar": 0.3,
            "learner.dissimilar": 2.5,
            **AS_LEARNED,
        },
        lambda dim: LegoPairsOracle(dim, 0.05, 0.3, 2.5),
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


def drawn(count: int, seed: int, views: int = 1) -> tuple[list[bytes], list[Triplet]]:
    """Events, and their triplets as the map has them: of unit length."""
    rng, events, triplets = np.random.default_rng(seed), [], []
    for number in range(count):
        vectors = rng.standard_normal((3, DIM)).astype(np.float32)
        query, clicked, skipped = (reference(one, views) for one in vectors)
        events.append(encode_event(Event(f"e{seed}.{number}", 1000 + number, query, clicked, skipped)))
        q, c, s = (mapped(one, views) for one in vectors)
        triplets.append((q, c, s))
    return events, triplets


def reference(vector: Any, views: int) -> ObjectRef:
    """The object as an event names it."""
    return ObjectRef(x=vector) if views == 1 else ObjectRef(views={"x": vector[:-5], "y": vector[-5:]})


def mapped(vector: Any, views: int) -> Doubles:
    """At unit length: of two views each, and then both together."""
    return unit(vector) if views == 1 else unit(np.concatenate([unit(vector[:-5]), unit(vector[-5:])]))


def objects(count: int, seed: int) -> Any:
    """Vectors as they are given, float32."""
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)


def by_map(site: Site, given: Any, views: int) -> Block:
    """As the map of the newest version has them."""
    fitted = map_of(site.versions.load(site.newest().number))
    return fitted.transform({"x": given} if views == 1 else {"x": given[:, :-5], "y": given[:, -5:]})


def site_of(folder: Path, mode: Mode) -> Site:
    site = Site(folder, f"log:{folder}/clicks.log")
    site.settings |= {"steps.every": "10ms", "stream.poll_records": 16, "space.views.x.map": "unit"}
    if mode.views == 2:
        site.settings |= {"space.views.x.dim": DIM - 5}
        site.settings |= {f"space.views.y.{key}": one for key, one in (("dim", 5), ("map", "unit"))}
    site.settings |= mode.settings
    return site


def expected(oracle: Oracle, triplets: list[Triplet], queries: Any, items: Any, views: int = 1) -> Doubles:
    """Scores of given vectors after these triplets."""
    columns = tuple(np.array(one) for one in zip(*triplets, strict=True))
    run(oracle, columns, np.ones(len(triplets)))  # type: ignore[arg-type]
    left, right = (np.array([mapped(one, views) for one in rows]) for rows in (queries, items))
    return all_scores(oracle, left, right)


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
    first, then = drawn(150, 0, mode.views), drawn(60, 1, mode.views)
    site.feed(first[0])
    assert site.learn() == EX_OK
    rows = by_map(site, queries, mode.views), by_map(site, items, mode.views)
    replica = Replica("latest", source_of(site), QUICK, steps=step_log_of(site.config(), "latest"))
    replica.start()

    def served(records: int) -> tuple[Doubles, str]:
        until(lambda: replica.status().model is not None, replica.status)
        until(lambda: _scored(replica, *rows)[1] == records, replica.status)
        return _scored(replica, *rows)[0], replica.status().following

    try:
        wanted = expected(oracle, first[1], queries, items, mode.views)
        assert np.ptp(wanted) > 10 * mode.exact
        np.testing.assert_allclose(served(150)[0], wanted, atol=mode.exact)
        site.feed(then[0])
        assert site.learn() == EX_OK
        now = expected(oracle, then[1], queries, items, mode.views)
        assert np.abs(now - wanted).max() > 10 * mode.exact
        np.testing.assert_allclose(served(210)[0], now, atol=mode.exact)
    finally:
        replica.close()
    assert replica.status().swaps["version"] == 1, "the rest came as steps"


def _scored(replica: Replica, queries: Block, items: Block) -> tuple[Doubles, int]:
    """Scores of a view, and at which record its form was made."""
    with replica.read() as view:
        return view.form.scores(queries, items).astype(np.float64), view.formed


@EVERY
def test_judged_and_exported_it_is_the_same_form(mode: Mode, tmp_path: Path) -> None:
    site = site_of(tmp_path, mode)
    events, triplets = drawn(150, 0, mode.views)
    site.feed(events)
    assert site.learn() == EX_OK
    number, config = site.newest().number, site.config()
    queries, items = objects(6, 1), objects(20, 2)
    wanted = expected(mode.oracle(DIM), triplets, queries, items, mode.views)
    left, right = by_map(site, queries, mode.views), by_map(site, items, mode.views)
    form = serving_form(site.versions, site.versions.load(number), config.serving)
    np.testing.assert_allclose(form.scores(left, right), wanted, atol=mode.exact)
    assert site.versions.attached_meta(number, DERIVED) is None, "nothing is computed, so nothing is kept"
    if not folds(form):
        return
    embedding = embedding_of(ExportSource.load(site.versions, number, config.serving, None))
    asked, held = embedding.queries(left), embedding.documents(right)
    assert isinstance(asked, DenseBlock)
    assert isinstance(held, DenseBlock)
    made = asked.values.astype(np.float64) @ held.values.T.astype(np.float64)
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
    units = np.array([unit(one) for one in queries])
    np.testing.assert_allclose(units @ F.T, units @ oracle.W, atol=2e-3)
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


def test_beta_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "tripletd.toml"
    learner = '[learner]\nalgorithm = "omks"\nbeta = 0.9\nhorizon = 100\n'
    file.write_text(f"[space.views.x]\ndim = 6\n{learner}")
    with pytest.raises(UserError, match="horizon and beta both"):
        load_config(file)


MAPS = {
    "pca": ('dim = 6\nmap = ["pca", "unit"]\ncomponents = 3', ""),
    "tfidf": ('dim = 6\nkind = "sparse"\nmap = "tfidf"\nidf = "plain"', "sparse"),
}


def by_formula(name: str, rows: Doubles) -> Doubles:
    """The mapped catalog, of which the map was fitted; of PCA up to signs of its columns."""
    if name == "pca":
        centred = rows - rows.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(centred.T))
        return np.array([unit(row) for row in centred @ vectors[:, np.argsort(-values)[:3]]])
    idf = -np.log(np.maximum((rows > 0).sum(axis=0), 1) / len(rows))
    return np.array([unit(row) for row in rows * idf])


@pytest.mark.parametrize("name", MAPS)
def test_a_version_over_a_map_of_the_papers_has_the_scores_of_the_formula(name: str, tmp_path: Path) -> None:
    place, (view, kind) = Place(tmp_path), MAPS[name]
    text = place.file.read_text().replace('dim = 6\nmap = "identity"', view)
    place.file.write_text(text + SERVED)
    if kind == "sparse":
        drawn_counts = np.random.default_rng(3).poisson(1.0, place.rows.shape) + np.eye(len(place.rows), 6)
        place.rows = drawn_counts.astype(np.float64)
        lines = [
            {"id": f"o{n}", "x": {"indices": np.flatnonzero(row).tolist(), "values": row[row > 0].tolist()}}
            for n, row in enumerate(place.rows)
        ]
        (tmp_path / "catalog.jsonl").write_text("\n".join(map(json.dumps, lines)))
    place.feed(80, seed=1)
    place.learn()
    number = place.newest().number
    form, catalog = offline(place, number)
    W = place.versions.load(number).arrays["W"].astype(np.float64)
    expected_rows = by_formula(name, place.rows)
    rows = catalog.values if isinstance(catalog, DenseBlock) else catalog.checked_csr().toarray()
    np.testing.assert_allclose(np.abs(rows), np.abs(expected_rows), atol=1e-5)
    signs = np.sign(np.sum(rows * expected_rows, axis=0)) if name == "pca" else np.ones(rows.shape[1])
    mapped = expected_rows * signs
    np.testing.assert_allclose(form.scores(catalog, catalog), mapped @ W @ mapped.T, atol=1e-4)


def test_models_by_key_are_served_as_each_learned() -> None:
    keys = KeysConfig.model_validate({"slots": 2})
    one = algorithm_of("oasis", keys)
    learner = one.make(one.settings(OasisKeys.model_validate({}), {}), DIM, None)
    rng = np.random.default_rng(5)
    batch = rng.standard_normal((3, 40, DIM)).astype(np.float32)
    names = ["ann", "bob"] * 20
    learner.learn_many(*batch, keys=names)
    form = one.forms.make(learner, 1, ServingConfig.model_validate({"form": "as_learned"}))
    assert isinstance(form, KeyedForm)
    for at, name in enumerate(("ann", "bob")):
        oracle = OasisOracle(DIM, 0.1)
        run(oracle, tuple(rows[at::2].astype(np.float64) for rows in batch))
        model = form.model_of(name)
        assert model is not None
        some = rng.standard_normal((7, DIM)).astype(np.float32)
        wanted = all_scores(oracle, some.astype(float), some.astype(float))
        np.testing.assert_allclose(model.form().scores(some, some), wanted, atol=2e-3)


@pytest.mark.parametrize(("algorithm", "others"), [("oasis", 0), ("soml-da", 0), ("oasis-averaged", 1)])
def test_a_form_as_learned_takes_no_second_matrix_but_where_it_is_made_of_several(
    algorithm: str, others: int
) -> None:
    settings = {"space.views.x.dim": 100, "learner.algorithm": algorithm, "serving.form": "as_learned"}
    config = load_config(None, settings, {})
    assert form_bytes(config) == others * learner_bytes(config)


def test_a_validator_judges_it_by_its_own_scores(tmp_path: Path) -> None:
    place = Place(tmp_path)
    text = place.file.read_text().replace("holdout_share = 0.0", "holdout_share = 0.5")
    place.file.write_text(text + SERVED)
    place.feed(200, seed=1)
    place.learn()
    number, config = place.newest().number, load_config(place.file)
    catalog = load_catalog(Path(config.catalog.path), config.space_spec())
    cache = CandidateCache(place.versions, config.space_spec(), catalog, config.serving)
    candidate = cache.open(number)
    W = place.versions.load(number).arrays["W"].astype(np.float64)
    scores = candidate.scorer.catalog(candidate.scorer.fold([ObjectRef(id="o3"), ObjectRef(id="o11")]))
    wanted = place.rows[[3, 11]] @ W @ place.rows.T
    np.testing.assert_allclose(scores, wanted, atol=2e-3)
    assert np.abs(scores - place.rows[[3, 11]] @ W.T @ place.rows.T).max() > 0.1
    assert candidate.choice is None
