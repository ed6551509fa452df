"""A learner as a service: systemd hears of it, a reload, a clock that jumps, a pause, in real processes."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from checkpoints import pause_in_force
from daemon.cli import main
from daemon.exits import EX_OK
from daemon.runtime.watchdog import SOCKET, WATCHDOG_USEC
from streams.open import open_sink
from streams.source import OutRecord
from tests.harness.kill.events import NOT_AN_EVENT, Feeder, event_bytes
from tests.harness.kill.learners import Learner, Process, catch_up, wait_until
from tests.harness.kill.site import DENSE, Site, make_site

pytestmark = pytest.mark.kill


def feed(site: Site, values: list[bytes]) -> None:
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(value) for value in values])


def events(count: int, first: int = 2) -> list[bytes]:
    rng = np.random.default_rng(first)
    return [event_bytes(rng, first + n, sparse=False) for n in range(count)]


@contextmanager
def manager(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's end of the socket, named to all that is started."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(folder / "notify"))
        bound.settimeout(60)
        monkeypatch.setenv(SOCKET, str(folder / "notify"))
        monkeypatch.setenv(WATCHDOG_USEC, "2000000")
        yield bound


def hears(bound: socket.socket, wanted: str) -> str:
    """Listens until a message has `wanted`; the message."""
    while wanted not in (message := bound.recv(4096).decode()):
        pass
    return message


def test_systemd_hears_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(tmp_path, every="1h", case=DENSE)
    feed(site, events(200))
    with manager(tmp_path, monkeypatch) as bound, Process(site, real=True) as learner:
        hears(bound, "READY=1")
        hears(bound, "WATCHDOG=1")
        site.config.write_text(site.config.read_text().replace("C = 0.1", "C = 0.3"))
        learner.signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in hears(bound, "RELOADING=1")
        hears(bound, "READY=1")
        wait_until(lambda: '"keys": ["learner.C"]' in learner.said(), learner)
        learner.signal(signal.SIGTERM)
        hears(bound, "STOPPING=1")
        assert learner.wait() == EX_OK, learner.said()


def test_up_speaks_for_its_roles_and_hands_a_reload_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(tmp_path, every="1h", case=DENSE)
    feed(site, events(200))
    site.config.write_text(
        site.config.read_text().replace(
            "learn_port = 0", "learn_port = 0\nvalidate_port = 0\nserve_port = 0\nup_port = 0"
        )
    )
    with manager(tmp_path, monkeypatch) as bound, Up(site) as up:
        hears(bound, "READY=1")
        wait_until(lambda: up.said().count('"url"') == 4, up)  # all roles, and up itself, hear signals now
        up.signal(signal.SIGHUP)
        hears(bound, "RELOADING=1")
        hears(bound, "READY=1")
        wait_until(lambda: up.said().count('"event": "reloaded"') == 2, up)
        up.signal(signal.SIGTERM)
        hears(bound, "STOPPING=1")
        assert up.wait() == EX_OK, up.said()


class Up(Process):
    """`tripletd up`."""

    command = "up"


def test_a_clock_that_jumps_changes_nothing_but_timestamps(tmp_path: Path) -> None:
    """Forward by a day and back by two: versions go on to come as often, and follow their numbers."""
    site = make_site(tmp_path, every="50ms", poll_records=20, case=DENSE)
    with (
        Feeder(site, 4),
        Process(site, program=("-m", "tests.harness.kill.patched", "jumping_clock")) as learner,
    ):
        wait_until(lambda: len(site.versions.versions()) > 40, learner)
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    versions = [site.versions.manifest(number) for number in site.versions.versions()]
    written = [version.created for version in versions]
    assert len({moment[:10] for moment in written}) >= 3  # on three days, not in their order
    assert written != sorted(written)
    passed = [version.counters.get("records", 0) for version in versions]
    assert passed == sorted(passed)
    resumed, whole = catch_up(site), catch_up(site.again("whole", every="1h"))
    assert (resumed.state_hash, resumed.counters) == (whole.state_hash, whole.counters)


def test_a_pause_for_poison_outlasts_the_process_and_ends_with_resume(tmp_path: Path) -> None:
    site = make_site(tmp_path, every="1h", poll_records=10, case=DENSE)
    feed(site, [*events(200), *[NOT_AN_EVENT] * 80])
    window = ("--set", "stream.pause_poison_window=100")
    with Process(site, *window) as learner:
        wait_until(lambda: is_paused(learner), learner)
        stands = site.newest()
        assert stands.positions[0].next_offset < 280
        assert pause_in_force(site.ledger.entries()) is not None
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    feed(site, events(50, first=300))
    with Process(site, *window) as learner:
        wait_until(lambda: is_paused(learner), learner)
        assert site.newest() == stands
        assert main(["resume", "--config", str(site.config)]) == EX_OK
        wait_until(lambda: learner.get("readyz")[0] == 200, learner)
        wait_until(lambda: learner.metric("tripletd_lag_events") == 0, learner)
        assert learner.metric("tripletd_paused") == 0
        learner.signal(signal.SIGTERM)
        assert learner.wait() == EX_OK, learner.said()
    assert site.newest().counters["records"] == 330
    assert catch_up(site).state_hash == catch_up(site.again("whole", every="1h")).state_hash


def is_paused(learner: Learner) -> bool:
    """Unready with the reason, alive, and the metric says so."""
    status, reason = learner.get("readyz")
    if not reason.startswith("paused: "):
        return False
    assert status == 503
    assert "of the last 100 records are dead letters" in reason
    return learner.get("livez")[0] == 200 and learner.metric("tripletd_paused") == 1
