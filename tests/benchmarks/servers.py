"""Two processes of `serve` on one port beside one process: questions a second, exact search.

100,000 objects of 384 numbers, k = 10. 16 connections each send a batch of 16 questions by id, one batch
after the answer of the last, so that every process is busy. The one process is pinned to core 0; of the two,
each to a core of its own. The clients are threads of this process, which nothing pins: they read answers
without parsing them, and `client_share` is what they take of a core while two processes are asked. Both are
asked in turn for `WINDOW_S`, the other one idle meanwhile.

`two_servers_vs_one`: the median of the ratios.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from streams.open import ensure_topic
from streams.source import parse_address
from tests.benchmarks.harness import Figure, paired_ratio
from tests.benchmarks.places import Place, free_port

DIM, ITEMS, K = 384, 100_000, 10
CONNECTIONS, BATCH = 16, 16
WINDOW_S, REPEATS, PATIENCE_S, REFUSED_S = 4.0, 5, 120.0, 0.1


def figures() -> list[Figure]:
    """The one figure."""
    place = Place.make("servers", "dense", DIM, ITEMS, more='[serve]\naliases = ["latest"]\nann = "off"\n')
    address = parse_address(f"log:{place.folder / 'clicks.log'}")
    ensure_topic(address, 1)
    shared = free_port()
    two = ("--processes", "2", "--set", f"http.serve_port={shared}", "--set", "http.process_ports=0")
    bodies = [_batch(number) for number in range(CONNECTIONS)]
    client_s: list[float] = []
    try:
        place.learn()
        with place.running("serve") as single:
            _pin(single.pid, 0)
            with place.running("serve", *two):
                for number, pid in sorted(_processes(place.folder / "serve.log").items()):
                    _pin(pid, number)

                def of_two() -> float:
                    began = time.process_time()
                    rate = _rate(shared, bodies)
                    client_s.append(time.process_time() - began)
                    return rate

                ratio, rates, ones = paired_ratio(
                    of_two, lambda: _rate(place.ports["serve"], bodies), REPEATS
                )
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    middle = REPEATS // 2
    detail = {
        "two_per_second_median": round(sorted(rates)[middle], 1),
        "one_per_second_median": round(sorted(ones)[middle], 1),
        "ratio_min": round(min(x / y for x, y in zip(rates, ones, strict=True)), 3),
        "ratio_max": round(max(x / y for x, y in zip(rates, ones, strict=True)), 3),
        "client_share": round(sorted(client_s)[middle] / WINDOW_S, 3),
    }
    return [Figure("two_servers_vs_one", round(ratio, 3), "ratio", "one process", REPEATS, detail)]


def _batch(number: int) -> bytes:
    queries = [{"id": f"o{number * BATCH + place}", "k": K} for place in range(BATCH)]
    return json.dumps({"queries": queries}).encode()


def _processes(log: Path) -> dict[int, int]:
    """Their ids by number, when all are ready."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        ready = {line["role"] for line in lines if line["event"] == "ready"}
        if {"serve-0", "serve-1"} <= ready:
            found = [line for line in lines if line["event"] == "started"]
            return {int(str(line["role"]).rpartition("-")[2]): int(line["pid"]) for line in found}
        time.sleep(0.05)
    raise TimeoutError(f"not ready: {log.read_text()[-2000:]}")


def _pin(pid: int, core: int) -> None:
    """Every thread of a process to one core; those that it starts later inherit it."""
    cores = sorted(os.sched_getaffinity(0))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[core % len(cores)]})


def _rate(port: int, bodies: Sequence[bytes]) -> float:
    return closed_rate(port, "/v1/similar/batch", bodies, BATCH, WINDOW_S)


def closed_rate(port: int, path: str, bodies: Sequence[bytes], each: int, seconds: float) -> float:
    """Questions answered a second by as many connections as there are bodies, of `each` questions; a
    connection asks again when it is answered, and after `REFUSED_S` when it is refused."""
    answered, until = [0] * len(bodies), time.perf_counter() + seconds

    def ask(place: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.perf_counter() < until:
            connection.request("POST", path, bodies[place], {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status == 503:  # on a machine that is busy with other work
                time.sleep(REFUSED_S)
                continue
            assert answer.status == 200
            answered[place] += each
        connection.close()

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(bodies))]
    began = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sum(answered) / (time.perf_counter() - began)
