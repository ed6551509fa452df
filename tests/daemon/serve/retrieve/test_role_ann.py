"""`serve` with search over graphs: it builds them with faiss, and ends with a remedy without it."""

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


def test_it_answers_over_a_graph_and_says_so(place: Place) -> None:
    paths = {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{ROOT}"}  # builds wait for nobody
    few = ("--set", "serve.ann_from=10", "--set", "serve.ann_recall=0.5")
    role = place.start("serve", *ON, *few, env=paths)
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    built = 'tripletd_ann_graphs_total{result="built"} 1.0'
    until(lambda: built in role.get("/metrics")[1], role.said, 200.0)
    answer = role.get("/v1/similar?id=o3&k=2")[1]
    assert len(answer["results"]) == 2
    assert answer["exact"] is True  # so few that a walk saves nothing
    assert "recall" not in answer
    until(lambda: 'tripletd_ann_guards_total{result="exact"} 0.0' not in role.get("/metrics")[1], role.said)
    assert role.stop() == EX_OK


def test_without_faiss_it_ends_and_says_what_to_install(place: Place) -> None:
    hidden = place.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys; sys.modules['faiss'] = None\n")
    role = place.start("serve", *ON, env={"PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"})
    assert role.process.wait(60) == EX_UNAVAILABLE
    assert "tripletd[ann]" in role.said()
    assert "Traceback" not in role.said(), role.said()
