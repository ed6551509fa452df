"""A small site in one process: a stream, a configuration and the learner run over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.config import Config, load_config
from daemon.learn.resume.origin import LearnOptions
from daemon.learn.start import run
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import ensure_topic, open_sink, open_source
from streams.poison import DeadLetter, parse_dead_letter
from streams.source import Address, OutRecord, parse_address
from tests.daemon.kept import Kept

DIM = 12
MARK = np.float32(0.7654321)


def make_events(count: int, seed: int = 0) -> list[bytes]:
    """Dense triplets, other ids for another seed; the first value of every vector clicked is `MARK`."""
    rng = np.random.default_rng(seed)
    events = []
    for number in range(count):
        q, c, s = rng.standard_normal((3, DIM)).astype(np.float32)
        c[0] = MARK
        objects = ObjectRef(x=q), ObjectRef(x=c), ObjectRef(x=s)
        events.append(encode_event(Event(f"e{seed}.{number}", 1000 + number, *objects)))
    return events


def with_nan(event: bytes) -> bytes:
    """The event with a NaN, which the encoder would refuse to write."""
    return event.replace(MARK.tobytes(), np.float32(np.nan).tobytes())


class Site(Kept):
    """One stream and one checkpoint folder."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address: Address = parse_address(address)
        self.settings: dict[str, Any] = {
            "stream.address": address,
            "space.views.x.kind": "dense",
            "space.views.x.dim": DIM,
            "space.views.x.map": "identity",
            "checkpoints.path": str(folder / "checkpoints"),
            "checkpoints.every": "1h",
            "http.learn_port": 0,
        }

    def config(self, **changes: Any) -> Config:
        changed = {key.replace("__", "."): value for key, value in changes.items()}
        return load_config(None, {**self.settings, **changed}, {})

    def feed(self, values: Iterable[bytes | None], partitions: int = 1) -> None:
        ensure_topic(self.address, partitions)
        sink = open_sink(self.address)
        sink.send([OutRecord(value, partition=n % partitions) for n, value in enumerate(values)])
        sink.close()

    def learn(self, options: LearnOptions | None = None, **changes: Any) -> int:
        return run(self.config(**changes), options or LearnOptions(exit_when_caught_up=True))

    def dead(self) -> list[DeadLetter]:
        source = open_source(self.address.dead)
        source.assign({0: 0})
        found = []
        while (batch := source.poll(1000, 0.0)) is not None:
            pairs = zip(batch.values, batch.headers, strict=True)
            found += [parse_dead_letter(value, headers) for value, headers in pairs]
        source.close()
        return found


@pytest.fixture
def new_site(tmp_path: Path) -> Callable[..., Site]:
    """Makes sites; each has its own stream in memory, or in a file (`log=True`)."""
    made = []

    def make(log: bool = False) -> Site:
        folder = tmp_path / f"site{len(made)}"
        folder.mkdir()
        made.append(Site(folder, f"log:{folder}/clicks.log" if log else f"memory:{folder}"))
        return made[-1]

    return make


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    """A site with its stream in memory."""
    return new_site()
