"""A sweep's numbers are those of each setting alone, whoever learns them and whatever was killed."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from daemon.backfill.blocks import BlockReader
from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_OK, EX_UNAVAILABLE, INTERRUPTED
from daemon.versions.storage import open_store
from tests.daemon.backfill.place import Place, make_place
from tests.harness.forked import Popen
from tests.harness.waiting import until

START_S = 200.0
"""Workers that import all there is have taken half a minute to start on a busy machine."""
GRID = ("--set", "learner.C=0.01,0.1,1", "--set", "serving.power=1,1.5")
RUN_ALONE = {"seconds", "folder", "fresh", "version"}
"""What differs from run to run: a version that a kill cut off leaves its number unused."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("history"))


def words(place: Place, out: str, *options: str) -> list[str]:
    return ["sweep", place.days, "--config", str(place.file), "--out", str(place.folder / out), *options]


def table(place: Place, out: str, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capfd.readouterr()
    assert main(words(place, out, *options, "--json")) == EX_OK
    text = capfd.readouterr().out
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def told(found: dict[str, Any]) -> dict[str, Any]:
    """A table without what differs from run to run."""
    plain = {name: value for name, value in found.items() if name not in RUN_ALONE}
    settings = [
        {name: one for name, one in row.items() if name not in RUN_ALONE} for row in found["settings"]
    ]
    return plain | {"settings": settings}


@pytest.fixture(scope="module")
def alone(place: Place) -> dict[str, Any]:
    """The table of one process that nobody disturbed."""
    made = place.folder / "alone.csv"
    assert main(words(place, "alone", *GRID, "--csv", str(made))) == EX_OK
    found: dict[str, Any] = {}
    with made.open() as file:
        for row in csv.DictReader(file):
            found[f"{row['learner.C']} {row['serving.power']}"] = row
    return found


def test_each_setting_is_what_learn_makes_of_it_and_judge_measures(
    place: Place, alone: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    own = ["--set", "learner.C=0.1", "--set", "serving.power=1", "--config", str(place.file)]
    own += ["--set", f"checkpoints.path={place.folder / 'live'}"]
    days = sorted(str(one) for one in place.folder.glob("day*.jsonl"))
    assert main(["feed", *days, *own]) == EX_OK
    learn = ["learn", *own, "--set", "http.learn_port=0", "--start", "earliest", "--exit-when-caught-up"]
    assert main(learn) == EX_OK
    capfd.readouterr()
    assert main(["judge", "latest", *own, "--json"]) == EX_OK
    (judged,) = json.loads(capfd.readouterr().out)["versions"]
    row = alone["0.1 1.0"]
    assert row["hash"] == judged["hash"]
    assert {name: float(row[name]) for name in ("map_shown", "loss", "preference")} == {
        name: judged["measures"][name] for name in ("map_shown", "loss", "preference")
    }
    assert float(row["score"]) == judged["score"] == judged["measures"]["map_shown"]
    assert float(row["half_width"]) == judged["half_width"]


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_says_which_is_best_and_how_to_set_it(
    place: Place,
    alone: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    capfd.readouterr()
    assert main(words(place, "alone", *GRID)) == EX_OK
    said = capfd.readouterr()
    assert "6 settings are done" in said.err
    lines = said.out.splitlines()
    assert lines[0].split()[:3] == ["learner.C", "serving.power", "map_shown"]
    assert ("seconds" in lines[0]) == (width == 200)
    assert max(map(len, lines[:7])) <= width
    assert "best" in lines[1]
    best = max(alone.values(), key=lambda row: float(row["score"]))
    assert lines[1].split()[:2] == [best["learner.C"], best["serving.power"]]
    assert lines[-4:] == [
        "  [learner]",
        f"  C = {best['learner.C']}",
        "  [serving]",
        f"  power = {best['serving.power']}",
    ]
    scores = [float(row["score"]) for row in alone.values()]
    assert scores == sorted(scores, reverse=True)
    assert min(float(row["over_own_ranking"]) for row in alone.values()) > 0.03


def test_settings_that_differ_in_their_form_alone_have_one_learner(
    place: Place, alone: dict[str, Any]
) -> None:
    assert len({row["folder"] for row in alone.values()}) == 3
    assert len(list((place.folder / "alone" / "settings").iterdir())) == 3
    assert len({row["score"] for row in alone.values()}) > 3, "but not one score"


def test_a_sweep_that_is_killed_goes_on_to_the_same_table(
    place: Place, alone: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    often = (*GRID, "--version-events", "1000")
    whole = table(place, "whole", capfd, *often)
    assert all(row["version"] > 1 for row in whole["settings"])
    assert [row["hash"] for row in whole["settings"]] == [
        row["hash"] for row in table(place, "alone", capfd, *GRID)["settings"]
    ], "versions in between change nothing"
    slow = words(place, "killed", *often, "--max-events-per-second", "1000")  # ten seconds are left then
    process = Popen([sys.executable, "-m", "daemon", *slow], stderr=subprocess.DEVNULL)
    settings = place.folder / "killed" / "settings"
    until(lambda: any(len(open_store(one).versions.versions()) >= 2 for one in settings.glob("*")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    until_gone(process.pid)
    assert not (place.folder / "killed" / "results.jsonl").read_bytes().count(b'"scored"')
    again = table(place, "killed", capfd, *often)
    assert told(again) == told(whole)
    assert again["fresh"] == 6


def until_gone(pid: int) -> None:
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def workers_of(driver: psutil.Process) -> list[psutil.Process]:
    """Those that are there; one may end while it is looked at."""
    found = []
    for one in driver.children():
        with suppress(psutil.Error):
            found += [one] if "spawn_main" in " ".join(one.cmdline()) else []
    return found


def test_workers_that_are_killed_and_a_stop_cost_nothing_but_time(
    place: Place, alone: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    options = (*GRID, "--workers", "2", "--max-events-per-second", "50")
    command = [sys.executable, "-m", "daemon", *words(place, "worker", *options)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    settings = place.folder / "worker" / "settings"
    until(lambda: len(list(settings.glob("*/versions/*"))) >= 2, seconds=START_S)
    driver = psutil.Process(process.pid)
    gone = workers_of(driver)
    assert len(gone) == 2
    gone[0].kill()
    assert process.stderr is not None
    assert "workers are lost" in process.stderr.readline()
    until(lambda: len({*workers_of(driver)} - {*gone}) == 2, seconds=START_S)
    workers = workers_of(driver)
    process.send_signal(signal.SIGINT)
    # which takes two minutes at this rate
    assert process.wait(timeout=60) == INTERRUPTED, "it waits for nothing that a worker has begun"
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    two = table(place, "worker", capfd, *GRID, "--workers", "2")
    assert told(two) == told(table(place, "alone", capfd, *GRID))


def test_a_line_that_broke_off_is_judged_again(
    place: Place, alone: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    table(place, "torn", capfd, *GRID)
    results = place.folder / "torn" / "results.jsonl"
    data = results.read_bytes()
    results.write_bytes(data[: data.rindex(b'"scored"') + 100])
    again = table(place, "torn", capfd, *GRID)
    assert again["fresh"] == 1
    assert table(place, "torn", capfd, *GRID)["fresh"] == 0
    assert told(again) == told(table(place, "alone", capfd, *GRID))


def test_a_block_is_read_once_for_all_settings_of_a_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    read: list[int] = []

    def counted(reader: BlockReader, least: int, fed: int) -> Any:
        read.append(least)
        return plain(reader, least, fed)

    plain = BlockReader.next
    monkeypatch.setattr(BlockReader, "next", counted)
    table(place, "one", capfd, "--set", "learner.C=0.1", "--version-events", "1000")
    first, _ = len(read), read.clear()
    table(place, "three", capfd, "--set", "learner.C=0.1,0.2,0.3", "--version-events", "1000")
    assert len(read) == first > 2


def test_settings_that_are_not_valid_are_named_before_anything_runs(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words(place, "none", "--set", "learner.C=0.1,-1", "--set", "learner.tau2=1")) == EX_CONFIG
    said = capfd.readouterr().err
    assert "2 of 2 settings are not valid" in said
    assert "learner.C=-1" in said
    assert "learner.tau2: unknown key" in said
    assert not (place.folder / "none").exists()


def test_a_setting_that_cannot_be_judged_is_named_and_the_others_are_placed(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("--set", "learner.C=0.1,0.2")
    whole = table(place, "damaged", capfd, *options)
    results = place.folder / "damaged" / "results.jsonl"
    *kept, last = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(b"".join(kept))
    lost = json.loads(last)
    (state,) = Path(lost["folder"]).glob(f"versions/*{lost['version']}/*.safetensors")
    state.write_bytes(state.read_bytes()[:-8])
    again = table(place, "damaged", capfd, *options)
    assert list(again["failed"]) == [lost["name"]]
    assert "cannot be judged" in again["failed"][lost["name"]]
    left = [row for row in whole["settings"] if row["folder"] != lost["folder"]]
    assert [row["hash"] for row in again["settings"]] == [row["hash"] for row in left]
    assert len(left) == 1


@pytest.mark.parametrize("change", ["file", "window"])
def test_results_of_something_else_are_not_added_to(
    place: Place, tmp_path: Path, change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    own = make_place(tmp_path)
    assert main(words(own, "out", "--set", "learner.C=0.1")) == EX_OK
    if change == "file":
        with (tmp_path / "day3.jsonl").open("a") as file:
            file.write("\n")
    else:
        text = own.file.read_text()
        own.file.write_text(f"{text}[validate]\nwindow = 100\n")
    assert main(words(own, "out", "--set", "learner.C=0.1")) == EX_DATAERR
    assert ("day3.jsonl" if change == "file" else "validate.window is 100") in capfd.readouterr().err


def test_too_few_lists_say_so(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    own = make_place(tmp_path)
    text = own.file.read_text()
    own.file.write_text(f"{text}[validate]\nmin_impressions = 5000\n")
    assert main(words(own, "out", "--set", "learner.C=0.1")) == EX_UNAVAILABLE
    assert "5000 are needed" in capfd.readouterr().err
