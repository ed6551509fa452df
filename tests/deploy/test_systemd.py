"""The units are what systemd takes, what the roles need, and closed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.config.services import StreamConfig
from daemon.up.restarts import REFUSED, RestartPolicy
from daemon.up.supervisor import GRACE_S
from tests.deploy.programs import DEPLOY, OPEN_S, program
from tests.harness.balancer import FALL, INTER_S

UNITS = DEPLOY / "systemd"
ROLES = ("learn", "validate", "serve")
SHARDS = ("tripletd-shard@.service", "tripletd-merge.service")
SERVICES = ("tripletd.service", *(f"tripletd-{role}@.service" for role in ROLES), *SHARDS)
NEWEST_TYPE_SINCE = 253
RESTART_STEPS_SINCE = 254
MOST_EXPOSED = 2.0
"""Of 10, as `systemd-analyze security` counts."""


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program("systemd-analyze"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def version() -> int:
    return int(said("--version").stdout.split()[1])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The units with a program that is there; for an older systemd with what their comment says of it."""
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/opt/tripletd/bin/tripletd", str(Path(sys.executable)))
        if version() < NEWEST_TYPE_SINCE and unit.suffix == ".service":
            older = "Type=notify\nExecReload=/bin/kill -HUP $MAINPID"
            assert older.replace("\n", " and ") in " ".join(text.replace("#", "").split())
            text = text.replace("Type=notify-reload", older)
        if version() < RESTART_STEPS_SINCE and unit.suffix == ".service":
            assert "RestartSec=5 alone" in text
            text = re.sub(r"RestartSec=1\nRestartSteps=.*\nRestartMaxDelaySec=.*\n", "RestartSec=5\n", text)
        (tmp_path / unit.name).write_text(text)
        if "@" in unit.name:
            shutil.copy(tmp_path / unit.name, tmp_path / unit.name.replace("@", "@photos"))
    return tmp_path


@pytest.mark.parametrize("name", ["tripletd@.target", *SERVICES])
def test_systemd_takes_every_unit(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", f"{here}:")
    verified = said("verify", "--man=no", str(here / name.replace("@", "@photos")))
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_a_unit_with_a_mistake_would_be_told(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    unit = here / name.replace("@", "@photos")
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=strictly"))
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", f"{here}:")
    assert "strictly" in said("verify", "--man=no", str(unit)).stderr


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_closed(here: Path, name: str) -> None:
    unit = here / name.replace("@", "@photos")
    told = said("security", "--offline=true", "--no-pager", str(unit)).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert float(exposure) <= MOST_EXPOSED


@pytest.mark.parametrize("name", SERVICES)
def test_services_fit_the_roles(name: str) -> None:
    found = dict(re.findall(r"(?m)^(\w+)=(.*)$", (UNITS / name).read_text()))
    assert {int(code) for code in found["RestartPreventExitStatus"].split()} == REFUSED
    assert found["Restart"] == "on-failure"
    assert found["StartLimitIntervalSec"] == "0", "everything else is tried again for ever, as up does"
    assert float(found["RestartMaxDelaySec"]) == RestartPolicy().max_delay_s
    assert 0 < float(found["RestartSec"]) < float(found["RestartMaxDelaySec"])
    stuck = StreamConfig.model_validate({}).stuck_after
    assert float(found["WatchdogSec"]) >= 2 * stuck  # the role's own watchdog is the first to act
    assert float(found["TimeoutStartSec"]) >= 600  # a first start compiles, perhaps on a busy machine
    role = name.removeprefix("tripletd-").removesuffix(".service").removesuffix("@")
    instance = "%i" if role in ROLES else "tripletd"
    of_shards = {"shard": "learn --shard %i --set http.learn_port=911%i", "merge": "merge"}
    command = role if role in ROLES else of_shards.get(role, "up")
    assert found["ExecStart"].endswith(f"tripletd {command} --config /etc/tripletd/{instance}.toml")
    assert "MemoryDenyWriteExecute" not in found  # numba compiles


def test_a_stop_is_given_the_time_that_draining_takes() -> None:
    text = (UNITS / "tripletd-serve@.service").read_text()
    assert text.index("EnvironmentFile=") < text.index("Environment=TRIPLETD_SERVE__DRAIN")
    (given,) = re.findall(r"(?m)^Environment=TRIPLETD_SERVE__DRAIN=(.*)$", text)
    (seconds,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", text)
    drain = load_config(None, environ={"TRIPLETD_SERVE__DRAIN": given}).serve.drain
    assert drain is not None
    assert drain >= INTER_S * FALL + 1  # the balancer of deploy/ has noticed
    assert drain + 2 * OPEN_S <= float(seconds)
    text = (UNITS / "tripletd.service").read_text()
    (seconds,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", text)
    (longest,) = re.findall(r"a drain of more than (\d+) s needs a longer timeout", text)
    assert GRACE_S + float(longest) < float(seconds)  # `up` has killed what does not end before systemd does


def test_the_target_wants_every_role() -> None:
    text = (UNITS / "tripletd@.target").read_text()
    assert all(f"tripletd-{role}@%i.service" in text for role in ROLES)
    for role in ROLES:
        assert "PartOf=tripletd@%i.target" in (UNITS / f"tripletd-{role}@.service").read_text()


def test_shards_have_the_ports_that_up_gives_them() -> None:
    text = (UNITS / "tripletd-shard@.service").read_text()
    (first,) = re.findall(r"http\.learn_port=(\d+)%i", text)
    assert int(f"{first}0") == load_config(None, environ={}).http.shard_ports
