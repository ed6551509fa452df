"""Everything that can happen to brokers, as one experiment: for `make test` and for long runs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from streams.source import KafkaSettings
from tests.harness.kafka import faults
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.faults import Fault
from tests.harness.kafka.learning import Learning
from tests.harness.kafka.onlookers import Reader
from tests.harness.kafka.scene import Row, Scene
from tests.harness.kill.site import Site, make_site

CLIENTS = ("kafka-python", "confluent")


def all_faults(silence_s: float) -> Mapping[str, Fault]:
    """Every fault by name."""
    return {
        "leader killed": faults.killed_leader,
        "leader frozen": faults.frozen_leader,
        "leader moved": faults.moved_leader,
        "rolling restart": faults.rolling_restart,
        f"silence of {silence_s:g} s": faults.silence(silence_s),
    }


def site_on(cluster: Cluster, folder: Path) -> Site:
    """A learner's site on a topic of its own, one partition on every node."""
    return make_site(folder, cluster.address(fresh_topic()), every="1s")


def readers_of(site: Site) -> list[Reader]:
    """One reader per client."""
    return [Reader(replace(site.address, kafka=KafkaSettings(client=name)), name) for name in CLIENTS]


def endure(folder: Path, runs: int, silence_s: float = 60.0, seed: int = 1) -> list[Row]:
    """Every fault `runs` times in random order, on three nodes of its own, under both clients and a learner.

    Raises AssertionError for whatever goes wrong besides being lost or repeated.
    """
    with Cluster(3) as cluster:
        site = site_on(cluster, folder)
        with Scene(cluster, site.address, [Learning(site), *readers_of(site)], seed) as scene:
            strikes = [strike for strike in all_faults(silence_s).items() for _ in range(runs)]
            random.Random(seed).shuffle(strikes)
            for name, fault in strikes:
                scene.strike(name, fault)
        return scene.rows()
