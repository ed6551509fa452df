"""What is exported of a version that orders lists, and is not shown to search better."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from daemon.cli import main
from daemon.exits import EX_OK, EX_USAGE
from tests.daemon.serve.ordered import DIM, OrderedVersions

ROW = 7


@pytest.fixture
def shop(tmp_path: Path) -> OrderedVersions:
    """Version 1 orders lists and does not search, version 2 was not judged, version 3 has no arms."""
    shop = OrderedVersions(tmp_path)
    shop.judged(shop.add(), reach=False)
    shop.add()
    shop.add(arms=())
    return shop


def export(shop: OrderedVersions, version: int, *how: str) -> int:
    about = {
        "checkpoints.path": shop.folder,
        "catalog.path": shop.catalog,
        "space.views.x.dim": DIM,
    }
    settings = [part for key, value in about.items() for part in ("--set", f"{key}={value}")]
    return main(["models", "export", str(version), *how, *settings])


@pytest.mark.parametrize("form", ["served", "folded"])
def test_nothing_that_searches_is_written(
    shop: OrderedVersions, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    out = tmp_path / "out.npy"
    assert export(shop, 1, "--form", form, "--out", str(out)) == EX_USAGE
    told = capsys.readouterr().err
    assert "version 1 orders lists, and is not shown to search better than your own ranking" in told
    assert "--form order" in told
    assert not out.exists()
    assert export(shop, 2, "--form", form, "--out", str(out)) == EX_OK, "it was never promoted"


def test_the_matrix_that_orders_lists_gives_the_scores_of_the_server(
    shop: OrderedVersions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "order.npy"
    assert export(shop, 1, "--form", "order", "--out", str(out)) == EX_OK
    F = np.load(out).astype(np.float64)
    units = shop.objects.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    np.testing.assert_allclose(units @ (F @ units[ROW]), shop.order(1, ROW), atol=1e-4)
    told = json.loads((tmp_path / "order.npy.json").read_text())
    assert told["form"] == "arm all with 3 of your own ranking"
    assert told["views"] == {"x": [0, DIM, True]}
    capsys.readouterr()
    for version in (0, 3):
        assert export(shop, version, "--form", "order", "--out", str(tmp_path / "none.npy")) == EX_USAGE
        assert f"version {version} has no order of its own" in capsys.readouterr().err
