"""How many requests each role asks of a bucket: at a start, for a version, and while nothing happens.

`python -m tests.benchmarks.bucket_requests`: a real server on loopback, and a proxy that counts, and that
answers 20 ms later where that is asked for.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.harness.kill.learners import Process, wait_until
from tests.harness.kill.site import Site, make_site
from tests.harness.kill.written import Written
from tests.harness.s3_faults import Asked, Fault, S3Proxy, s3_proxy
from tests.harness.s3_server import S3Server, s3_server

LATENCY_S = 0.02
FEW, MANY = 5, 100
"""Versions in the bucket at a start."""
WRITTEN = 30
IDLE_S = 20.0
TIMES = 3
ROLES = ("learn", "validate", "serve")


class Role(Process):
    """A role in a process of its own."""

    def __init__(self, site: Site, role: str, *arguments: str) -> None:
        self.command = role
        super().__init__(site, *arguments)


def main() -> int:
    """Print the figures as JSON."""
    found: dict[str, Any] = {"latency_s": LATENCY_S}
    with (
        tempfile.TemporaryDirectory() as place,
        s3_server(Path(place) / "server") as server,
        s3_proxy(server.url) as proxy,
    ):
        site = a_site(Path(place) / "few", server, proxy, keep=MANY + FEW)
        events = Written(site)
        grow(site, events, FEW)
        found["start"] = {f"{FEW} versions": start(site, events, proxy)}
        grow(site, events, MANY - FEW)
        found["start"][f"{MANY} versions"] = start(site, events, proxy)
        site = a_site(Path(place) / "steady", server, proxy, keep=5)
        found["version"] = versions(site, proxy)
        found["idle_per_s"] = {role: idle(site, proxy, role) for role in ROLES}
    json.dump(found, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


def a_site(folder: Path, server: S3Server, proxy: S3Proxy, keep: int) -> Site:
    """A version every ten events and not by time; no poison among the newest events counts at a start."""
    site = make_site(
        folder, every="1h", every_events=10, keep=keep, place=server.store(folder.name), endpoint=proxy.url
    )
    text = site.config.read_text(encoding="utf-8")
    ports = "learn_port = 0\nvalidate_port = 0\nserve_port = 0"
    text = text.replace("learn_port = 0", ports).replace("[space]\n", "pause_poison_window = 10\n[space]\n")
    site.config.write_text(text, encoding="utf-8")
    return site


def grow(site: Site, events: Written, count: int) -> None:
    """So many versions more."""
    for _ in range(count):
        events.more(10)
        learned(site)


def learned(site: Site) -> None:
    """Learn what there is."""
    with Role(site, "learn", "--exit-when-caught-up") as learner:
        assert learner.wait() == 0, learner.said()


def start(site: Site, events: Written, proxy: S3Proxy) -> dict[str, Any]:
    """A learner that starts with nothing to learn, and leaves: requests by kind, and seconds with the answers
    at once and late: medians.
    """
    found: dict[str, Any] = {}
    for name, delay_s in (("seconds", 0.0), ("seconds_with_latency", LATENCY_S)):
        took = []
        for _ in range(TIMES):
            grow(site, events, 1)  # the newest number is a version's, not a claim's
            proxy.add(Fault(lambda asked: True, times=10**9, delay_s=delay_s))
            proxy.asked.clear()
            began = time.perf_counter()
            learned(site)
            took.append(time.perf_counter() - began)
            proxy.clear()
        found[name] = round(statistics.median(took), 2)
    return {"requests": kinds(proxy.asked), **found}


def versions(site: Site, proxy: S3Proxy) -> dict[str, Any]:
    """Requests of a learner for each version that it writes, once old ones go; also without what is asked
    each second.
    """
    events = Written(site)
    with Role(site, "learn") as learner:

        def write(count: int) -> None:
            for _ in range(count):
                before = max(site.versions.versions(), default=-1)
                events.more(10)
                wait_until(lambda before=before: max(site.versions.versions(), default=-1) > before, learner)
                time.sleep(0.3)  # it is tidied up after each

        write(10)
        time.sleep(1.0)
        proxy.asked.clear()
        began = time.monotonic()
        write(WRITTEN)
        time.sleep(1.0)
        seconds, asked = time.monotonic() - began, list(proxy.asked)
    each_second = idle(site, proxy, "learn")["all"]
    return {
        "requests": {name: round(count / WRITTEN, 1) for name, count in kinds(asked).items()},
        "without_those_of_each_second": round((len(asked) - each_second * seconds) / WRITTEN, 1),
    }


def idle(site: Site, proxy: S3Proxy, role: str) -> dict[str, float]:
    """Requests a second of a role that has nothing to do."""
    with Role(site, role) as running:
        wait_until(lambda: '"url"' in running.said(), running)
        time.sleep(5.0)
        proxy.asked.clear()
        time.sleep(IDLE_S)
        return {name: round(count / IDLE_S, 2) for name, count in kinds(proxy.asked).items()}


def kinds(asked: list[Asked]) -> dict[str, int]:
    """How many of each kind, and of all."""
    found = Counter("LIST" if one.lists else one.method for one in asked)
    return {**dict(sorted(found.items())), "all": len(asked)}


if __name__ == "__main__":
    sys.exit(main())
