"""`two_shards_vs_one`: events per second of two shards, each on a core of its own, over those of one learner
on one core; the whole path from the embedded log to W, versions and merged versions meanwhile.

`merge` runs wherever the system puts it: it takes from both what it takes. Events bring their vectors along,
`DIM` numbers each as a text or photo embedding has them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.places import environment, free_port, pin
from tests.benchmarks.whole_path import applied

FOLDER = Path("bench-run") / "shards"
DIM, EVENTS, PARTITIONS, CHUNK = 384, 120_000, 4, 2_000
CADENCE = "2s"
REPEATS = 3


def figures() -> list[Figure]:
    """One learner and two shards in turn, on one log."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        write_log()
        against = (
            f"one learner on one core; {EVENTS:,} events of {DIM} dense columns on the embedded log, "
            f"{PARTITIONS} partitions, versions and merges every {CADENCE}"
        )
        return [ratio_figure("two_shards_vs_one", against, lambda: rate(2), lambda: rate(0), REPEATS)]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def write_log() -> None:
    """The events, each with an id of its own, in turn over the partitions."""
    rng = np.random.default_rng(11)
    address = parse_address(f"log:{FOLDER / 'clicks.log'}")
    ensure_topic(address, PARTITIONS)
    objects = rng.standard_normal((5_000, DIM)).astype(np.float32)
    objects /= np.linalg.norm(objects, axis=1, keepdims=True)
    sink = open_sink(address)
    for start in range(0, EVENTS, CHUNK):
        drawn = rng.integers(len(objects), size=(CHUNK, 3))
        records = [
            OutRecord(_event(start + at, objects, rows), partition=(start + at) % PARTITIONS)
            for at, rows in enumerate(drawn)
        ]
        sink.send(records)
    sink.close()


def _event(number: int, objects: np.ndarray, rows: np.ndarray) -> bytes:
    query, clicked, skipped = (ObjectRef(x=objects[row]) for row in rows)
    return encode_event(Event(f"event-{number}", 1_700_000_000_000 + number, query, clicked, skipped))


def rate(shards: int) -> float:
    """Events per second of one learner (0 shards) or of several, between a fifth and four fifths of them."""
    shutil.rmtree(FOLDER / "checkpoints", ignore_errors=True)
    ports = [free_port() for _ in range(max(1, shards))]
    settings = FOLDER / "tripletd.toml"
    settings.write_text(
        f'[stream]\naddress = "log:clicks.log"\npartitions = {PARTITIONS}\n'
        f'[space.views.x]\nkind = "dense"\ndim = {DIM}\nmap = "identity"\n'
        f'[learner]\nalgorithm = "oasis"\n[checkpoints]\nevery = "{CADENCE}"\nkeep = 2\n'
        f'[shards]\ncount = {shards}\nmerge_every = "{CADENCE}"\n[http]\nmerge_port = 0\n'
    )
    with ExitStack() as stack:
        if shards:
            _start(stack, settings, "merge")
        for core, port in enumerate(ports):
            words = ["--set", f"http.learn_port={port}", *(["--shard", str(core)] if shards else [])]
            pin(_start(stack, settings, "learn", *words).pid, [core])
        return _measured(ports)


def _start(stack: ExitStack, settings: Path, role: str, *options: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-P", "-m", "daemon", role, "--config", str(settings), *options]
    log = stack.enter_context((FOLDER / f"{role}.log").open("ab"))
    process = subprocess.Popen(words, stderr=log, env=environment())
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _measured(ports: list[int]) -> float:
    begin: tuple[float, float] | None = None
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        learned, now = sum(map(applied, ports)), time.perf_counter()
        if begin is None and learned >= EVENTS / 5:
            begin = learned, now
        if begin is not None and learned >= 4 * EVENTS / 5:
            return (learned - begin[0]) / (now - begin[1])
        time.sleep(0.02)
    raise AssertionError((FOLDER / "learn.log").read_text()[-2000:])
