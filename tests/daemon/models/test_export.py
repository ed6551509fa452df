"""The factor of a version, and the catalog embedded by it, as other programs read them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from checkpoints import LocalStore, VersionStore
from daemon.cli import main
from daemon.exits import EX_CANTCREAT, EX_OK, EX_USAGE
from tests.daemon.learn.conftest import DIM, Site, make_events


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A learner with one version behind version 0, and a catalog."""
    made = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    made.feed(make_events(200))
    return made


def configured(site: Site, algorithm: str) -> str:
    rows = np.random.default_rng(2).standard_normal((30, DIM))
    lines = [json.dumps({"id": f"o{n}", "x": row.tolist()}) for n, row in enumerate(rows)]
    (site.folder / "catalog.jsonl").write_text("\n".join(lines))
    site.settings["learner.algorithm"] = algorithm
    assert site.learn() == EX_OK
    path = site.folder / "tripletd.toml"
    path.write_text(
        f'[space.views.x]\ndim = {DIM}\nmap = "identity"\n[catalog]\npath = "catalog.jsonl"\n'
        f'[checkpoints]\npath = "checkpoints"\n[learner]\nalgorithm = "{algorithm}"\n'
    )
    return str(path)


@pytest.mark.parametrize(
    ("algorithm", "similarity"), [("oasis", "inner_product"), ("dissim-oasis", "squared_distance")]
)
def test_the_factor_embeds_objects(site: Site, algorithm: str, similarity: str) -> None:
    config, at, embedded = configured(site, algorithm), site.folder / "A.npy", site.folder / "E.npy"
    assert (
        main(("models", "export", "1", "--factor", str(at), "--embed", str(embedded), "-c", config)) == EX_OK
    )
    A, E = np.load(at), np.load(embedded)
    version = VersionStore(LocalStore(site.folder / "checkpoints")).load(1)
    W = version.arrays["W"].astype(float)
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    assert values[0] < -0.01
    np.testing.assert_allclose(A.T @ A, (vectors * np.maximum(values, 0)) @ vectors.T, atol=1e-5)
    assert A.dtype == E.dtype == np.float32
    assert A.shape == (int((values > 1e-5).sum()), DIM)
    told, beside = (json.loads(Path(f"{path}.json").read_text()) for path in (at, embedded))
    assert told["similarity"] == similarity
    assert (told["version"], told["state_hash"]) == (1, version.manifest.state_hash)
    assert (told["rank"], told["dim"]) == A.shape
    rows = np.random.default_rng(2).standard_normal((30, DIM)).astype(np.float32)
    np.testing.assert_allclose(E, rows @ A.T, atol=1e-4)
    assert beside["ids"] == [f"o{n}" for n in range(30)]
    assert beside["format"] != told["format"]


def test_what_has_no_factor_or_no_place_is_refused(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    config, at = configured(site, "soml-tg"), site.folder / "A.npy"
    assert main(("models", "export", "1", "--factor", str(at), "-c", config)) == EX_USAGE
    assert "soml-tg, which has no matrix to factor" in capsys.readouterr().err
    assert not at.exists()
    other = Site(site.folder / "other", f"log:{site.folder}/clicks.log")
    other.folder.mkdir()
    config = configured(other, "oasis")
    at.write_bytes(b"mine")
    assert main(("models", "export", "1", "--factor", str(at), "-c", config)) == EX_CANTCREAT
    assert at.read_bytes() == b"mine"
    assert main(("models", "export", "9", "--factor", str(at), "-c", config)) == EX_USAGE
