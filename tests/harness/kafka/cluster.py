"""A real Kafka of one or more nodes, for as long as a `with` lasts."""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.protocol.metadata import MetadataRequest

from streams.errors import StreamUnavailable
from streams.kafka.probe import NoAnswer, Probe
from streams.source import KafkaSettings
from tests.harness.kafka.jars import jars
from tests.harness.kafka.lifeline import guard_folder, release_folder
from tests.harness.kafka.node import Node, format_storage
from tests.harness.kafka.ports import free_ports
from tests.harness.kafka.properties import HOST, PLAIN, Listener, Ports, properties

READY_SECONDS = 90.0
_START_TRIES = 3


class Cluster:
    """Brokers numbered from 1; killed with this process at the latest.

    `listeners` are doors beside the plain one, `extra` lines for every node's configuration, `scram` users
    in the words of Kafka's storage tool. Raises KafkaMissing where no broker can run.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        listeners: Sequence[Listener] = (),
        extra: Mapping[str, str] | None = None,
        scram: Sequence[str] = (),
        java: Sequence[str] = (),
    ) -> None:
        self._count, self._extra, self._scram, self._java = nodes, dict(extra or {}), tuple(scram), java
        self._listeners = (PLAIN, *listeners)
        self._ports: dict[int, Ports] = {}
        self._folder: Path | None = None
        self.nodes: dict[int, Node] = {}

    def __enter__(self) -> Cluster:
        return self if self.nodes else self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> Cluster:
        """Format, start and wait until every broker serves; another process may have taken a port: again."""
        jars()
        for attempt in range(1, _START_TRIES + 1):
            self._prepare()
            for node in self.nodes.values():
                node.start()
            try:
                self.wait_ready()
            except NotReady as problem:
                self.stop()
                if attempt == _START_TRIES or "Address already in use" not in str(problem):
                    raise
            else:
                break
        return self

    def stop(self) -> None:
        """Kill every node and remove its data."""
        for node in self.nodes.values():
            node.kill()
        self.nodes = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            release_folder(self._folder)
            self._folder = None

    @property
    def folder(self) -> Path:
        """Where its configuration, logs and data are, while it runs."""
        assert self._folder is not None, "the cluster is not running"
        return self._folder

    def servers(self, listener: str = PLAIN.name) -> str:
        """`host:port,host:port` of that door of every node."""
        return ",".join(f"{HOST}:{ports.listeners[listener]}" for ports in self._ports.values())

    def address(self, topic: str) -> str:
        """The address of a topic, as a user writes it."""
        return f"kafka://{self.servers()}/{topic}"

    @contextmanager
    def admin(self, seconds: float = 10.0) -> Iterator[KafkaAdminClient]:
        """A client for administration; raises KafkaError when no node answers within `seconds`."""
        milliseconds = int(seconds * 1000)
        with KafkaAdminClient(
            bootstrap_servers=self.servers().split(","),
            bootstrap_timeout_ms=milliseconds,
            request_timeout_ms=milliseconds,
            reconnect_backoff_max_ms=200,
        ) as client:
            yield client

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every running node knows all of them: an open port alone serves nobody."""
        deadline = time.monotonic() + seconds
        wanted = {number for number, node in self.nodes.items() if node.running}
        missing = set(wanted)
        while missing:
            for number in wanted:
                if not self.nodes[number].running:
                    raise NotReady(f"node {number} ended: {self.nodes[number].said()}")
            if time.monotonic() > deadline:
                logs = "\n".join(node.said() for node in self.nodes.values())
                raise NotReady(f"after {seconds} s node {missing} does not know all of {wanted}\n{logs}")
            missing = {number for number in missing if self._known_to(number) != wanted}
            time.sleep(0.05)

    def _known_to(self, number: int) -> set[int]:
        """The nodes that this one tells its clients about; none when it does not answer."""
        port = self._ports[number].listeners[PLAIN.name]
        with Probe(f"{HOST}:{port}", KafkaSettings(), time.monotonic() + 1.0) as probe:
            try:
                probe.connect()
                brokers = probe.ask(MetadataRequest(version=8, topics=[])).brokers
            except (StreamUnavailable, NoAnswer):
                return set()
        return {broker.node_id for broker in brokers}

    def _prepare(self) -> None:
        """A data folder per node: copies of one that was formatted, under an id and a number of their own."""
        self._folder = _guarded_folder()
        cluster_id = _identifier()
        names = [listener.name for listener in self._listeners]
        self._ports = {
            number: Ports(own[0], dict(zip(names, own[1:], strict=True)))
            for number in range(1, self._count + 1)
            for own in [free_ports(1 + len(names))]
        }
        for number in self._ports:
            data, file = self.folder / f"data{number}", self._configuration(number)
            file.write_text(properties(number, self._ports, self._listeners, data, self._extra))
            shutil.copytree(_formatted(self._scram), data)
            _rename(data / "meta.properties", cluster_id, number)
        self.nodes = {number: Node(number, self._configuration(number), self._java) for number in self._ports}

    def _configuration(self, number: int) -> Path:
        return self.folder / f"node{number}.properties"


class NotReady(AssertionError):
    """The brokers did not come up; the message holds the end of their logs."""


def _identifier() -> str:
    """Kafka's own kind of id, but none that its tools would take for an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def _guarded_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tripletd-kafka-"))
    guard_folder(folder)
    return folder


@cache
def _formatted(scram: tuple[str, ...]) -> Path:
    """A data folder with these users, formatted once for all clusters of this process."""
    folder = _guarded_folder()
    file, ports = folder / "node.properties", Ports(*free_ports(1), {PLAIN.name: free_ports(1)[0]})
    file.write_text(properties(1, {1: ports}, (PLAIN,), folder / "data", {}))
    format_storage(file, _identifier(), scram)
    return folder / "data"


def _rename(meta: Path, cluster_id: str, number: int) -> None:
    own = {"cluster.id": cluster_id, "node.id": str(number), "directory.id": _identifier()}
    text = meta.read_text()
    for name, value in own.items():
        text, found = re.subn(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        assert found == 1, f"{meta} has no {name}"
    meta.write_text(text)
