"""The history of a real learner: restart, branch, records learned again, pruning."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from daemon.cli import main
from daemon.exits import EX_OK, EX_UNAVAILABLE
from daemon.look.curves import LOSS, CurveReader, Curves
from tests.daemon.serve.test_role import Place

EVERY = ("--set", "checkpoints.every_events=40")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def learn(place: Place, *words: str) -> None:
    command = ["learn", "--exit-when-caught-up", "--config", str(place.file), *EVERY, *words]
    assert main(command) == EX_OK


def history(place: Place) -> Curves:
    return CurveReader(place.versions, place.ledger).read()


def test_a_restart_goes_on_where_the_line_was(place: Place) -> None:
    place.feed(60, seed=1)
    learn(place)
    before = history(place)
    place.feed(60, seed=2)
    learn(place)
    after = history(place)
    (line,) = after.lines
    assert line.points[: len(before.current.points)] == before.current.points
    assert len({point.epoch for point in line.points}) == 2
    records = [point.records for point in line.points]
    assert records == sorted(set(records))
    assert len(line.series(LOSS).values) == len(line.points) - 1


def test_a_branch_is_a_line_of_its_own_and_what_it_left_stays(place: Place) -> None:
    place.feed(60, seed=1)
    learn(place)
    old = history(place).current.points
    learn(place, "--restart-from", "1")
    current, behind = history(place).lines
    assert behind.left is not None
    assert behind.left.version == 1
    assert behind.points == old[2:]
    assert current.points[:2] == old[:2]
    assert current.points[2].marks[:1] == ("continued from version 1",)
    # The same records learned again end at the same position.
    assert current.points[-1].records == behind.points[-1].records


def test_pruning_takes_nothing_from_it(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.feed(60, seed=1)
    learn(place)
    before = history(place).current.points
    place.feed(60, seed=2)
    learn(place, "--set", "checkpoints.keep=2")
    after = history(place).current.points
    assert len(place.versions.versions()) < len(after)
    assert after[: len(before)] == before
    capsys.readouterr()
    assert main(["curves", "--config", str(place.file), "--csv", "-"]) == EX_OK
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [int(row["version"]) for row in rows] == [point.version for point in after]
    assert rows[0]["training_loss"] == ""
    assert float(rows[1]["training_loss"]) > 0


def test_curves_draw_the_loss_before_anything_is_judged(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.folder.joinpath("checkpoints").mkdir()
    assert main(["curves", "--config", str(place.file)]) == EX_UNAVAILABLE
    place.feed(60, seed=1)
    learn(place)
    capsys.readouterr()
    assert main(["curves", "--config", str(place.file), "--out", str(tmp_path / "c.png")]) == EX_OK
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert main(["curves", "--config", str(place.file)]) == EX_OK
    assert "training loss" in capsys.readouterr().out
