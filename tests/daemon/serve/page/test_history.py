"""The page's history: made anew only where something has changed, and for a share of the time at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.serve.page.data import Cached, HistoryReader, versions_data
from tests.daemon.serve.page.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.learn()
    return made


def test_what_did_not_change_is_the_very_same(scene: Scene) -> None:
    reader = HistoryReader(scene.versions, scene.ledger)
    first = reader.read()
    assert reader.read() is first
    scene.ledger.append({"kind": "STOP", "version": 5, "by": "test", "reason": "enough"})
    second = reader.read()
    assert [move.kind for move in second.moves] == ["STOP", *(move.kind for move in first.moves)]
    assert reader.read() is second


def test_what_cannot_be_read_is_told_for_good_and_hides_nothing(scene: Scene, tmp_path: Path) -> None:
    reader = HistoryReader(scene.versions, scene.ledger)
    reader.read()
    scene.ledger.append({"kind": "KEEP", "version": 5, "reason": "again", "measures": {}})
    damaged = max((tmp_path / "checkpoints" / "ledger").iterdir())
    damaged.write_text("{")
    told = [versions_data(reader.read(), None, 10) for _ in range(2)]
    for one in told:
        assert one["count"] == 6
        (note,) = one["notes"]
        assert damaged.name in note
    manifest = next((tmp_path / "checkpoints").glob("**/*3/manifest.json"))
    manifest.write_text("{")
    fresh = versions_data(HistoryReader(scene.versions, scene.ledger).read(), None, 10)
    assert next(one for one in fresh["versions"] if one["number"] == 3)["damaged"]


def test_what_takes_long_to_make_is_made_seldom() -> None:
    now, made = 0.0, 0

    def make() -> int:
        nonlocal now, made
        now, made = now + 2.0, made + 1
        return made

    cached = Cached(make, 1.0, share=0.05, clock=lambda: now)
    assert cached.get() == 1
    now += 39.0
    assert cached.get() == 1, "2 s of work are 5 % of 40 s"
    now += 2.0
    assert cached.get() == 2
