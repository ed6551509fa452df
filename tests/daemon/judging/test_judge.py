"""Versions judged on one window: the numbers of `validate`, by as many processes as there are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from daemon.catalogs import learner_catalog
from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from daemon.judging.lists import lists_of_topic
from daemon.versions.storage import open_store
from tests.daemon.backfill.place import Place, make_place

RUN_ALONE = {"seconds"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A stream that was learned into some versions, the newest of which `validate` judged."""
    made = make_place(tmp_path_factory.mktemp("line"))
    own = ["--config", str(made.file)]
    assert main(["feed", *sorted(str(one) for one in made.folder.glob("day*.jsonl")), *own]) == EX_OK
    often = ["--set", "checkpoints.every_events=700", "--set", "http.learn_port=0"]
    assert main(["learn", *own, *often, "--start", "earliest", "--exit-when-caught-up"]) == EX_OK
    assert main(["validate", *own, "--exit-when-caught-up", "--set", "http.validate_port=0"]) == EX_OK
    return made


def judged(place: Place, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capfd.readouterr()
    assert main(["judge", "--config", str(place.file), "--json", *options]) == EX_OK
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return {name: value for name, value in found.items() if name not in RUN_ALONE}


def test_a_line_of_versions_is_a_curve_on_one_window(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    found = judged(place, capfd)
    numbers = [one["version"] for one in found["versions"]]
    assert numbers == place.versions().versions()
    assert len(numbers) >= 2
    events = [one["events"] for one in found["versions"]]
    assert events == sorted(events)
    scores = [one["score"] for one in found["versions"]]
    assert max(scores) > scores[0] + 0.05
    (best,) = [one for one in found["versions"] if one["is_best"]]
    assert best["score"] == max(scores)
    assert not found["versions"][0]["within_noise"]


def test_the_numbers_are_those_of_validate(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    found = judged(place, capfd)
    entries = [one for one in open_store(place.folder / "checkpoints").ledger.entries() if one.kind == "KEEP"]
    (entry,) = [one for one in entries if one.version == place.versions().versions()[-1]]
    (newest,) = [one for one in found["versions"] if one["version"] == entry.version]
    assert found["lists"] == entry.measures["impressions"]
    for name in ("map_shown", "loss", "position_balanced", "clicked_vs_random", "map_clicks"):
        assert newest["measures"][name] == entry.measures[name], name


def test_the_window_reaches_to_the_last_record_of_the_topic(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    own = ["--config", str(place.file)]
    assert main(["feed", str(tmp_path / "day0.jsonl"), *own]) == EX_OK
    config = load_config(place.file)
    address, catalog = config.stream.to_address(), learner_catalog(config, lambda _: None)
    before = [one.id for one in lists_of_topic(address, config, catalog)]
    lines = (json.loads(line) for line in (tmp_path / "day0.jsonl").read_text().splitlines())
    (held_out,) = (one for one in lines if one["id"] == before[-1])
    last = held_out | {"id": "the last", "ts": held_out["ts"] + 1_000_000}  # its query is held out
    (tmp_path / "last.jsonl").write_text(json.dumps(last) + "\n")
    assert main(["feed", str(tmp_path / "last.jsonl"), *own]) == EX_OK
    assert [one.id for one in lists_of_topic(address, config, catalog)] == [*before, "the last"]


def test_two_processes_come_to_the_numbers_of_one(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    assert judged(place, capfd) == judged(place, capfd, "--workers", "2")


def test_lists_may_come_from_files(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "curve.csv"
    from_files = judged(place, capfd, "--history", place.days, "--csv", str(made))
    assert from_files == judged(place, capfd), "the same lists as in the holdout topic"
    with made.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["map_shown"]) for row in rows] == [
        one["measures"]["map_shown"] for one in from_files["versions"]
    ]


def test_versions_are_named_and_placed_by_a_measure(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    found = judged(place, capfd, "0", "latest", "--by", "loss")
    zero, latest = found["versions"]
    assert zero["version"] == 0
    assert latest["is_best"]
    assert latest["score"] < zero["score"]
    assert zero["to_best"] > 0


def test_nothing_is_written(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    def files() -> dict[str, int]:
        every = (place.folder / "checkpoints").rglob("*")
        return {str(one): one.stat().st_mtime_ns for one in every if "catalogs" not in one.parts}

    before = files()
    judged(place, capfd)
    assert files() == before


def test_a_version_that_is_damaged_is_named_and_the_others_are_judged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = make_place(tmp_path)
    assert own.backfill("--here", "--version-events", "1000", "--no-judge") == EX_OK
    numbers = own.versions().versions()
    (state,) = own.folder.glob(f"checkpoints/versions/*{numbers[-1]}/*.safetensors")
    state.write_bytes(state.read_bytes()[:-8])
    found = judged(own, capfd, "--history", own.days)
    assert [one["version"] for one in found["versions"]] == numbers[:-1]
    assert list(found["failed"]) == [str(numbers[-1])]


def test_without_lists_it_says_where_some_may_come_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = make_place(tmp_path)
    words = ["judge", "--config", str(own.file)]
    assert main(words) == EX_UNAVAILABLE
    assert own.backfill("--here", "--no-judge") == EX_OK
    assert main(words) == EX_UNAVAILABLE
    assert "--history" in capfd.readouterr().err
    assert main([*words, "--set", "keys.slots=2"]) == EX_CONFIG
