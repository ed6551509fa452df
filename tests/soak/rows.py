"""The rows of the summary: every experiment of the crash tests, in its long form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.harness.crowds import crowds
from tests.harness.kafka import broker_faults, scene
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.codec_cases import compressed_batches
from tests.harness.kafka.control import fresh_topic
from tests.harness.kill import buckets as bucket
from tests.harness.kill import up_answers
from tests.harness.kill.brokers import OneNode
from tests.harness.kill.damage import altered_bytes, learning_on
from tests.harness.kill.deaths import Deaths, deaths
from tests.harness.kill.events import Pace
from tests.harness.kill.failing_disk import failing_calls
from tests.harness.kill.forks import Forks
from tests.harness.kill.frozen import frozen_and_succeeded, started_together
from tests.harness.kill.full_disk import full_disk
from tests.harness.kill.joins import kill_joins
from tests.harness.kill.learners import Process
from tests.harness.kill.power_loss import power_lost
from tests.harness.kill.random_kills import Plan, random_kills
from tests.harness.kill.shards import random_kills_of_shards
from tests.harness.kill.site import CASES, DENSE, OTHERS, PROJECTED, SPARSE, SYMMETRIC, Case, embedded
from tests.harness.kill.slow_disk import slow_fsync
from tests.harness.kill.stops import BROKER_DOWN, MOMENTS, Moment, restarts, stops
from tests.harness.kill.tally import Tally
from tests.soak.arguments import Arguments
from tests.soak.long_history import long_history
from tests.soak.steady import all_at_work

MEMORY = "memory"  # a stream in the test's own process
FSYNC_SECONDS = 5.0
FULL_TIMES = 3
KILL_PLANS = 7 + len(OTHERS)
"""Kinds of random kills on each stream; they share the number that is asked for."""


@dataclass(frozen=True)
class Place:
    """Where an experiment is made: its folder, new streams, the server of forks, and how much is asked."""

    folder: Path
    stream_in: Callable[[Path], str]
    forks: Forks
    asked: Arguments


Experiment = Callable[[Place], list[Tally]]


@dataclass(frozen=True)
class Row:
    """One experiment of a group, on a kind of stream."""

    group: str
    stream: str
    make: Experiment


def rows(asked: Arguments) -> Iterator[Row]:
    """What was asked for, in the order of the groups."""
    makers: dict[str, Callable[[Arguments, str], Iterator[Experiment]]] = {
        "kills": _kills,
        "deaths": _deaths,
        "full": lambda asked, stream: iter([_full]),
        "frozen": lambda asked, stream: iter([_frozen]),
        "starts": lambda asked, stream: iter([_starts]),
        "stops": _stops,
        "restarts": lambda asked, stream: iter([_restarts]),
        "answers": _answers,
        "faults": lambda asked, stream: iter([_faults] if stream == "kafka" else []),
        "joins": lambda asked, stream: iter([_joins]),
        "shards": _shards,
        "s3": lambda asked, stream: _buckets(asked) if stream == "log" else iter([]),
        "codecs": lambda asked, stream: iter([_codecs] if stream == "kafka" else []),
    }
    alone: dict[str, list[Experiment]] = {
        "calls": [_calls],
        "power": [partial(_power, case) for case in (SPARSE, DENSE)],
        "slow": [_slow],
        "damage": [_damage],
        "ages": [_ages],
        "crowds": [lambda at: [crowds()]],
        "steady": [lambda at: all_at_work(at.folder, at.asked.steady)],
    }
    for group in asked.only:
        for stream in [MEMORY] if group in alone else asked.streams:
            for experiment in alone.get(group) or makers[group](asked, stream):
                yield Row(group, stream, experiment)


def _kills(asked: Arguments, stream: str) -> Iterator[Experiment]:
    each = -(-asked.kills // (KILL_PLANS * len(asked.streams)))
    plans = [
        Plan(each, SPARSE, poll_records=1, pace=Pace(pause_s=0.03)),  # what polling one by one keeps up with
        Plan(each, DENSE, poll_records=7),
        Plan(each, SYMMETRIC, poll_records=500, every="1h", every_events=97),
        Plan(each, PROJECTED, poll_records=5000),
        Plan(each, SPARSE, poll_records=50, partitions=3),
        Plan(each, DENSE, pace=Pace(again=0.3)),
        *(Plan(each, case, poll_records=50) for case in OTHERS),
    ]
    yield from (partial(_kill, plan) for plan in plans)
    if stream == "kafka":
        yield partial(_kill_broker_too, Plan(each, SPARSE, broker_share=0.5))
    else:
        yield partial(_kill_processes, Plan(each, SPARSE))


def _joins(at: Place) -> list[Tally]:
    return [kill_joins(at.folder, at.stream_in, at.forks, at.asked.kills, at.asked.seed)]


def _buckets(asked: Arguments) -> Iterator[Experiment]:
    """Kills over the kinds of plans, shards, each request, and rivals; each with a server of its own."""
    each, seed = -(-asked.kills // len(bucket.PLANS)), asked.seed
    yield from (
        partial(_in_bucket, partial(bucket.bucket_kills, plan=replace(plan, kills=each), seed=seed))
        for plan in bucket.PLANS
    )
    yield partial(_in_bucket, partial(bucket.sharded_kills, kills=max(3, asked.kills // 4), seed=seed))
    yield partial(_in_bucket, partial(bucket.deaths_at_requests, every=max(1, 480 // asked.kills)))
    yield partial(_in_bucket, partial(bucket.rivals, times=5))


def _in_bucket(make: Callable[..., Tally], at: Place) -> list[Tally]:
    with bucket.buckets(at.folder / "server") as buckets:
        return [make(at.folder / "sites", buckets)]


def _shards(asked: Arguments, stream: str) -> Iterator[Experiment]:
    each = -(-asked.kills // (len(CASES) * len(asked.streams)))
    yield from (partial(_kill_shards, case, each) for case in CASES)


def _kill_shards(case: Case, kills: int, at: Place) -> list[Tally]:
    address = at.stream_in(at.folder)
    return [random_kills_of_shards(at.folder, address, case, kills, at.asked.seed)]


def _kill(plan: Plan, at: Place) -> list[Tally]:
    return [random_kills(at.folder, at.stream_in(at.folder), plan, at.asked.seed, at.forks)]


def _kill_processes(plan: Plan, at: Place) -> list[Tally]:
    tally = random_kills(at.folder, at.stream_in(at.folder), plan, at.asked.seed, Process)
    tally.what += ", as a user starts it"
    return [tally]


def _kill_broker_too(plan: Plan, at: Place) -> list[Tally]:
    with Cluster() as cluster:
        address, broker = cluster.address(fresh_topic()), OneNode(cluster)
        tally = random_kills(at.folder, address, plan, at.asked.seed, at.forks, broker)
    tally.what += ", the broker too"
    return [tally]


def _deaths(asked: Arguments, stream: str) -> Iterator[Experiment]:
    plans = [Deaths(case) for case in CASES] if stream == "log" else []
    for plan in (*plans, Deaths(SYMMETRIC, partitions=3, each=2)):
        yield lambda at, plan=plan: [deaths(at.folder, at.stream_in, at.forks, plan)]


def _calls(at: Place) -> list[Tally]:
    return [failing_calls(at.folder, at.asked.calls, at.asked.seed)]


def _power(case: Case, at: Place) -> list[Tally]:
    lives = max(40, at.asked.looks // 30)
    return [power_lost(at.folder, at.asked.looks, lives, at.asked.seed, case)]


def _slow(at: Place) -> list[Tally]:
    return [slow_fsync(at.folder, 2, FSYNC_SECONDS)]


def _full(at: Place) -> list[Tally]:
    return [full_disk(at.folder, at.stream_in, Process, FULL_TIMES)]


def _damage(at: Place) -> list[Tally]:
    return [altered_bytes(at.folder / "bytes", at.asked.flips, at.asked.seed), learning_on(at.folder / "on")]


def _ages(at: Place) -> list[Tally]:
    return [long_history(at.folder, at.asked.versions)]


def _frozen(at: Place) -> list[Tally]:
    return [frozen_and_succeeded(at.folder, at.stream_in, at.forks)]


def _starts(at: Place) -> list[Tally]:
    return [started_together(at.folder, at.stream_in, at.forks, at.asked.runs)]


def _stops(asked: Arguments, stream: str) -> Iterator[Experiment]:
    yield from (partial(_stop, moment) for moment in MOMENTS)
    if stream == "kafka":
        yield _stop_without_broker


def _stop(moment: Moment, at: Place) -> list[Tally]:
    return [stops(at.folder, at.stream_in, moment, at.asked.runs, at.asked.seed)]


def _stop_without_broker(at: Place) -> list[Tally]:
    with Cluster() as cluster:
        address = cluster.address(fresh_topic())
        asked = at.asked
        return [stops(at.folder, lambda _: address, BROKER_DOWN, asked.runs, asked.seed, OneNode(cluster))]


def _restarts(at: Place) -> list[Tally]:
    return [restarts(at.folder, at.stream_in, at.asked.runs)]


def _faults(at: Place) -> list[Tally]:
    asked = at.asked
    found = broker_faults.endure(at.folder, asked.faults, asked.silence_s, asked.seed)
    return [_as_tally(row) for row in found]


def _answers(asked: Arguments, stream: str) -> Iterator[Experiment]:
    """What `up` answers while a fault strikes its roles; each fault has a shop of its own."""
    if stream == "log":
        for fault in (*up_answers.EMBEDDED, up_answers.broker_away(up_answers.MANY)):
            yield lambda at, fault=fault: [up_answers.endure(up_answers.UpShop(at.folder), fault)]
        yield lambda at: [up_answers.full_disk_at_start(at.folder, up_answers.MANY)]
    else:
        yield _answers_on_kafka
        yield lambda at: [up_answers.dead_broker_at_start(at.folder, up_answers.MANY)]


def _answers_on_kafka(at: Place) -> list[Tally]:
    with Cluster() as cluster:
        return up_answers.all_on_kafka(cluster, at.folder)


def _codecs(at: Place) -> list[Tally]:
    with Cluster() as cluster:
        return [compressed_batches(cluster, client) for client in ("kafka-python", "confluent")]


def _as_tally(row: scene.Row) -> Tally:
    tally = Tally(f"brokers: {row.fault}, {row.onlooker}", tried=row.runs)
    if row.lost or row.repeated:
        tally.bad = [f"lost {row.lost}, repeated {row.repeated}"]
    tally.worst = f"lost {row.lost}, repeated {row.repeated}, longest silence {row.longest_silence_s:.1f} s"
    return tally


def stream_in(stream: str, kafka: Callable[[], Cluster]) -> Callable[[Path], str]:
    """Makes new streams of a kind; `kafka` gives the running cluster that Kafka's rows share."""
    return embedded if stream != "kafka" else lambda _: kafka().address(fresh_topic())
