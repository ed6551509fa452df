"""The same on Ray: the bits of one process, after a worker, Ray's own daemon or the driver was killed.

One Ray is shared by the tests; those that kill it start their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from daemon.backfill.cluster import ShardsOnRay, ray_running
from daemon.cli import main
from daemon.exits import EX_OK, EX_UNAVAILABLE
from tests.daemon.backfill.place import Place, make_place
from tests.daemon.backfill.test_from_bucket import Bucket
from tests.harness.s3_server import S3Server
from tests.harness.waiting import until

pytestmark = pytest.mark.xdist_group("ray")

START_S = 200.0
"""A Ray and its workers, which import all there is, have taken a minute to start on a busy machine."""
TWO = ("--shards", "2", "--merge-events", "300", "--version-events", "1000", "--no-judge")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = make_place(tmp_path_factory.mktemp("history"))
    assert made.backfill(*TWO, "--here", into="here") == EX_OK
    return made


@pytest.fixture(scope="module", autouse=True)
def workers_at_once() -> Iterator[None]:
    """Ray has its workers give way to everybody: among other tests they took minutes to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield


@pytest.fixture(scope="module")
def running(s3: S3Server) -> Iterator[None]:
    """s3: its keys are in the environment before, which workers of Ray have from their start."""
    with ray_running(None, 2):
        yield
    until(lambda: not rays(), "Ray leaves nothing behind")


def rays() -> list[psutil.Process]:
    """Processes of Ray that this one started and that are not ended."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ends while it is looked at
            found += [one] if "ray" in one.name() and one.status() != psutil.STATUS_ZOMBIE else []
    return found


def test_a_cluster_that_is_away_is_said_so(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*place.words(*TWO, into="away"), "--address", "127.0.0.1:1"]
    assert main(words) == EX_UNAVAILABLE
    assert "no Ray at 127.0.0.1:1" in capfd.readouterr().err


@pytest.mark.usefixtures("running")
def test_actors_come_to_the_bits_of_one_process(place: Place) -> None:
    assert place.backfill(*TWO, into="actors") == EX_OK
    assert place.hash("actors") == place.hash("here")


@pytest.mark.usefixtures("running")
def test_a_worker_that_is_killed_costs_nothing_but_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    killed = threading.Event()

    def then_kill(shards: ShardsOnRay, *words: object) -> object:
        if len(place.versions("worker").versions()) >= 2 and not killed.is_set():
            killed.set()
            os.kill(shards.processes()[0], signal.SIGKILL)
        return learn(shards, *words)  # type: ignore[arg-type]

    learn = ShardsOnRay.learn
    monkeypatch.setattr(ShardsOnRay, "learn", then_kill)
    assert place.backfill(*TWO, into="worker") == EX_OK
    assert killed.is_set()
    assert "workers were lost 1 times" in capfd.readouterr().out
    assert place.hash("worker") == place.hash("here")


@pytest.mark.parametrize("which", ["driver", "raylet"])
def test_a_driver_or_a_head_that_is_killed_is_gone_on_from(place: Place, which: str) -> None:
    slow = ("--max-events-per-second", "500")  # so that seconds are left to end it in
    words = place.words(*TWO, *slow, into=which)
    process = subprocess.Popen([sys.executable, "-m", "daemon", *words], stderr=subprocess.DEVNULL)
    until(lambda: len(place.versions(which).versions()) >= 2, seconds=START_S)
    children = psutil.Process(process.pid).children(recursive=True)
    if which == "driver":
        process.kill()
    else:
        raylet_of(children).kill()
    process.wait(timeout=90)
    for one in children:
        with_end(one)
    if which == "driver" or process.returncode != EX_OK:
        assert place.backfill(*TWO, "--here", into=which) == EX_OK
    assert place.hash(which) == place.hash("here")


def raylet_of(children: list[psutil.Process]) -> psutil.Process:
    """Ray's own daemon; others may end while they are looked at."""
    for one in children:
        with suppress(psutil.NoSuchProcess):
            if "raylet" in one.name():
                return one
    raise AssertionError(f"no raylet among {children}")


def with_end(process: psutil.Process) -> None:
    """Until a process of a Ray that lost its driver has ended; Ray ends them itself, or this does."""
    try:
        process.wait(timeout=10)
    except psutil.TimeoutExpired:
        process.kill()
    except psutil.NoSuchProcess:
        pass


def swept(
    place: Place, capfd: pytest.CaptureFixture[str], out: str, *options: str
) -> list[dict[str, object]]:
    """The rows of a sweep without what differs from run to run."""
    capfd.readouterr()
    words = ["sweep", place.days, "--config", str(place.file), "--out", str(place.folder / out), "--json"]
    assert main([*words, "--set", "learner.C=0.1,1", *options]) == EX_OK
    text = capfd.readouterr().out
    rows = json.loads(text[text.index("{") :])["settings"]
    return [{name: row[name] for name in row if name not in ("seconds", "folder", "version")} for row in rows]


@pytest.mark.usefixtures("running")
def test_actors_reach_a_bucket_as_the_driver_does(tmp_path: Path, s3: S3Server, prefix: str) -> None:
    bucket = Bucket(tmp_path, s3, prefix)
    assert main(bucket.words("backfill", *TWO)) == EX_OK
    assert bucket.disk.backfill(*TWO, "--here") == EX_OK
    assert bucket.hash() == bucket.disk.hash()


@pytest.mark.usefixtures("running")
def test_a_sweep_on_ray_has_the_numbers_of_one_process_also_after_a_kill(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = swept(place, capfd, "sweep-here")
    killed = threading.Event()

    def kill() -> None:
        folder = place.folder / "sweep-ray" / "settings"
        until(lambda: list(folder.glob("*/versions/*1")) and one_killed(), seconds=START_S)
        killed.set()

    thread = threading.Thread(target=kill)
    thread.start()
    slow = ("--workers", "2", "--address", "auto", "--max-events-per-second", "600")
    on_ray = swept(place, capfd, "sweep-ray", *slow, "--version-events", "1000")
    thread.join()
    assert killed.is_set()
    assert on_ray == alone


def one_killed() -> bool:
    """Whether there was a worker to kill."""
    for one in rays_at_work():
        with suppress(psutil.NoSuchProcess):
            one.kill()
            return True
    return False


def rays_at_work() -> list[psutil.Process]:
    """Workers of Ray that do a piece of work: their names tell which. One may end while it is looked at."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += [one] if "ray::_piece" in " ".join(one.cmdline()) else []
    return found
