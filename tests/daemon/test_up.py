"""`tripletd up --exit-when-caught-up` in earnest: everything learned, judged, and done."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints.entries import aliases
from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from daemon.cli import main
from daemon.exits import EX_OK, EX_UNAVAILABLE
from daemon.up.supervisor import RoleSpec
from tests.daemon.serve.test_role import Role
from tests.daemon.test_supervise import supervise
from tests.harness import forked
from tests.harness.waiting import until

ROOT = Path(__file__).parents[2]
CONFIG = """
[stream]
address = "log:clicks.log"
[space.views.x]
dim = 4
map = "identity"
[feed]
holdout_share = 0.4
random_negatives = 0
[validate]
min_impressions = 5
[http]
learn_port = 0
validate_port = 0
serve_port = 0
"""


def clicks(count: int) -> str:
    """Impressions whose clicked object agrees with its query in the first of four values."""
    draw = random.Random(5)
    lines = []
    for number in range(count):
        values = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(5)]
        query, shown = values[0], values[1:]
        best = max(range(4), key=lambda place: query[0] * shown[place][0])
        refs = [{"id": f"p{number}.{place}", "x": x} for place, x in enumerate(shown)]
        line = {"id": f"i{number}", "ts": number, "q": {"id": f"q{number}", "x": query}}
        lines.append(json.dumps({**line, "shown": refs, "clicked": [best]}))
    return "\n".join(lines)


def test_up_learns_and_judges_everything_and_ends_with_0(tmp_path: Path) -> None:
    config = tmp_path / "tripletd.toml"
    config.write_text(CONFIG)
    (tmp_path / "clicks.jsonl").write_text(clicks(200))
    assert main(["feed", str(tmp_path / "clicks.jsonl"), "--config", str(config)]) == EX_OK
    ended = forked.run(
        [sys.executable, "-m", "daemon", "up", "--config", str(config), "--exit-when-caught-up"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == EX_OK, ended.stderr
    entries = Ledger(LocalStore(tmp_path / "checkpoints")).entries()
    assert "best" in aliases(entries)
    assert {1} <= {entry.version for entry in entries if entry.kind == "KEEP"}


def test_who_waits_for_a_role_is_told_when_it_has_finished() -> None:
    told: list[str] = []
    again = RoleSpec("a", ("-c", "pass"), finished=lambda: told.append("a"))
    failing = RoleSpec("b", ("-c", "raise SystemExit(75)"), finished=lambda: told.append("b"))
    supervise(again, failing, at_stake=lambda: False)
    assert told == ["a"]


def test_up_serves_what_it_learns_and_stops_with_0(tmp_path: Path) -> None:
    config = tmp_path / "tripletd.toml"
    config.write_text(f'{CONFIG}feed_port = 0\n[feed.follow]\nsources = ["*.raw"]\n')
    (tmp_path / "clicks.jsonl").write_text(clicks(20))
    assert main(["feed", str(tmp_path / "clicks.jsonl"), "--config", str(config)]) == EX_OK
    with (tmp_path / "up.log").open("wb") as log:
        words = [sys.executable, "-m", "daemon", "up", "--config", str(config)]
        running = subprocess.Popen(words, cwd=ROOT, stderr=log)
    try:
        told = Role(running, tmp_path / "up.log")
        until(lambda: {"learn", "validate", "serve", "feed"} <= told.ready(), told.said)
        assert told.stop() == EX_OK
    finally:
        running.kill()
        running.wait()
    assert all(f'"role": "{role}", "event": "stopped"' in told.said() for role in ("learn", "serve", "feed"))


def test_a_taken_port_is_told_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "tripletd.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(CONFIG.replace("validate_port = 0", f"validate_port = {port}"))
        assert main(["up", "--config", str(config)]) == EX_UNAVAILABLE
    err = capsys.readouterr().err
    assert f"port {port} on 127.0.0.1 is taken" in err
    assert "started" not in err
    assert not (tmp_path / "clicks.log").exists()
