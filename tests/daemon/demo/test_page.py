"""`demo --keep`: photos and settings for the page, a visitor, and an end when told."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.commands.demo import demo
from daemon.config import load_config
from daemon.demo.pack_files import load_pack
from daemon.demo.page import DISPLAY, DemoPorts, free_ports, visitor, write_photos
from daemon.demo.report import FIGURES, TIME_LIMIT
from daemon.demo.run import MIN_DELTA, PATIENCE, DemoRun, ended_by_sigterm, unbroken, write_settings
from daemon.exits import EX_OK, UserError
from daemon.serve.items.display import load_display
from daemon.serve.page.objects import ImageFolder
from daemon.up import role_process
from tests.harness import forked
from tests.harness.kafka.ports import free_ports as unlent_ports
from tests.harness.waiting import until

ROOT = Path(__file__).parents[3]
WAIT_SECONDS = 60.0


def ports_for_test() -> DemoPorts:
    """Free ones that no connection is lent meanwhile: the usual ones may be anybody's."""
    return DemoPorts("127.0.0.1", *unlent_ports(3))


def test_every_photo_can_be_shown(tmp_path: Path) -> None:
    write_photos(tmp_path)
    shown, pack = load_display(tmp_path / DISPLAY), load_pack()
    assert len(shown) == len(pack.catalog.ids)
    images = ImageFolder(tmp_path)
    for row in (0, 17, len(shown) - 1):
        display = shown.of(pack.catalog.ids[row])
        assert display is not None
        assert display.image is not None
        assert display.text == pack.labels[row]
        assert images.read(display.image) is not None


def test_photos_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "photos").write_text("in the way")
    with pytest.raises(UserError, match="File exists"):
        write_photos(tmp_path)


@pytest.mark.parametrize("followed", [True, False])
def test_settings_say_where_everybody_listens(tmp_path: Path, followed: bool) -> None:
    ports = DemoPorts("127.0.0.1", 1, 2, 3)
    config = load_config(write_settings(tmp_path, ports, followed))
    assert (config.http.learn_port, config.http.validate_port, config.http.serve_port) == (1, 2, 3)
    assert config.serve.display == str(tmp_path / DISPLAY)
    assert ports.url == "http://127.0.0.1:3/"
    assert config.steps.enabled is followed
    assert (config.validate.patience_events, config.validate.min_delta) == (PATIENCE, MIN_DELTA)


def test_a_taken_port_is_left_to_who_has_it() -> None:
    found = free_ports()
    with socket.create_server(("127.0.0.1", found.serve)):
        other = free_ports()
    assert other.serve != found.serve
    assert len({other.learn, other.validate, other.serve}) == 3


@pytest.fixture
def forked_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles of a demo in this process start in hundredths of a second: those of one that is a process of
    its own start as users start them.
    """
    names = vars(subprocess) | {"Popen": forked.Popen}
    monkeypatch.setattr(role_process, "subprocess", SimpleNamespace(**names))


@pytest.mark.usefixtures("forked_roles")
def test_the_page_is_served_before_anything_is_learned_and_ends_when_told(tmp_path: Path) -> None:
    ports = ports_for_test()
    write_photos(tmp_path)
    run = DemoRun(tmp_path, write_settings(tmp_path, ports), 0)
    with run.serving(True) as beside:
        assert _asked(ports, "/")[0] == 200
        told = json.loads(_asked(ports, "/v1/page/overview")[1])
        assert [one["alias"] for one in told["served"]] == ["stable", "latest"]
    assert beside["serve"].poll() == 0


def test_a_demo_that_is_told_to_end_ends_all_that_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "daemon", "demo", "--keep", "--out", str(tmp_path / "run")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as demo:
        try:
            all_six = "demo, serve, learn, validate, users and feed"
            until(lambda: len(_running(tmp_path)) >= 6, all_six, 240.0)
            demo.send_signal(signal.SIGTERM)
            assert demo.wait(WAIT_SECONDS) == EX_OK
            assert _running(tmp_path) == []
        finally:
            demo.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_being_started_is_noted_before_the_demo_ends(number: signal.Signals) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    noted = []

    def start() -> None:
        with ended_by_sigterm(), unbroken():
            signal.raise_signal(number)
            noted.append("started")

    with pytest.raises((SystemExit, KeyboardInterrupt)):
        start()
    assert noted == ["started"]


@pytest.mark.timeout(600)  # processes of its own, whose kernels may have to be compiled first
@pytest.mark.usefixtures("forked_roles")
def test_a_demo_that_runs_out_of_time_draws_what_it_has_and_keeps_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = []
    monkeypatch.setattr("daemon.demo.run.LIMIT_SECONDS", 0.0)
    monkeypatch.setattr("daemon.demo.page.stay", lambda url, serve, log, notes: kept.append(serve.poll()))
    assert demo(out=tmp_path / "run", seed=0, keep=True) == EX_OK
    told = capsys.readouterr()
    assert "had not stopped by itself" in " ".join(told.out.split())
    assert json.loads((tmp_path / "run" / FIGURES).read_text())["stopped_by"] == TIME_LIMIT
    assert (tmp_path / "run" / "neighbours.png").stat().st_size
    assert kept == [None]  # serve was running then
    assert _running(tmp_path) == []


def test_a_demo_that_does_not_keep_serves_nothing(tmp_path: Path) -> None:
    run = DemoRun(tmp_path, write_settings(tmp_path, ports_for_test()), 0)
    with run.serving(False) as beside:
        assert beside == {}
    assert not (tmp_path / "serve.log").exists()


STAY = """
import sys
from pathlib import Path
from rich.console import Console
from daemon.demo.page import stay
class Serve:
    def poll(self):
        return {ended}
stay("http://x/", Serve(), Path("serve.log"), Console(file=sys.stdout))
print("left", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stays_until_told(number: signal.Signals) -> None:
    command = [sys.executable, "-c", STAY.format(ended=None)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = iter(process.stdout.readline, "")  # ends when the process does
            assert any("stays at" in line for line in said)
            os.kill(process.pid, number)
            told, _ = process.communicate(timeout=WAIT_SECONDS)
            assert told.strip().endswith("left")
            assert process.returncode == 0
        finally:
            process.kill()


def test_it_leaves_when_the_server_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STAY.format(ended=1)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "serve ended with exit code 1" in done.stderr


def test_a_visitor_asks_under_both_names_and_survives_a_server_that_hangs_up() -> None:
    asked: list[str] = []
    enough = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body["alias"])
            if len(asked) >= 4:
                enough.set()
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    port = ports_for_test().serve
    with visitor("127.0.0.1", port, ["a", "b"], 0):
        with socket.create_server(("127.0.0.1", port)) as deaf:
            deaf.settimeout(WAIT_SECONDS)
            deaf.accept()[0].close()  # hangs up on the first question
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert enough.wait(WAIT_SECONDS)
    server.shutdown()
    server.server_close()
    assert set(asked) == {"latest", "stable"}


def _running(folder: Path) -> list[int]:
    """Other processes with this folder on their command line, or with a file of it open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                files = [os.readlink(one) for one in (entry / "fd").iterdir()]
                words = (entry / "cmdline").read_text(errors="replace")
                if any(str(folder) in one for one in (words, *files)):
                    found.append(int(entry.name))
    return found


def _asked(ports: DemoPorts, path: str) -> tuple[int, bytes]:
    """The answer, once there is somebody to answer."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        connection = http.client.HTTPConnection(ports.host, ports.serve, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        finally:
            connection.close()
