"""`tripletd up` under faults, while somebody asks all the time: how many answers are lost."""

from __future__ import annotations

import http.client
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.cli import main
from daemon.exits import EX_OK
from streams.open import retain
from streams.source import parse_address
from tests.daemon.serve.test_role import Place, Role
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.compressed import by_librdkafka, topic_of_anybody
from tests.harness.kafka.control import (
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    fresh_topic,
)
from tests.harness.kafka.ports import free_ports
from tests.harness.kill.brokers import OneNode
from tests.harness.kill.learners import wait_until
from tests.harness.kill.small_disk import small_disk
from tests.harness.kill.tally import Tally

QUESTION = "/v1/similar?id=o1&k=3"
MANY = 6
"""Failures in a row of one role: more than supervisors of services put up with by default."""
AFTER_S = 3.0
"""How long questions go on after what the fault does to a role was seen."""
SECONDS = 400.0


class UpShop(Place):
    """A place with ports that are known beforehand, and a version to answer with; a stream of any kind."""

    def __init__(self, folder: Path, address: str = "log:clicks.log") -> None:
        super().__init__(folder)
        self.learn_port, self.validate_port, self.serve_port, self.up_port = free_ports(4)
        self.set("log:clicks.log", address)
        for role in ("learn", "validate", "serve"):
            self.set(f"{role}_port = 0", f"{role}_port = {getattr(self, f'{role}_port')}")
        self.file.write_text(f"{self.file.read_text()}up_port = {self.up_port}\n")
        if address.startswith("kafka:"):
            main(["topics", "create", "--config", str(self.file)])  # those that are not there
            self.set("[space.views.x]", "[stream.kafka]\ntimeout_s = 1\n[space.views.x]")
        self.feed(30, 1)
        self.learn()

    def set(self, old: str, new: str) -> None:
        """Change the configuration's text."""
        text = self.file.read_text()
        assert old in text, old
        self.file.write_text(text.replace(old, new))

    def get(self, port: int, path: str) -> tuple[int, str]:
        """Status and text; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def similar(self) -> int:
        """The status of one answer."""
        return self.get(self.serve_port, QUESTION)[0]

    def failures(self, role: str = "learn") -> int:
        """How often `up` saw it fail."""
        told = self.get(self.up_port, "/metrics")[1]
        found = re.search(rf'tripletd_role_failures_total{{of_role="{role}"}} (\d+)', told)
        return int(found[1]) if found else 0

    def learns(self) -> bool:
        """Whether the learner is ready."""
        return self.get(self.learn_port, "/readyz")[0] == 200

    def new_log(self) -> None:
        """Another embedded log in the place of the one that was learned from, as after a mistake."""
        for file in self.folder.glob("clicks.log*"):
            file.unlink()
        self.feed(30, 2)


def down(up: Role) -> list[dict[str, Any]]:
    """What `up` told of roles that stay down."""
    return [line for line in up.lines() if line["event"].startswith("failed; it stays down")]


class Asker:
    """Asks one question after the other from a thread: how many there were, and what was no answer."""

    def __init__(self, port: int) -> None:
        self.asked, self.lost = 0, list[str]()
        self._port, self._ending = port, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Asker:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self._ending.wait(0.02):
            self.asked += 1
            try:
                connection.request("GET", QUESTION)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    self.lost.append(f"question {self.asked}: {answer.status} {body.decode()[:200]}")
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(f"question {self.asked}: {type(error).__name__}: {error}")
                connection.close()
        connection.close()


@dataclass(frozen=True)
class Fault:
    """`before`: what is wrong when `up` starts. `during`: what goes wrong while it answers, and a wait for
    what becomes of the roles.
    """

    name: str
    before: Callable[[UpShop], object] = lambda shop: None
    during: Callable[[UpShop, Role], object] = lambda shop, up: None


def endure(shop: UpShop, fault: Fault) -> Tally:
    """One fault. Tried: questions, from when the server was ready; bad: those that were not answered."""
    tally = Tally(f"up_answers_lost: {fault.name}")
    began = time.monotonic()
    fault.before(shop)
    up = shop.start("up")
    try:
        until(lambda: shop.similar() == 200, up)
        with Asker(shop.serve_port) as asker:
            fault.during(shop, up)
            ended = time.monotonic() + AFTER_S
            until(lambda: time.monotonic() > ended, up)
        tally.tried, tally.bad = asker.asked, asker.lost
        code = up.stop()
        if code != EX_OK:
            tally.bad.append(f"SIGTERM ended up with {code}: {up.said()[-2000:]}")
    finally:
        shop.end()
    tally.worst = f"up_answers_lost {len(asker.lost)} of {asker.asked}"
    tally.seconds = time.monotonic() - began
    return tally


def until(happened: Callable[[], object], up: Role) -> None:
    """Wait for it, while `up` runs."""

    def there() -> object:
        assert up.process.poll() is None, f"up has ended: {up.said()[-3000:]}"
        return happened()

    try:
        wait_until(there, seconds=SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {up.said()[-3000:]}") from None


def is_down(shop: UpShop, up: Role) -> None:
    """Wait until the learner stays down."""
    until(lambda: any(line["role"] == "learn" for line in down(up)), up)


def is_back(shop: UpShop, up: Role) -> None:
    """Wait until the learner is ready."""
    until(shop.learns, up)


def _expire(shop: UpShop) -> None:
    shop.feed(30, 2)
    address = parse_address(f"log:{shop.folder}/clicks.log")
    assert retain(address, None, 1)


def _away(shop: UpShop) -> None:
    shop.set("log:clicks.log", f"kafka://127.0.0.1:{free_ports(1)[0]}/clicks")


def broker_away(failures: int) -> Fault:
    """Nobody listens where the stream should be, until the learner has failed so often."""

    def there_again(shop: UpShop, up: Role) -> None:
        until(lambda: shop.failures("learn") >= failures, up)
        text = shop.file.read_text()
        shop.file.write_text(re.sub(r'"kafka://[^"]+"', '"log:clicks.log"', text))
        is_back(shop, up)

    return Fault("broker away while starting", _away, there_again)


def _wrong(shop: UpShop) -> None:
    shop.set("[checkpoints]", '[learner]\nalgorithm = "lego"\n[checkpoints]')


def _another_log(shop: UpShop, up: Role) -> None:
    is_back(shop, up)
    shop.new_log()
    until(lambda: shop.failures("learn"), up)


EMBEDDED = (
    Fault("re-created log, at start", UpShop.new_log, is_down),
    Fault("re-created log, while learning", during=_another_log),
    Fault("expired records", _expire, is_down),
    Fault("another learner in the configuration", _wrong, is_down),
)


def full_disk_at_start(folder: Path, failures: int) -> Tally:
    """Log, versions and all on a disk that is full when `up` starts; then there is room again."""
    with small_disk(folder / "disk") as disk:
        shop = UpShop(folder / "disk")

        def fill(shop: UpShop) -> None:
            disk.fill(None)

        def free(shop: UpShop, up: Role) -> None:
            until(lambda: shop.failures("learn") >= failures, up)
            disk.free(None)
            is_back(shop, up)

        assert not disk.stand_in, "a full disk needs a mount"
        return endure(shop, Fault("full disk at start", fill, free))


def all_on_kafka(cluster: Cluster, folder: Path) -> list[Tally]:
    """Every fault of a topic on a running broker, each with a shop and topics of its own."""
    found = []
    for number, (name, make) in enumerate(ON_KAFKA.items()):
        topic, place = fresh_topic(), folder / str(number)
        place.mkdir(parents=True)
        topic_of_anybody(cluster, topic)
        found.append(endure(UpShop(place, cluster.address(topic)), make(name, cluster, topic)))
    return found


def _batch(name: str, cluster: Cluster, topic: str) -> Fault:
    def strike(shop: UpShop, up: Role) -> None:
        is_back(shop, up)
        by_librdkafka(cluster, topic, name.rsplit(maxsplit=1)[-1], [b"no event"] * 20)
        shop.feed(30, 2)
        until(lambda: "tripletd_dead_letters_total{" in shop.get(shop.learn_port, "/metrics")[1], up)
        is_back(shop, up)

    return Fault(name, during=strike)


def _grown(name: str, cluster: Cluster, topic: str) -> Fault:
    def strike(shop: UpShop, up: Role) -> None:
        is_back(shop, up)
        add_partitions(cluster, topic, 3)
        shop.feed(30, 2)
        until(lambda: "partitions were added" in up.said() or shop.failures(), up)

    return Fault(name, during=strike)


def _created_again(name: str, cluster: Cluster, topic: str) -> Fault:
    def strike(shop: UpShop, up: Role) -> None:
        is_back(shop, up)
        delete_topic(cluster, topic)
        create_topic(cluster, topic)
        is_down(shop, up)

    return Fault(name, during=strike)


def _expired(name: str, cluster: Cluster, topic: str) -> Fault:
    def strike(shop: UpShop) -> None:
        shop.feed(30, 2)
        delete_records(cluster, topic, before=120)

    return Fault(name, strike, is_down)


ON_KAFKA = {
    **{f"batch in {codec}": _batch for codec in ("snappy", "lz4", "zstd")},
    "partitions added": _grown,
    "re-created topic": _created_again,
    "expired records": _expired,
}
"""Makers of faults by name: (name, cluster, topic)."""


def dead_broker_at_start(folder: Path, failures: int) -> Tally:
    """A broker of its own is dead when `up` starts, until the learner has failed so often."""
    with Cluster() as cluster:
        node = OneNode(cluster)

        def kill(shop: UpShop) -> None:
            node.kill()

        def revive(shop: UpShop, up: Role) -> None:
            until(lambda: shop.failures("learn") >= failures, up)
            node.revive()
            is_back(shop, up)

        shop = UpShop(folder, cluster.address("clicks"))
        return endure(shop, Fault("broker away while starting", kill, revive))
