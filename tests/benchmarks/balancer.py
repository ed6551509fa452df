"""Two servers behind HAProxy, by the file of deploy/balancer: restarts, kills and a server that hangs.

Versions are in a bucket (a server of S3's protocol on loopback), each server has a folder of states of its
own, and one of them looks for versions only every 700 ms, so that it lags. A version is made every second.
`CLIENTS` ask all the time, over connections that are kept and without asking anything twice; three of four
name the state that they have seen. Phases: nothing happens; both servers are restarted one after the other,
`ROUNDS` times; one is killed and started again, `ROUNDS` times; one hangs (SIGSTOP) until the balancer has
taken it out, and moves again.

`balancer_failed_questions`: what was not answered with 200, of all phases; 0 is wanted. In the detail by
phase: questions, failures, how often a client that names states went back (0 is wanted), how often one that
does not, and how late answers were.

    python -m tests.benchmarks.balancer [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from tests.benchmarks.harness import Figure
from tests.daemon.serve.test_balancer import LAGS, QUESTION, Hosts, meanwhile
from tests.harness.balancer import Clients, balancer
from tests.harness.s3_server import s3_server

CLIENTS, ROUNDS, QUIET_S = 8, 3, 5.0
PINNED = (True, True, True, False) * (CLIENTS // 4)


def figures(rounds: int = ROUNDS) -> list[Figure]:
    """The one figure."""
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as s3:
        (Path(folder) / "hosts").mkdir()
        hosts = Hosts(Path(folder) / "hosts", s3, "balancer")
        said = (Path(folder) / "said").open("w")
        try:
            with said, redirect_stdout(said), redirect_stderr(said):
                hosts.learn_more()
                for name in LAGS:
                    hosts.start_host(name)
                with balancer(hosts.folder, hosts.address("one"), hosts.address("two")) as url:
                    detail = _phases(hosts, url, rounds)
        finally:
            hosts.end()
    failed = sum(value for name, value in detail.items() if name.endswith("_failed"))
    return [Figure("balancer_failed_questions", failed, "questions", "all that were asked", rounds, detail)]


def _phases(hosts: Hosts, url: str, rounds: int) -> dict[str, float]:
    log = hosts.folder / "haproxy.log"

    def told(what: str) -> int:
        return log.read_text().count(what)

    def quiet() -> None:
        end = time.monotonic() + QUIET_S
        meanwhile(hosts, lambda: time.monotonic() > end)

    def restart() -> None:
        for name in LAGS:
            role = hosts.roles[name]
            role.process.send_signal(signal.SIGTERM)
            meanwhile(hosts, lambda process=role.process: process.poll() is not None)
            hosts.start_host(name)
            meanwhile(hosts, lambda name=name: hosts.answered(name) > 30)

    def kill() -> None:
        downs = told("one is DOWN")
        hosts.roles["one"].process.kill()
        hosts.roles["one"].process.wait()
        meanwhile(hosts, lambda: told("one is DOWN") > downs)
        hosts.start_host("one")
        meanwhile(hosts, lambda: hosts.answered("one") > 30)

    def hang() -> None:
        downs, process = told("one is DOWN"), hosts.roles["one"].process
        process.send_signal(signal.SIGSTOP)
        meanwhile(hosts, lambda: told("one is DOWN") > downs)
        quiet()
        process.send_signal(signal.SIGCONT)
        quiet()

    found: dict[str, float] = {}
    turns: tuple[tuple[str, Callable[[], None], int], ...] = (
        ("quiet", quiet, 1),
        ("restart", restart, rounds),
        ("kill", kill, rounds),
        ("hang", hang, 1),
    )
    for name, happens, times in turns:
        with _asked(url, name, found):
            for _ in range(times):
                happens()
    return found


@contextmanager
def _asked(url: str, name: str, found: dict[str, float]) -> Iterator[None]:
    """What clients got while the block ran, under names that begin with that of the phase."""
    clients = Clients(url, QUESTION, PINNED)
    with clients.asking():
        yield
    seconds = np.array([took for one in clients.each for took in one.seconds])
    found[f"{name}_asked"] = sum(one.statuses.total() for one in clients.each)
    found[f"{name}_failed"] = sum(len(one.failed) for one in clients.each)
    found[f"{name}_went_back"] = sum(one.went_back for one in clients.those(pinned=True))
    found[f"{name}_went_back_without"] = sum(one.went_back for one in clients.those(pinned=False))
    for point, share in (("p50", 50), ("p99", 99), ("max", 100)):
        found[f"{name}_{point}_ms"] = round(1e3 * float(np.percentile(seconds, share)), 1)


def main() -> int:
    """Print the figure as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    given = options.parse_args()
    for figure in figures(given.rounds):
        sys.stdout.write(json.dumps({figure.name: figure.value, **figure.detail}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
