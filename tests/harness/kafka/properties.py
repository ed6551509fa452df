"""The configuration of one node: small, quick to start, quick to notice that another node is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
INTERNAL = ("share.coordinator.state.topic", "transaction.state.log")


@dataclass(frozen=True)
class Listener:
    """One door of a broker: its name, its security protocol and what else it needs to be told.

    Clients that knock are sent on to `advertised` (`host:port`), by default to this very door.
    """

    name: str
    protocol: str
    settings: Mapping[str, str] = field(default_factory=dict)
    advertised: str | None = None


PLAIN = Listener("PLAINTEXT", "PLAINTEXT")
"""The door that every node has: between nodes, and for the tests' own administration."""


@dataclass(frozen=True)
class Ports:
    """The ports of one node: the controller's, and one per listener by name."""

    controller: int
    listeners: Mapping[str, int]


def properties(
    number: int,
    ports: Mapping[int, Ports],
    listeners: Sequence[Listener],
    data: Path,
    extra: Mapping[str, str],
) -> str:
    """The text of `server.properties` for node `number` among the nodes of `ports`."""
    own, nodes = ports[number], len(ports)
    doors = [f"{one.name}://{HOST}:{own.listeners[one.name]}" for one in listeners]
    sent_on = [f"{one.name}://{one.advertised or f'{HOST}:{own.listeners[one.name]}'}" for one in listeners]
    protocols = [f"{one.name}:{one.protocol}" for one in listeners]
    replicas = str(min(3, nodes))
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{p.controller}" for n, p in ports.items()),
        "listeners": ",".join([*doors, f"CONTROLLER://{HOST}:{own.controller}"]),
        "advertised.listeners": ",".join(sent_on),
        "inter.broker.listener.name": PLAIN.name,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.backoff.ms": "200",
        "metadata.max.idle.interval.ms": "0",  # nobody misses the records that say that nothing happens
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.index.size.max.bytes": "1048576",
        "log.segment.delete.delay.ms": "1000",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.fetch.timeout.ms": "1500",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
    }
    for topic in INTERNAL:
        settings |= {
            f"{topic}.num.partitions": "1",
            f"{topic}.replication.factor": replicas,
            f"{topic}.min.isr": "1",
        }
    for one in listeners:
        settings |= {f"listener.name.{one.name.lower()}.{key}": value for key, value in one.settings.items()}
    return "".join(f"{key}={value}\n" for key, value in {**settings, **extra}.items())
