"""What history teaches: the same as fed and learned, in any process, after any end; and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from daemon.backfill.plan import HistoryProgress, Unit, shared_out
from daemon.backfill.run import BackfillJob, recipe_of
from daemon.cli import main
from daemon.config import load_config
from daemon.exits import EX_DATAERR, EX_OK, EX_UNAVAILABLE, EX_USAGE
from tests.daemon.backfill.place import Place, fed_and_learned, make_place
from tests.harness.forked import Popen
from tests.harness.waiting import until

SMALL = ("--here", "--merge-events", "300", "--version-events", "1000", "--no-judge")
SLOW = ("--max-events-per-second", "400")
"""With it a first version is there after some seconds, and twice as many are left to end the run in."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def test_one_learner_comes_to_the_bits_of_feed_and_learn(place: Place) -> None:
    assert place.backfill(*SMALL) == EX_OK
    assert len(place.versions().versions()) > 2, "it went on from a version in between"
    assert place.hash() == fed_and_learned(place)


def test_a_log_that_is_there_is_learned_as_its_learner_would(place: Place) -> None:
    live = fed_and_learned(place)
    words = ["backfill", f"log:{place.folder / 'clicks.log'}", "--config", str(place.file)]
    assert main([*words, "--set", f"checkpoints.path={place.folder / 'again'}", *SMALL]) == EX_OK
    assert place.hash("again") == live


def test_several_learners_merge_and_the_same_again_gives_the_same_bits(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    assert place.backfill("--shards", "3", *SMALL, into="one") == EX_OK
    assert place.backfill("--shards", "3", *SMALL, into="two") == EX_OK
    assert place.hash("one") == place.hash("two")
    assert place.backfill("--shards", "3", "--verify", "--json", *SMALL, into="one") == EX_OK
    out = capfd.readouterr().out
    assert json.loads(out[out.index("{") :])["equal"] is True
    assert place.backfill(*SMALL, into="alone") == EX_OK
    assert place.hash("alone") != place.hash("one"), "a merge is not one learner"


def test_a_memory_of_clicks_is_learned_as_its_learner_would_and_merged(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    arm = '[[learner.race.arms]]\nname = "seen"\nkind = "memory"\nqueries = 300\n'
    place.file.write_text(place.file.read_text(encoding="utf-8") + arm, encoding="utf-8")
    assert place.backfill(*SMALL) == EX_OK
    assert place.hash() == fed_and_learned(place)
    assert place.backfill("--shards", "3", *SMALL, into="one") == EX_OK
    assert place.backfill("--shards", "3", "--verify", "--json", *SMALL, into="one") == EX_OK
    out = capfd.readouterr().out
    assert json.loads(out[out.index("{") :])["equal"] is True
    newest = place.versions("one").newest_manifest()
    assert newest is not None
    stamps = place.versions("one").load(newest.number).arrays["arms.seen.stamps"]
    assert len(np.unique(stamps)) == len(stamps) == 300


def test_what_was_learned_is_better_on_lists_that_were_held_out(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--here", "--shards", "2", "--merge-events", "300", "--json")
    assert place.backfill(*words) == EX_OK
    out = capfd.readouterr().out
    verdict = json.loads(out[out.index("{") :])["verdict"]
    assert verdict["lists"] > 100
    assert verdict["after"]["map_shown"] > verdict["before"]["map_shown"] + 0.05


def test_a_run_that_is_killed_goes_on_to_the_same_bits(place: Place) -> None:
    words = ("--shards", "2", *SMALL)
    assert place.backfill(*words, into="whole") == EX_OK
    slow = place.words(*words, *SLOW, into="killed")
    process = Popen([sys.executable, "-m", "daemon", *slow], stderr=subprocess.DEVNULL)
    until(lambda: len(place.versions("killed").versions()) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    known = place.versions("killed").newest_manifest()
    assert known is not None
    progress = HistoryProgress.in_version(known)
    assert progress is not None
    assert not progress.done
    assert place.backfill(*words, into="killed") == EX_OK
    assert place.hash("killed") == place.hash("whole")
    assert place.backfill(*words, into="killed") == EX_USAGE, "it holds all of this already"


def test_the_learner_goes_on_from_it_and_knows_its_events(place: Place) -> None:
    assert place.backfill(*SMALL) == EX_OK
    before = place.versions().newest_manifest()
    assert before is not None
    days = sorted(str(one) for one in place.folder.glob("day*.jsonl"))
    path = f"checkpoints.path={place.folder / 'checkpoints'}"
    assert main(["feed", *days, "--config", str(place.file), "--set", path]) == EX_OK
    learn = ["learn", "--config", str(place.file), "--set", path, "--set", "http.learn_port=0"]
    at_the_end = ["--set", "checkpoints.every_events=0", "--exit-when-caught-up"]
    assert main([*learn, *at_the_end]) == EX_OK
    after = place.versions().newest_manifest()
    assert after is not None
    assert after.parent == before.number
    assert after.counters["updated"] == before.counters["updated"], "no event was learned twice"
    assert after.counters["duplicate"] == after.counters["records"] - before.counters["records"] > 0


@pytest.mark.parametrize("change", ["file", "option"])
def test_another_history_does_not_go_on_with_an_unfinished_one(
    place: Place, change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    slow = place.words(*SMALL, *SLOW)
    process = Popen([sys.executable, "-m", "daemon", *slow], stderr=subprocess.DEVNULL)
    until(lambda: len(place.versions().versions()) >= 2)
    process.kill()
    process.wait()
    if change == "file":
        with (place.folder / "day3.jsonl").open("a") as file:
            file.write("{}\n")
    words = ("--set", "feed.seed=7") if change == "option" else ()
    assert place.backfill(*SMALL, *words) == EX_DATAERR
    said = capfd.readouterr().err
    assert ("day3.jsonl" if change == "file" else "seed") in said


def test_a_file_that_is_not_there_is_named(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["backfill", str(place.folder / "none.jsonl"), "--config", str(place.file), "--here"]
    assert main(words) == EX_UNAVAILABLE
    assert "none.jsonl" in capfd.readouterr().err


def test_a_table_that_breaks_off_is_named(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    (place.folder / "day4.parquet").write_bytes(b"PAR1 and nothing more")
    words = ["backfill", str(place.folder / "day4.parquet"), "--config", str(place.file), "--here"]
    assert main(words) == EX_DATAERR
    assert "day4.parquet" in capfd.readouterr().err


def test_units_go_to_the_shard_that_has_least() -> None:
    units = [
        Unit(name, (name,), size, "") for name, size in (("a", 5), ("b", 2), ("c", 2), ("d", 2), ("e", 1))
    ]
    shares = [[one.name for one in share] for share in shared_out(units, 2)]
    assert shares == [["a", "e"], ["b", "c", "d"]]
    assert shared_out(units, 1) == [units]


@pytest.mark.parametrize("table", ['[learner.race]\narms = "none"\n', '[validate]\ndecide = "map_shown"\n'])
def test_a_backfill_does_not_go_on_where_other_events_would_be_made(place: Place, table: str) -> None:
    """What arms alone learn depends on more than [feed]."""
    job = BackfillJob(["a.jsonl"], now_ms=0)
    before = recipe_of(load_config(place.file), job)
    place.file.write_text(place.file.read_text(encoding="utf-8") + table, encoding="utf-8")
    assert recipe_of(load_config(place.file), job) != before
