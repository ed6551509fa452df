"""What `models diff` tells: built-in changes by feature name, queries that moved; nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import LocalStore, VersionMeta, VersionStore
from daemon.cli import main
from daemon.config.schema import ServingConfig
from daemon.exits import EX_DATAERR, EX_OK, EX_USAGE
from daemon.models.compare import CompareOptions, MappedCatalog, compare
from daemon.models.diff import feature_names, moved_queries, nearest, sample
from daemon.versions.contents import pack
from learners.block import DenseBlock, SparseBlock
from learners.forms.serving import ServingForm
from learners.maps import FittedSpaceMap, SpaceMap
from learners.maps.space import ViewConfig
from learners.search import as_items
from tests.daemon.oasis_versions import OASIS, state_of

DIM = 12
OBJECTS = 60


def fitted(kind: str = "unit") -> FittedSpaceMap:
    rng = np.random.default_rng(0)
    first = DenseBlock(rng.standard_normal((30, 8)).astype(np.float32))
    second = DenseBlock(rng.standard_normal((30, 4)).astype(np.float32))
    plan = SpaceMap({"shape": ViewConfig(kind), "colour": ViewConfig("identity")})
    return plan.fit({"shape": first, "colour": second})


def vectors() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((OBJECTS, DIM)).astype(np.float32)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Version 0 is I; version 1 likes shape[2] x colour[1] and forgets shape[5]; a catalog of 60 objects."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "tripletd.toml").write_text(
        '[catalog]\npath = "catalog.jsonl"\n'
        '[space.views.shape]\ndim = 8\nmap = "unit"\n[space.views.colour]\ndim = 4\nmap = "identity"\n'
    )
    lines = [
        json.dumps({"id": f"o{n}", "views": {"shape": row[:8].tolist(), "colour": row[8:].tolist()}})
        for n, row in enumerate(vectors())
    ]
    (tmp_path / "catalog.jsonl").write_text("\n".join(lines) + "\n")
    space = fitted()
    versions = VersionStore(LocalStore(tmp_path / "checkpoints"))
    epoch = versions.claim()
    learned = np.eye(DIM, dtype=np.float32)
    learned[2, 9] = 3.0
    learned[5, 5] = 0.2
    for number, W in enumerate((np.eye(DIM, dtype=np.float32), learned, learned)):
        meta: dict[str, Any] = {"learner": OASIS, "space": "default"}
        meta["map"] = {"id": space.id, "spec": space.spec()}
        if number == 2:
            meta["map"] = {"id": "another", "spec": space.spec()}
        versions.publish(epoch, pack(state_of(W), {}, space.arrays(), {}), VersionMeta(**meta))
    return tmp_path


def test_features_have_names() -> None:
    name = feature_names(fitted())
    assert [name(j) for j in (0, 7, 8, 11)] == ["shape[0]", "shape[7]", "colour[0]", "colour[3]"]
    mixed = feature_names(fitted("whiten"))
    assert (mixed(2), mixed(8)) == ("shape component 2", "colour[0]")


def written(home: Path) -> list[Path]:
    """All that is there, but what is kept of the objects."""
    return sorted(one for one in home.rglob("*") if "catalogs" not in one.parts)


def test_diff_finds_what_was_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(home)
    assert main(("models", "diff", "0", "1", "--json", "--most", "3")) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert written(home) == before, "nothing is written"
    assert [(s["first"], s["second"]) for s in told["steps"]] == [
        ("shape[2]", "colour[1]"),
        ("shape[5]", "shape[5]"),
    ]
    assert told["steps"][0]["after"] == pytest.approx(1.5)
    assert told["relative"] == pytest.approx(np.sqrt(9 + 0.64) / np.sqrt(12), rel=1e-5)
    assert sorted(turn["value"] for turn in told["directions"]) == pytest.approx([-1.5, -0.8, 1.5], abs=1e-4)
    old, new = told["spectra"]
    assert (old["negatives"], new["negatives"]) == (0, 1)
    assert old["effective_rank"] == pytest.approx(12, abs=1e-3)
    assert new["effective_rank"] < 12
    assert new["largest"][0] == pytest.approx(2.5, abs=1e-4)
    assert told["queries"]["sampled"] == OBJECTS
    assert told["queries"]["shared"] < 1
    worst = told["queries"]["moved"][0]
    assert len(worst["entered"]) == len(worst["left"]) == 10 - worst["shared"] > 0


def test_the_lists_are_those_of_the_forms(home: Path) -> None:
    versions = VersionStore(LocalStore(home / "checkpoints"))
    space = fitted()
    parts = {"shape": DenseBlock(vectors()[:, :8]), "colour": DenseBlock(vectors()[:, 8:])}
    objects = MappedCatalog([f"o{n}" for n in range(OBJECTS)], space.transform(parts), space.id)
    found = compare(
        versions, (0, 1), ServingConfig(), objects, CompareOptions(queries=20, seed=4, moved=100)
    ).queries
    assert found is not None
    rows = sample(OBJECTS, 20, 4)
    tops = []
    for number in (0, 1):
        W = versions.load(number).arrays["W"]
        form = ServingForm.from_matrix(W) if number else ServingForm.from_matrix(W, power=1.0)
        scores = form.scores(objects.mapped, objects.mapped)
        np.fill_diagonal(scores, -np.inf)
        tops.append([set(np.argsort(-scores[row], kind="stable")[:10].tolist()) for row in rows])
    overlaps = [len(a & b) for a, b in zip(*tops, strict=True)]
    assert found.shared == pytest.approx(np.mean(overlaps) / 10)
    told = {one.id: one.shared for one in found.moved}
    for row, overlap in zip(rows, overlaps, strict=True):
        assert told.get(f"o{row}", 10) == overlap
    assert [one.shared for one in found.moved] == sorted(one.shared for one in found.moved)


def test_the_same_version_has_not_moved(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("models", "diff", "1", "1")) == EX_OK
    told = capsys.readouterr().out
    assert "changed by 0.00%" in told
    assert "100.0% of the top 10 stay, 60 queries unchanged" in told


def test_the_tables_name_features_and_queries(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("models", "diff", "0", "latest", "--queries", "0")) == EX_DATAERR
    assert "different spaces or maps" in capsys.readouterr().err
    assert main(("models", "diff", "0", "1", "--queries", "5")) == EX_OK
    told = capsys.readouterr().out
    assert "shape[2]" in told
    assert "effective rank" in told
    assert "5 objects as queries (seed 0)" in told
    assert main(("models", "diff", "0", "9")) == EX_USAGE
    assert "no version 9" in capsys.readouterr().err


def test_without_a_catalog_the_queries_are_left_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("models", "diff", "0", "1", "--set", "catalog.path=", "--json")) == EX_OK
    told = json.loads(capsys.readouterr().out)
    assert told["queries"] is None
    assert "no catalog" in told["skipped"][0]


def test_fewer_objects_than_results() -> None:
    rows = np.arange(3, dtype=np.int64)
    block = SparseBlock(np.array([0, 1, 2, 3]), np.array([0, 1, 0], np.int32), np.ones(3, np.float32), dim=2)
    form = ServingForm.from_matrix(np.eye(2, dtype=np.float32))
    lists = nearest(form, block, as_items(block), rows, k=4)
    assert lists.tolist() == [[2, 1, -1, -1], [0, 2, -1, -1], [0, 1, -1, -1]]
    found = moved_queries(["a", "b", "c"], rows, (lists, lists[:, ::-1].copy()), 0, 5)
    assert (found.shared, found.unchanged) == (1.0, 0)
