"""compose.yaml: as its specification wants it, as the roles need it, without a secret or an open door."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemon.config import load_config
from daemon.config.values import parse_duration
from daemon.runtime.leaving import ROLES
from daemon.serve.http.guard import AllowedHosts
from tests.deploy.programs import DEPLOY, OPEN_S, ROOT
from tests.harness.balancer import FALL, FILE, INTER_S

COMPOSE = DEPLOY / "compose.yaml"
OF_SHARDS = DEPLOY / "compose.shards.yaml"
DOCKERFILE = DEPLOY / "Dockerfile"
PORTS = {"learn": 9101, "validate": 9102, "serve": 9103}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


@pytest.fixture(scope="module")
def of_shards() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(OF_SHARDS.read_text())["services"]
    return found


def checked(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("file", [COMPOSE, OF_SHARDS], ids=lambda file: file.name)
def test_the_file_is_what_the_specification_wants(tmp_path: Path, file: Path) -> None:
    assert checked(file).returncode == 0
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(file.read_text().replace("read_only: true", "readonly: true"))
    assert "readonly" in checked(wrong).stdout


@pytest.mark.parametrize("file", [COMPOSE, OF_SHARDS], ids=lambda file: file.name)
def test_every_file_that_is_mounted_is_there(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    services = document["services"]
    for name, service in services.items():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            there = (DEPLOY / source).exists() if source.startswith(".") else source in document["volumes"]
            assert there, f"{name}: {source}"
        assert set(service.get("networks", ())) <= document["networks"].keys()
    assert all((DEPLOY / one["file"]).is_file() for one in document["configs"].values())
    (learner,) = (one for name, one in services.items() if name in ("learn", "learn-0"))
    assert (DEPLOY / learner["build"]["context"]).resolve() == ROOT
    assert (ROOT / learner["build"]["dockerfile"]) == DOCKERFILE


def test_every_role_runs_with_its_port_and_closed(services: dict[str, Any]) -> None:
    assert ROLES - {"up", "merge"} == PORTS.keys()  # merge is for shards alone
    config = load_config(DEPLOY / "compose" / "tripletd.toml", environ={})
    for role, port in PORTS.items():
        service = services[role]
        assert service["command"] == [role]
        assert service["environment"]["HEALTH"] == f"http://127.0.0.1:{port}/livez"
        assert getattr(config.http, f"{role}_port") == port
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["depends_on"]["topics"]["condition"] == "service_completed_successfully"
    broker = config.stream.address.removeprefix("kafka://").split("/")[0]
    assert broker.split(":")[0] in services
    assert f"PLAINTEXT://{broker}" == services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert config.checkpoints.path.startswith("/var/lib/tripletd/")


def test_shards_their_merger_and_two_servers_behind_the_balancer(
    services: dict[str, Any], of_shards: dict[str, Any]
) -> None:
    config = load_config(DEPLOY / "compose" / "shards.toml", environ={})
    ports = {**PORTS, "merge": config.http.merge_port}
    of_role = dict[str, list[str]]()
    for name, service in of_shards.items():
        role = service.get("command", [""])[0]
        if role not in ports:
            continue
        of_role.setdefault(role, []).append(name)
        assert getattr(config.http, f"{role}_port") == ports[role]
        page = "readyz" if role == "serve" else "livez"
        assert service["environment"]["HEALTH"] == f"http://127.0.0.1:{ports[role]}/{page}"
        for key in ("read_only", "cap_drop", "security_opt", "image", "build", "depends_on", "restart"):
            assert service[key] == services["learn"][key], f"{name}: {key}"
        assert service["networks"] == ["inside"]
    shards = [of_shards[name]["command"] for name in of_role["learn"]]
    assert shards == [["learn", "--shard", str(number)] for number in range(config.shards.count)]
    assert len(of_role["merge"]) == len(of_role["validate"]) == 1
    assert config.stream.partitions >= config.shards.count
    assert of_shards["kafka"] == services["kafka"]
    assert of_shards["topics"]["command"] == services["topics"]["command"]
    balancer = of_shards["balancer"]
    asked = [balancer["environment"][f"TRIPLETD_{place}"] for place in ("ONE", "TWO")]
    assert asked == [f"{name}:{config.http.serve_port}" for name in of_role["serve"]]
    assert set(re.findall(r"\$\{(\w+)\}", FILE.read_text())) == set(balancer["environment"])
    assert any(mount.startswith("./balancer/haproxy.cfg:") for mount in balancer["volumes"])
    assert set(balancer["depends_on"]) == set(of_role["serve"])
    hosts = AllowedHosts(config.http.hosts)
    assert all(hosts.know(name) for name in (*asked, "balancer:9103"))
    assert not hosts.know("shop.example.org")
    published = {name: one["ports"] for name, one in of_shards.items() if "ports" in one}
    assert published == {"balancer": [f"127.0.0.1:{config.http.serve_port}:9103"]}


@pytest.mark.parametrize("name", ["tripletd", "shards"])
def test_a_stop_is_given_the_time_that_draining_takes(
    name: str, services: dict[str, Any], of_shards: dict[str, Any]
) -> None:
    drain = load_config(DEPLOY / "compose" / f"{name}.toml", environ={}).serve.drain
    assert drain is not None
    assert drain >= INTER_S * FALL + 1  # a balancer has noticed
    for one in (services if name == "tripletd" else of_shards).values():
        if one.get("command") == ["serve"]:
            assert drain + 2 * OPEN_S <= parse_duration(one["stop_grace_period"])


def test_serve_is_asked_by_names_that_it_knows(services: dict[str, Any]) -> None:
    config = load_config(DEPLOY / "compose" / "tripletd.toml", environ={})
    hosts = AllowedHosts(config.http.hosts)
    groups = yaml.safe_load((DEPLOY / "compose" / "targets.yml").read_text())
    (scraped,) = [group["targets"][0] for group in groups if group["labels"]["role"] == "serve"]
    assert hosts.know(scraped)
    assert hosts.know(services["serve"]["ports"][0].rsplit(":", 1)[0])
    assert not hosts.know("shop.example.org")


def test_the_broker_is_the_one_that_the_tests_run_with(services: dict[str, Any]) -> None:
    pom = (ROOT / "tests" / "harness" / "kafka" / "pom.xml").read_text()
    (version,) = re.findall(r"kafka_2\.13</artifactId>\s*<version>([^<]+)", pom)
    assert services["kafka"]["image"] == f"apache/kafka:{version}"


def test_what_runs_for_ever_is_there_again_after_a_reboot(services: dict[str, Any]) -> None:
    ends = {"topics", "feed"}
    restarts = {name: one["restart"] for name, one in services.items()}
    assert {name for name, restart in restarts.items() if restart == "no"} == ends
    assert {restart for name, restart in restarts.items() if name not in ends} == {"unless-stopped"}


def test_nothing_is_published_beyond_this_host(services: dict[str, Any]) -> None:
    published = {name: port for name, one in services.items() for port in one.get("ports", ())}
    assert published.keys() == {"serve", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in published.values())


def test_prometheus_is_told_of_every_role(services: dict[str, Any]) -> None:
    groups = yaml.safe_load((DEPLOY / "compose" / "targets.yml").read_text())
    told = {group["labels"]["role"]: group["targets"] for group in groups}
    assert told == {role: [f"{role}:{port}"] for role, port in PORTS.items()}
    host = yaml.safe_load((DEPLOY / "prometheus" / "targets" / "host.yml").read_text())
    default = load_config(None, environ={}).http
    ports = {role: [f"127.0.0.1:{getattr(default, f'{role}_port')}"] for role in (*PORTS, "up")}
    assert {group["labels"]["role"]: group["targets"] for group in host} == ports


def test_no_secret_is_in_the_files() -> None:
    for file in (
        COMPOSE,
        OF_SHARDS,
        DOCKERFILE,
        *(DEPLOY / "compose").iterdir(),
        *(DEPLOY / "prometheus").glob("*.yml"),
    ):
        text = file.read_text().lower()
        for word in ("password:", "password=", "token:", "token=", "secret:", "secret="):
            assert word not in text, f"{file.name}: {word}"


def test_the_image_runs_as_nobody_special_in_two_stages() -> None:
    lines = [line.split("#")[0].strip() for line in DOCKERFILE.read_text().splitlines()]
    words = [line.split() for line in lines if line and not line.startswith("&&")]
    assert next(one for one in words if one[0] == "FROM")[-2:] == ["AS", "build"]
    last = max(place for place, one in enumerate(words) if one[0] == "FROM")
    final = words[last:]
    (user,) = (one[1] for one in final if one[0] == "USER")
    assert all(part.isdecimal() and int(part) >= 10_000 for part in user.split(":"))
    order = [one[0] for one in final]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "HEALTHCHECK" in order
    assert [one for one in words if one[0] == "ADD"] == []


def test_what_the_image_copies_is_let_through_and_there() -> None:
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in ignore if line.startswith("!")}
    copied: set[str] = set()
    for line in DOCKERFILE.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            copied |= {word.removeprefix("./") for word in words[1:-1]}
    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)


def test_every_file_that_the_code_reads_is_in_the_packages() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    listed = subprocess.run(
        ["git", "ls-files", "daemon", "streams", "learners", "checkpoints"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for file in (Path(name) for name in listed if not name.endswith(".py")):
        owners = [package for package in settings if file.is_relative_to(package.replace(".", "/"))]
        patterns = [(package.replace(".", "/"), glob) for package in owners for glob in settings[package]]
        assert any(fnmatch(str(file.relative_to(root)), glob) for root, glob in patterns), file
