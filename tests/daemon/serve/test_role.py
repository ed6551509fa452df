"""`tripletd serve` as a process: it waits for a version, answers, follows, reloads and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.exits import EX_CONFIG, EX_OK, EX_UNAVAILABLE
from tests.daemon.kept import Kept
from tests.harness import forked
from tests.harness.log_lines import json_lines
from tests.harness.waiting import until

ROOT = Path(__file__).parents[3]
OBJECTS, DIM = 40, 6
PATIENCE_S = 60.0
CONFIG = """
[stream]
address = "log:clicks.log"
[space.views.x]
dim = 6
map = "identity"
[catalog]
path = "catalog.jsonl"
[feed]
holdout_share = 0.0
random_negatives = 0
[checkpoints]
every = "1h"
[serve]
aliases = ["stable", "latest"]
look_every = "50ms"
[http]
learn_port = 0
validate_port = 0
serve_port = 0
"""


class Place(Kept):
    """A folder with a configuration, a catalog and clicks; roles run in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tripletd.toml"
        self.file.write_text(CONFIG)
        draw = np.random.default_rng(4)
        self.rows = draw.normal(0, 1, (OBJECTS, DIM))
        lines = [json.dumps({"id": f"o{n}", "x": row.tolist()}) for n, row in enumerate(self.rows)]
        (folder / "catalog.jsonl").write_text("\n".join(lines))
        self.running: list[subprocess.Popen[bytes]] = []

    def feed(self, count: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        lines = []
        for number in range(count):
            query, *shown = (f"o{n}" for n in draw.choice(OBJECTS, 5, replace=False))
            refs = {"q": {"id": query}, "shown": [{"id": one} for one in shown], "clicked": [3]}
            lines.append(json.dumps({"id": f"{seed}-{number}", "ts": int(time.time() * 1000), **refs}))
        source = self.folder / f"clicks{seed}.jsonl"
        source.write_text("\n".join(lines))
        assert main(["feed", str(source), "--config", str(self.file)]) == EX_OK

    def learn(self) -> None:
        assert main(["learn", "--exit-when-caught-up", "--config", str(self.file)]) == EX_OK

    def start(self, role: str, *words: str, env: dict[str, str] | None = None, real: bool = False) -> Role:
        log = self.folder / f"{role}{len(self.running)}.log"
        command = [sys.executable, "-P", "-m", "daemon", role, "--config", str(self.file), *words]
        with log.open("wb") as stderr:
            environ = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
            begin = subprocess.Popen if real else forked.Popen
            process = begin(command, stderr=stderr, env=environ, cwd=self.folder)
        self.running.append(process)
        return Role(process, log)

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


class Role:
    """A running role and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def said(self) -> str:
        return self.log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """Its log lines; not one that is being written."""
        return json_lines(self.said())

    def url(self, scheme: str = "http") -> str:
        def told() -> re.Match[str] | None:
            return re.search(rf'"url": "({scheme}://[^"]+)"', self.said())

        until(lambda: told() or self.process.poll() is not None, self.said)
        found = told()
        assert found is not None, self.said()
        return found[1]

    def ready(self) -> set[str]:
        """The roles whose log lines say that they are ready, or at their work."""
        told = ("ready", "answering, with metrics, health and the page", "metrics and health")
        return {str(line.get("role")) for line in self.lines() if line["event"] in told}

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body: JSON as it is meant, else text."""
        try:
            with urllib.request.urlopen(self.url() + path, timeout=PATIENCE_S) as answer:
                status, body = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read().decode()
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


def test_it_waits_for_a_version_then_answers_and_ends_with_0(place: Place) -> None:
    role = place.start("serve", real=True)
    assert role.get("/livez") == (200, "ok\n")
    until(lambda: "no version in" in role.get("/readyz")[1], role.said)  # once it has looked
    assert role.get("/readyz")[0] == 503
    status, body = role.get("/v1/similar?id=o3")
    assert (status, body["error"]["code"]) == (503, "not_serving")
    place.feed(60, seed=1)
    place.learn()
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    number = place.newest().number
    until(lambda: role.get("/v1/similar?id=o3&k=2&alias=latest")[1].get("base") == number, role.said)
    status, body = role.get("/v1/similar?id=o3&k=2&alias=latest")
    assert (status, body["version"], len(body["results"])) == (200, str(number), 2)
    assert body["records"] == place.newest().counters["records"]
    assert role.get("/v1/similar?id=o3")[1]["version"] == "0"  # stable: nothing was promoted
    page = role.get("/metrics")[1]
    assert 'tripletd_serving{alias="latest"} 1.0' in page
    assert "tripletd_http_requests_total" in page
    assert role.get("/")[0] == 200
    assert role.stop() == EX_OK
    assert '"role": "serve"' in role.said()
    assert "Traceback" not in role.said(), role.said()


def test_a_click_reaches_an_answer_while_learn_runs(place: Place) -> None:
    place.feed(40, seed=1)
    place.learn()
    serve, learn = place.start("serve"), place.start("learn")
    until(lambda: serve.get("/readyz")[0] == 200 and learn.get("/readyz")[0] == 200, serve.said)
    until(lambda: serve.get("/v1/similar?id=o3&alias=latest")[0] == 200, serve.said)
    before = serve.get("/v1/similar?id=o3&alias=latest")[1]["records"]
    place.feed(30, seed=2)

    def all_in() -> bool:
        return bool(serve.get("/v1/similar?id=o3&alias=latest")[1]["records"] > before)

    until(all_in, serve.said)
    served = serve.get("/v1/similar?id=o3&alias=latest")[1]
    assert served["version"].startswith(f"{served['base']}+")  # no version was written meanwhile

    def counted() -> bool:
        """An answer may be of a state that its followers are told of a moment later; the next one counts."""
        serve.get("/v1/similar?id=o3&alias=latest")
        count = r'tripletd_event_to_served_seconds_count\{alias="latest"\} ([\d.e+]+)'
        return float(re.findall(count, serve.get("/metrics")[1])[0]) > 0

    until(counted, serve.said)
    assert (serve.stop(), learn.stop()) == (EX_OK, EX_OK)


def test_clicks_that_come_with_a_whole_version_are_counted_every_one(place: Place) -> None:
    place.feed(40, seed=1)
    place.learn()
    serve = place.start("serve", "--set", "steps.enabled=false")
    question = "/v1/similar?id=o3&alias=latest"
    until(lambda: serve.get(question)[0] == 200, serve.said)
    before = place.newest().counters
    place.feed(30, seed=2)
    place.learn()
    until(lambda: serve.get(question)[1]["base"] == place.newest().number, serve.said)
    after = place.newest().counters
    learned = sum(after.get(name, 0) - before.get(name, 0) for name in ("updated", "passive", "degenerate"))
    assert learned >= 30
    counted = f'tripletd_event_to_served_seconds_count{{alias="latest"}} {float(learned)}'
    up_to_date = 'tripletd_served_behind_seconds{alias="latest"} 0.0'  # told at the look after the swap

    def told() -> bool:
        assert serve.get(question)[0] == 200  # the first answer may come before what it brought is known
        page = serve.get("/metrics")[1]
        return counted in page and up_to_date in page

    until(told, serve.said)
    assert serve.stop() == EX_OK


def test_a_promoted_version_is_swapped_in_by_http_with_the_token(place: Place) -> None:
    place.feed(40, seed=1)
    place.learn()
    token = "correct-horse-battery-staple"
    role = place.start("serve", env={"TRIPLETD_HTTP__TOKEN": token})
    until(lambda: role.get("/readyz")[0] == 200, role.said)
    number = place.newest().number
    asked = urllib.request.Request(
        role.url() + "/v1/models/promote",
        data=json.dumps({"version": number}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert json.loads(answer.read())["after"] == number
    until(lambda: role.get("/v1/similar?id=o3")[1]["base"] == number, role.said)
    assert token not in role.said()
    assert role.stop() == EX_OK


def test_reload_changes_the_level_and_names_what_needs_a_restart(place: Place) -> None:
    role = place.start("serve")
    assert role.get("/livez")[0] == 200
    place.file.write_text(CONFIG + '[log]\nlevel = "debug"\n'.replace("debug", "warning"))
    changed = place.file.read_text().replace('look_every = "50ms"', 'look_every = "60ms"')
    place.file.write_text(changed)
    role.process.send_signal(signal.SIGHUP)
    until(lambda: any("not taken over while running" in line["event"] for line in role.lines()), role.said)
    assert "serve.look_every" in role.said()
    assert role.stop() == EX_OK


def test_a_port_that_is_taken_and_a_file_that_is_wrong_have_their_codes(place: Place) -> None:
    first = place.start("serve")
    port = first.url().rpartition(":")[2]
    second = place.start("serve", "--set", f"http.serve_port={port}")
    assert second.process.wait(PATIENCE_S) == EX_UNAVAILABLE
    assert f"port {port} on 127.0.0.1 is taken" in second.said()
    assert place.start("serve", "--set", "serve.ann_recall=2").process.wait(PATIENCE_S) == EX_CONFIG
    place.feed(10, seed=1)
    place.learn()
    (place.folder / "catalog.jsonl").write_text("no catalog")
    broken = place.start("serve")
    assert broken.process.wait(PATIENCE_S) not in (EX_OK, 70, None)
    assert "catalog.jsonl" in broken.said()
    assert "Traceback" not in broken.said(), broken.said()


def test_a_second_stop_ends_it_at_once(place: Place) -> None:
    role = place.start("serve")
    assert role.get("/livez")[0] == 200
    role.process.send_signal(signal.SIGTERM)
    role.process.send_signal(signal.SIGTERM)
    assert role.process.wait(PATIENCE_S) in (EX_OK, 128 + signal.SIGTERM)
