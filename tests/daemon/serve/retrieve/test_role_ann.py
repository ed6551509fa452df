"""`serve` with approximate search: it answers with faiss, and ends with a remedy without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.exits import EX_OK, EX_UNAVAILABLE
from tests.daemon.serve.test_role import ROOT, Place
from tests.harness.waiting import until

ON = ("--set", "serve.ann=on")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.feed(20, seed=1)
    made.learn()
    yield made
    made.end()


def test_it_answers_with_faiss(place: Place) -> None:
    pytest.importorskip("faiss")
    role = place.start("serve", *ON)
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    assert len(role.get("/v1/similar?id=o3&k=2")[1]["results"]) == 2
    assert (
        'tripletd_ann_guards_total{result="exact"} 0.0' in role.get("/metrics")[1]
    )  # too few to be worth it
    assert role.stop() == EX_OK


def test_without_faiss_it_ends_and_says_what_to_install(place: Place) -> None:
    (place.folder / "faiss.py").write_text('raise ImportError("not here")')
    role = place.start("serve", *ON, env={"PYTHONPATH": f"{place.folder}{os.pathsep}{ROOT}"})
    assert role.process.wait(60) == EX_UNAVAILABLE
    assert "tripletd[ann]" in role.said()
    assert "Traceback" not in role.said()
