"""How far apart two servers are that follow the steps of one learner, `latest`, each by itself.

`RATE` events a second come in at a steady pace; the learner writes a version every 10 s meanwhile. Both
servers are asked for their state again and again, every few milliseconds, each by a thread of its own. Of
each state that both have reached it is known when each had it first, so that

- `skew_p99_ms` is the 99th percentile of how much later one server had a state than the other,
- `records_p50`, `records_p99` are those of the difference in records at the same moment, every 5 ms,
- `back_share` is the share of those moments at which the one asked second, 5 ms later, was behind what the
  first one had answered: how often a client without `X-Tripletd-At-Least` that alternates would go back.

    python -m tests.benchmarks.skew [--rate 2000] [--seconds 30] [--dim 384]
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from streams.open import ensure_topic
from streams.source import parse_address
from tests.benchmarks.harness import Figure
from tests.benchmarks.places import Place, environment, free_port

DIM, ITEMS, RATE, SECONDS = 384, 5_000, 2_000.0, 30.0
EVERY_S, WARM_S = 0.004, 5.0
GRID_S = 0.005
MORE = '[checkpoints]\nevery = "10s"\nkeep = 2\n[serve]\naliases = ["latest"]\n'


def figures(rate: float = RATE, seconds: float = SECONDS, dim: int = DIM) -> list[Figure]:
    """The one figure."""
    place = Place.make("skew", "dense", dim, ITEMS, more=MORE)
    address = parse_address(f"log:{place.folder / 'clicks.log'}")
    ensure_topic(address, 1)
    two = free_port()
    try:
        with ExitStack() as stack:
            place.learn()  # version 0
            stack.enter_context(place.running("serve"))
            ports = dict(place.ports)
            place.ports["serve"] = two
            stack.enter_context(place.running("serve", "--set", f"http.serve_port={two}"))
            stack.enter_context(place.running("learn"))
            words = [sys.executable, "-m", "tests.benchmarks.feeder", f"log:{place.folder / 'clicks.log'}"]
            words += [f"--rate={rate}", f"--seconds={WARM_S + seconds}", f"--items={ITEMS}"]
            out = place.folder / "due.npy"
            feeder = subprocess.Popen([*words, f"--out={out}"], env=environment())
            stack.callback(feeder.wait)
            stack.callback(feeder.terminate)
            time.sleep(WARM_S)
            seen = _watched([ports["serve"], two], seconds)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    detail = {"rate": rate, **apart(*seen)}
    return [Figure("servers_skew_p99_ms", detail["skew_p99_ms"], "ms", "the other server", 1, detail)]


States = tuple[NDArray[np.float64], NDArray[np.int64]]
"""When a server was asked, ascending seconds [n], and the records of its state [n]."""


def apart(one: States, two: States) -> dict[str, float]:
    """How far apart they were; records of each never fall."""
    (_, first), (_, second) = one, two
    levels = np.unique(np.concatenate([first, second]))
    levels = levels[(levels > max(first[0], second[0])) & (levels <= min(first[-1], second[-1]))]
    began = [at[np.searchsorted(had, levels)] for at, had in (one, two)]
    late = 1e3 * np.abs(began[0] - began[1])
    grid = np.arange(max(one[0][0], two[0][0]), min(one[0][-1], two[0][-1]) - GRID_S, GRID_S)
    then = [had[np.searchsorted(at, grid, "right") - 1] for at, had in (one, two)]
    later = [had[np.searchsorted(at, grid + GRID_S, "right") - 1] for at, had in (one, two)]
    back = np.concatenate([later[1] < then[0], later[0] < then[1]])
    records = np.abs(then[0] - then[1])
    return {
        "skew_p50_ms": round(float(np.percentile(late, 50)), 1),
        "skew_p99_ms": round(float(np.percentile(late, 99)), 1),
        "skew_max_ms": round(float(late.max()), 1),
        "records_p50": float(np.percentile(records, 50)),
        "records_p99": float(np.percentile(records, 99)),
        "records_max": float(records.max()),
        "same_share": round(float((records == 0).mean()), 3),
        "back_share": round(float(back.mean()), 3),
        "states": float(len(levels)),
    }


def _watched(ports: list[int], seconds: float) -> list[States]:
    """What each server answered with, by when; both are asked at once."""
    found: list[States] = []
    lock, until = threading.Lock(), time.perf_counter() + seconds

    def watch(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        at, had = list[float](), list[int]()
        while time.perf_counter() < until:
            asked = time.perf_counter()
            connection.request("GET", "/v1/similar?id=o1&k=1")
            records = json.loads(connection.getresponse().read())["records"]
            at.append((asked + time.perf_counter()) / 2)
            had.append(records)
            time.sleep(max(0.0, EVERY_S - (time.perf_counter() - asked)))
        connection.close()
        with lock:
            found.append((np.array(at), np.maximum.accumulate(np.array(had))))

    threads = [threading.Thread(target=watch, args=(port,)) for port in ports]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found


def main() -> int:
    """Print the figure as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rate", type=float, default=RATE)
    options.add_argument("--seconds", type=float, default=SECONDS)
    options.add_argument("--dim", type=int, default=DIM)
    given = options.parse_args()
    for figure in figures(given.rate, given.seconds, given.dim):
        sys.stdout.write(json.dumps({figure.name: figure.value, **figure.detail}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
