"""A learner as a real process, a feeder beside it, and what their log and checkpoints then hold."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.manifest import Manifest
from checkpoints.versions import VersionStore
from daemon.exits import EX_OK
from streams.address import Address, parse_address
from streams.codec import encode_event
from streams.deadletter import parse_dead_letter
from streams.event import Event, ObjectRef
from streams.open import ensure_topic, open_sink, open_source
from streams.source import OutRecord
from streams.vectors import SparseVector

DIM = 60
DENSE_VIEW = f'kind = "dense"\ndim = {DIM}\nmap = "standardise"'
SPARSE_VIEW = f'kind = "sparse"\ndim = {DIM}\nmap = "unit"'
POISON_EVERY = 23
MARK = np.float32(0.7654321)
START_SECONDS = 120.0


@dataclass(frozen=True)
class Site:
    """One log and one checkpoint folder, with the settings of the learner on them."""

    folder: Path
    address: Address
    checkpoints: Path

    @property
    def config(self) -> Path:
        return self.folder / f"{self.checkpoints.name}.toml"

    @property
    def versions(self) -> VersionStore:
        return VersionStore(LocalStore(self.checkpoints))

    @property
    def ledger(self) -> Ledger:
        return Ledger(LocalStore(self.checkpoints))

    def newest(self) -> Manifest:
        versions = self.versions
        return versions.manifest(versions.versions()[-1])

    def ends(self) -> dict[int, int]:
        source = open_source(self.address)
        try:
            return {partition: end for partition, (_, end) in source.bounds().items()}
        finally:
            source.close()


def make_site(
    folder: Path,
    name: str = "killed",
    *,
    partitions: int = 1,
    poll_records: int = 500,
    every: str = "20ms",
    every_events: int = 0,
    keep: int = 100000,
    view: str = SPARSE_VIEW,
    learner: str = "C = 0.1",
) -> Site:
    """Write a configuration; sites of one folder share its log."""
    site = Site(folder, parse_address(f"log:{folder}/clicks.log"), folder / name)
    ensure_topic(site.address, partitions)
    site.config.write_text(
        f"""
[stream]
address = "log:clicks.log"
partitions = {partitions}
poll_records = {poll_records}
[space]
warmup_objects = 100
[space.views.x]
{view}
[learner]
{learner}
[checkpoints]
path = "{name}"
every = "{every}"
every_events = {every_events}
keep = {keep}
[http]
learn_port = 0
[log]
format = "json"
""",
        encoding="utf-8",
    )
    return site


def event_bytes(rng: np.random.Generator, number: int, sparse: bool) -> bytes:
    """One event; every `POISON_EVERY`-th is refused, by the decoder or by the learner's step in turn."""
    if number % (2 * POISON_EVERY) == 1:
        return b"\xc1 not an event"
    vectors = [_vector(rng, sparse) for _ in range(3)]
    clicked = vectors[1]
    (clicked.values if isinstance(clicked, SparseVector) else clicked)[0] = MARK
    q, c, s = (ObjectRef(x=vector) for vector in vectors)
    encoded = encode_event(Event(f"e{number}", 1_700_000_000_000 + number, q, c, s))
    if number % (2 * POISON_EVERY) == 1 + POISON_EVERY:  # the encoder itself refuses to write this
        return encoded.replace(MARK.tobytes(), np.float32(np.nan).tobytes())
    return encoded


def is_poison(number: int) -> bool:
    """Whether `event_bytes` makes event `number` one that must become a dead letter."""
    return number % POISON_EVERY == 1


def _vector(rng: np.random.Generator, sparse: bool) -> np.ndarray | SparseVector:
    if not sparse:
        return rng.standard_normal(DIM).astype(np.float32)
    indices = np.sort(rng.choice(DIM, 8, replace=False)).astype(np.int32)
    return SparseVector(indices, rng.random(8).astype(np.float32))


class Feeder:
    """Writes events in small durable batches from a thread, until stopped."""

    def __init__(
        self, site: Site, seed: int, sparse: bool, partitions: int = 1, pause_s: float = 0.004
    ) -> None:
        self._site, self._sparse, self._partitions, self._pause_s = site, sparse, partitions, pause_s
        self._rng = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = 0
        self.poison: set[tuple[int, int]] = set()  # (partition, offset)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        sink = open_sink(self._site.address)
        while not self._stop.wait(self._pause_s):
            self.write(sink, int(self._rng.integers(1, 25)))
        sink.close()

    def write(self, sink, count: int) -> None:
        numbers = range(self.written, self.written + count)
        records = [
            OutRecord(
                event_bytes(self._rng, number, self._sparse),
                partition=int(self._rng.integers(self._partitions)),
            )
            for number in numbers
        ]
        places = sink.send(records)
        self.poison |= {place for number, place in zip(numbers, places, strict=True) if is_poison(number)}
        self.written += count


class Learner:
    """`tripletd learn` as a process of its own; killed by `close` if it still runs."""

    def __init__(self, site: Site, *arguments: str) -> None:
        self._log = site.folder / f"{site.checkpoints.name}.stderr"
        self._stderr = self._log.open("ab")
        command = [sys.executable, "-m", "daemon", "learn", "--config", str(site.config), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stderr=self._stderr, stdin=subprocess.DEVNULL, env=environment
        )

    def wait(self, timeout_s: float = START_SECONDS) -> int:
        try:
            return self.process.wait(timeout_s)
        finally:
            self.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._stderr.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._stderr.close()

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")


def wait_until(what, learner: Learner | None = None, timeout_s: float = START_SECONDS) -> None:
    """Wait for a condition; the deadline only keeps a broken test from hanging."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, learner.said() if learner else "waited in vain"
        assert learner is None or learner.process.poll() is None, learner.said()
        time.sleep(0.01)


def kill_once(site: Site, rng: random.Random) -> bool:
    """Start the learner and kill it at a random moment. Whether it had begun to learn."""
    learner = Learner(site)
    before = len(site.versions.versions())
    if rng.random() < 0.15:  # somewhere in its start-up
        time.sleep(rng.uniform(0, 1.0))
    else:
        wait_until(lambda: len(site.versions.versions()) > before + 1, learner)
        time.sleep(rng.uniform(0, 0.25))
    learner.kill()
    return len(site.versions.versions()) > before + 1


def catch_up(site: Site) -> Manifest:
    """Learn everything that is in the log, uninterrupted; the last version."""
    learner = Learner(site, "--exit-when-caught-up")
    assert learner.wait(180) == EX_OK, learner.said()
    return site.newest()


def dead_letters(site: Site) -> set[tuple[int, int]]:
    """(partition, offset) of every dead letter."""
    source = open_source(site.address.dead)
    found = set()
    try:
        bounds = source.bounds()
        source.assign({partition: earliest for partition, (earliest, _) in bounds.items()})
        left = sum(end - earliest for earliest, end in bounds.values())
        while left:
            batch = source.poll(1000, 5.0)
            assert batch is not None
            left -= len(batch)
            for value, headers in zip(batch.values, batch.headers, strict=True):
                letter = parse_dead_letter(value, headers)
                found.add((letter.partition, letter.offset))
    finally:
        source.close()
    return found


def unreported(site: Site, poison: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Poison that the newest version's position has passed without a dead letter."""
    if not site.versions.versions():
        return set()
    positions = site.newest().positions
    passed = {(p, offset) for p, offset in poison if offset < positions[p].next_offset}
    return passed - dead_letters(site)
