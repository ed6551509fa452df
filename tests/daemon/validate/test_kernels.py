"""`tripletd models kernels` of every learner that weighs kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.exits import EX_OK
from tests.daemon.serve.test_role import Place

MEAN = """
[learner]
algorithm = "oks"
triplets = 60
objects = 50
[[learner.kernels]]
kind = "rbf"
[[learner.kernels]]
kind = "cosine"
"""
PULLED = """
[learner]
algorithm = "omks-maps"
pull_every = 20
decay = 0.1
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize(
    ("learner", "names"), [(MEAN, ["mean of 2"]), (PULLED, ["x"])], ids=["mean", "pulled back"]
)
def test_a_mean_is_one_kernel_and_a_pull_hides_none(
    place: Place, learner: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place.file.write_text(place.file.read_text() + learner)
    place.feed(40, seed=1)
    place.learn()
    capsys.readouterr()
    assert main(["models", "kernels", "latest", "--config", str(place.file), "--json"]) == EX_OK
    told = json.loads(capsys.readouterr().out)["kernels"]
    assert [(one["name"], one["theta"]) for one in told] == [(name, 1.0) for name in names]
