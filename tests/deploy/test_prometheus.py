"""The rules: accepted, tested as tables, and in a real Prometheus that scrapes running roles."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon.serve.test_role import Place
from tests.deploy.expressions import RULES, expressions, rules
from tests.deploy.programs import DEPLOY, program
from tests.harness.kafka.ports import free_ports
from tests.harness.waiting import until

PROMETHEUS = DEPLOY / "prometheus"
PATIENCE_S = 60.0


def promtool(*arguments: str, folder: Path = PROMETHEUS) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_configuration_and_the_rules_are_accepted() -> None:
    checked = promtool("check", "config", "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rules found" in checked.stdout
    targets = yaml.safe_load((PROMETHEUS / "targets" / "host.yml").read_text())
    assert {group["labels"]["role"] for group in targets} == {"learn", "validate", "serve", "up"}


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    tested = promtool("test", "rules", "rules_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    text = (PROMETHEUS / "rules_test.yml").read_text()
    assert {rule["alert"] for rule in rules()} == set(re.findall(r"alertname: (\w+)", text))


def test_a_rule_that_is_wrong_would_be_told(tmp_path: Path) -> None:
    for name in ("rules.yml", "rules_test.yml"):
        (tmp_path / name).write_text((PROMETHEUS / name).read_text().replace("> 60", "> 600"))
    assert promtool("test", "rules", "rules_test.yml", folder=tmp_path).returncode != 0


class Running:
    """A Prometheus of ours."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, **parameters: str) -> Any:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._port}/api/v1/{path}{query}", timeout=10
        ) as answer:
            found = json.loads(answer.read())
        assert found["status"] == "success"
        return found["data"]

    def up(self) -> dict[str, str]:
        return {one["labels"]["role"]: one["health"] for one in self.ask("targets")["activeTargets"]}

    def firing(self) -> list[dict[str, str]]:
        return [one["labels"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"]


@contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[Running]:
    """Run it on our files, made quick: it looks ten times a second, and alerts wait for nothing."""
    settings = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    settings["global"] = {
        "scrape_interval": "200ms",
        "scrape_timeout": "200ms",
        "evaluation_interval": "200ms",
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    (folder / "rules.yml").write_text(re.sub(r"for: \w+", "for: 0s", RULES.read_text()))
    (folder / "targets").mkdir()
    groups = [{"targets": [place], "labels": {"role": role}} for role, place in targets.items()]
    (folder / "targets" / "here.yml").write_text(yaml.safe_dump(groups))
    (port,) = free_ports(1)
    options = [
        f"--web.listen-address=127.0.0.1:{port}",
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program("prometheus"), *options], cwd=folder, stderr=log)
    try:
        running = Running(port)
        until(lambda: answers(running), lambda: (folder / "prometheus.log").read_text()[-2000:])
        yield running
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def answers(running: Running) -> bool:
    try:
        return bool(running.up())
    except OSError:
        return False


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


def test_a_real_prometheus_scrapes_the_roles_and_tells_when_one_dies(place: Place, tmp_path: Path) -> None:
    place.feed(40, seed=1)
    roles = {role: place.start(role) for role in ("learn", "serve")}
    targets = {role: running.url().removeprefix("http://") for role, running in roles.items()}
    (tmp_path / "prometheus").mkdir()
    with prometheus(tmp_path / "prometheus", targets) as running:
        until(lambda: running.up() == {"learn": "up", "serve": "up"}, running.up)
        serving = 'tripletd_serving{alias="latest"} == 1'
        until(lambda: running.ask("query", query=serving)["result"], roles["serve"].said)
        until(lambda: running.ask("query", query="tripletd_events_total > 0")["result"], roles["learn"].said)
        for where, expression in expressions():
            assert "result" in running.ask("query", query=expression), where
        until(lambda: not running.firing(), running.firing)
        roles["learn"].process.kill()
        until(
            lambda: (
                ("TripletdRoleDown", "learn")
                in [(one["alertname"], one.get("role")) for one in running.firing()]
            ),
            running.firing,
        )
