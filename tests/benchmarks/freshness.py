"""From a click to the first answer that used it: feeder, learner, server and asker as real processes.

Every answer tells how many records its model holds, so which answer was the first to use an event is known
from outside, to the microsecond, and needs no metric: the events of one partition are learned in their order.
The age counts from the time at which the event was due. The server's own histogram is shown beside it, and
where the oldest hundredth of the events waited: until they were in the log (the producer), from there until
their steps were (the learner), from there until an answer used them (the server, and whoever asks). The log
says when each record came, so that no process is asked. `learn_ran` and `serve_ran` are the shares of the
time in which the busiest thread of each ran, `learn_waited` and `serve_waited` those in which it could have
run and no core was free: where they are large, the ages are the machine's.

`freshness_p50_seconds`, `freshness_p99_seconds`: the worse of d = 1,000 dense and d = 10,000 sparse, each on
the embedded log and on a real Kafka, alias `latest`, with versions written and forms made anew meanwhile.

    python -m tests.benchmarks.freshness --cores 1 --rate 2000 --dim 768
    python -m tests.benchmarks.freshness --cores 2 --rate 8000 --dim 768

put all roles, `validate` too, onto so many cores; feeder, asker and broker go where the system puts them.
`learn_used`, `serve_used` and `validate_used` are what all threads of each took, in cores; `load` is what the
machine had to do when the run began.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daemon.look.live import Distribution, ServeStatus
from streams.open import create_topic, open_source
from streams.partitions import TopicLimits
from streams.source import Address, parse_address
from streams.steps.codec import Joiner
from streams.steps.segment import RankOneSteps, Triplets
from tests.benchmarks.harness import Figure
from tests.benchmarks.load import Asked, Load, beside, summary
from tests.benchmarks.places import Kind, Place, busiest, cores_of, environment, pin, ran
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.missing import KafkaMissing
from tests.harness.topics import create_topics

RATE = 2_000.0
ASKED_RATE = 50.0
WARM_S, MEASURED_S = 15.0, 75.0
MORE = """
[checkpoints]
every = "30s"
keep = 2
[serve]
aliases = ["latest"]
"""
Distributions = tuple[Distribution, Distribution]


@dataclass(frozen=True)
class Case:
    """One combination: how objects look, and what the stream is."""

    kind: Kind
    dim: int
    items: int
    broker: bool

    @property
    def name(self) -> str:
        """Short, for details and folders."""
        return f"{self.kind}_{'kafka' if self.broker else 'log'}"


SHAPES: tuple[tuple[Kind, int, int], ...] = (("dense", 1_000, 10_000), ("sparse", 10_000, 20_000))
CASES = tuple(Case(*shape, broker) for broker in (False, True) for shape in SHAPES)


def figures(cases: Sequence[Case] = CASES, rate: float = RATE, cores: int = 0) -> list[Figure]:
    """p50 and p99, the worst of the cases that can run here."""
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        try:
            found[case.name] = measure(case, rate, cores)
        except KafkaMissing as problem:
            sys.stderr.write(f"{case.name} is left out: {problem}\n")
        sys.stderr.write(f"{case.name}: {json.dumps(found.get(case.name))}\n")
    shapes = sorted({f"d = {case.dim:,} {case.kind} ({case.items:,} objects)" for case in cases})
    against = (
        f"{rate:,.0f} events/s, {ASKED_RATE:.0f} questions/s, alias latest; the worst of {', '.join(found)}; "
        f"{', '.join(shapes)}, by id; one host"
    )
    detail = {f"{case}_{name}": value for case, values in found.items() for name, value in values.items()}
    return [
        Figure(
            f"freshness_{name}_seconds",
            max(one[name] for one in found.values()),
            "seconds",
            against,
            len(found),
            detail,
        )
        for name in ("p50", "p99")
    ]


def measure(case: Case, rate: float = RATE, cores: int = 0) -> dict[str, float]:
    """Run one case; quantiles of age in seconds and what else is worth knowing. cores: those that all roles
    share, the first of the machine; 0 runs `learn` and `serve` wherever they are put."""
    load = os.getloadavg()[0]
    with stream_of(case) as address:
        stream = f'address = "{address}"'
        if case.broker:
            stream += '\n[stream.kafka]\nclient = "confluent"'
        place = Place.make(f"freshness-{case.name}", case.kind, case.dim, case.items, stream, MORE)
        if case.broker:
            _make_topics(address)
        stream_address = address if case.broker else f"log:{place.folder / 'clicks.log'}"
        with ExitStack() as running:
            names = ("learn", "serve", "validate") if cores else ("learn", "serve")
            roles = {name: running.enter_context(place.running(name)).pid for name in names}
            for pid in roles.values() if cores else ():
                pin(pid, range(cores))
            due, asked, pages, shares = _run(place, stream_address, rate, roles)
            fallbacks = place.number("serve", "tripletd_step_log_fallbacks_total")
        waited = where_oldest_waited(parse_address(stream_address), due, first_answers(asked, len(due)))
        shutil.rmtree(place.folder, ignore_errors=True)
    return told(due, asked, pages) | waited | shares | {"fallbacks": fallbacks, "load": load}


def told(due: NDArray[np.float64], asked: list[Asked], pages: Distributions) -> dict[str, float]:
    """The quantiles over the events that became due in the measured time."""
    answered = first_answers(asked, len(due))
    measured = (due >= due[0] + WARM_S) & (due < due[0] + WARM_S + MEASURED_S)
    ages = (answered - due)[measured]
    before, after = pages
    load = summary(asked)
    quantiles = {
        name: float(np.quantile(ages, q, method="higher"))  # inf for an event that was never answered
        for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }
    own = {
        f"own_{name}": after.since(before).quantile(q) or math.nan
        for name, q in (("p50", 0.5), ("p99", 0.99))
    }
    more = {"failed": float(load["failed"]), "answer_p99_ms": load["p99_ms"], "events": float(len(ages))}
    more["unanswered"] = float(np.isinf(ages).sum())
    versions = {"versions": float(len({one["base"] for one in _answers(asked)}))}
    return {name: round(value, 4) for name, value in {**quantiles, **own, **more, **versions}.items()}


OLDEST = 0.01
"""The share of the events whose waiting is taken apart."""


def where_oldest_waited(
    address: Address, due: NDArray[np.float64], answered: NDArray[np.float64]
) -> dict[str, float]:
    """Of the oldest measured, mean seconds: until in the log, until their steps were, until answered."""
    arrived = np.array([came for came, _ in _records(address)])[: len(due)] / 1000
    joiner, told = Joiner(), np.full(len(due), np.nan)
    held = 0
    for came, value in _records(address.steps):
        segment = joiner.feed(value)
        if segment is not None and isinstance(segment.body, RankOneSteps | Triplets):
            told[held : segment.body.last] = came / 1000
            held = max(held, segment.body.last)
    at = (due >= due[0] + WARM_S) & (due < due[0] + WARM_S + MEASURED_S) & ~np.isnan(told)
    ages = (answered - due)[at]
    oldest = np.flatnonzero(at)[ages >= np.quantile(ages, 1 - OLDEST, method="lower")]
    parts = {
        "oldest_to_log": arrived - due,
        "oldest_to_steps": told - arrived,
        "oldest_to_answer": answered - told,
    }
    return {name: round(float(np.mean(waits[oldest])), 4) for name, waits in parts.items()}


def _records(address: Address) -> Iterator[tuple[int, bytes | None]]:
    """When each record of partition 0 came, ms, and its value."""
    with closing(open_source(address)) as source:
        source.assign({0: source.bounds()[0][0]})
        while (batch := source.poll(4096, 3.0)) is not None:
            yield from zip(batch.timestamps, batch.values, strict=True)


def first_answers(asked: list[Asked], events: int) -> NDArray[np.float64]:
    """When the first answer that holds event i arrived, Unix seconds, inf for never; i counts from 0."""
    arrived = sorted(
        (one.due + one.seconds, json.loads(one.answer)["records"]) for one in asked if one.status == 200
    )
    found = np.full(events, np.inf)
    held = 0
    for at, records in arrived:
        if records > held:
            found[held:records] = at
            held = records
    return found


def _answers(asked: list[Asked]) -> Iterator[dict[str, int]]:
    return (json.loads(one.answer) for one in asked if one.status == 200)


def _run(
    place: Place, address: str, rate: float, roles: Mapping[str, int]
) -> tuple[NDArray[np.float64], list[Asked], Distributions, dict[str, float]]:
    """When each event was due, every answer, the server's freshness before and after, and what the busiest
    thread of each role (name -> process) had of a core.
    """
    seconds = WARM_S + MEASURED_S
    out = place.folder / "due.npy"
    words = [sys.executable, "-m", "tests.benchmarks.feeder", address]
    options = [f"--rate={rate}", f"--seconds={seconds}", f"--items={place.items}", f"--out={out}"]
    questions = [
        json.dumps({"id": f"o{n}", "k": 10, "alias": "latest"}).encode()
        for n in np.random.default_rng(9).integers(0, place.items, 500)
    ]
    load = Load("127.0.0.1", place.ports["serve"], questions, ASKED_RATE, seconds + 10, connections=8)
    feeder = subprocess.Popen([*words, *options], env=environment())
    try:
        with beside(load) as asking:
            time.sleep(WARM_S)
            before, since = _freshness(place), time.monotonic()
            used = {role: cores_of(pid) for role, pid in roles.items()}
            assert feeder.wait(MEASURED_S + 60) == 0
            elapsed = time.monotonic() - since
            now = {role: cores_of(pid) for role, pid in roles.items()}
            spans = {role: busiest(used[role], now[role]) for role in roles}
        after = _freshness(place)  # once the last of them is in an answer: the oldest come last
    finally:
        feeder.kill()
        feeder.wait()
    cores = {f"{role}_ran": round(busy / elapsed, 3) for role, (busy, _) in spans.items()}
    cores |= {f"{role}_used": round(ran(used[role], now[role]) / elapsed, 3) for role in roles}
    cores |= {f"{role}_waited": round(waited / elapsed, 3) for role, (_, waited) in spans.items()}
    return np.load(out), asking.asked, (before, after), cores


def _freshness(place: Place) -> Distribution:
    status = place.status("serve")
    assert isinstance(status, ServeStatus)
    return status.aliases["latest"].freshness


@contextmanager
def stream_of(case: Case) -> Iterator[str]:
    """The address that the roles get."""
    if not case.broker:
        yield "log:clicks.log"
        return
    with Cluster() as cluster:
        yield cluster.address(f"clicks-{case.name}")


def _make_topics(text: str) -> None:
    address = parse_address(text)
    create_topics(address, 1, TopicLimits())
    create_topic(address.steps, 1, TopicLimits())
    create_topic(address.items, 1, TopicLimits(compacted=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="of cases; all without any")
    parser.add_argument("--rate", type=float, default=RATE, help="events a second")
    parser.add_argument("--cores", type=int, default=0, help="on which all roles run, the first ones")
    parser.add_argument("--dim", type=int, help="of dense rows")
    given = parser.parse_args()
    chosen = [case for case in CASES if not given.names or case.name in given.names]
    if given.dim:
        chosen = [replace(case, dim=given.dim) if case.kind == "dense" else case for case in chosen]
    for figure in figures(chosen, given.rate, given.cores):
        sys.stdout.write(f"{figure.name} {figure.value} {json.dumps(figure.detail, indent=1)}\n")
