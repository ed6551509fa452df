"""The whole way of a click, from the embedded log to W, as the real `tripletd learn` process does it.

`log_to_w_vs_kernel`: poll, decode, step, metrics and a 30 s checkpoint cadence over the bare kernel on the
same events. `learn_rss_anon_over_w`: peak anonymous memory of that process, less 300 MB for the interpreter
and its libraries, over the size of W, with checkpoints every few seconds and every page of W touched.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from learners import Oasis, OasisConfig, SparseBlock, TripletBatch
from streams.codec import encode_event
from streams.event import Event, ObjectRef, SparseVector
from streams.open import ensure_topic, open_sink
from streams.source import Address, OutRecord, parse_address
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.places import free_port, rss_anon
from tests.benchmarks.triplets import DIM, random_triplets

FOLDER = Path("bench-run") / "whole-path"
DISTINCT = 20_000
EVENTS = 160_000
C = 0.1
BASE_BYTES = 300e6
CHUNK = 4_000
OASIS = f"C = {C}"
EMBEDDED = 'address = "log:clicks.log"'


def figures() -> list[Figure]:
    """Both figures, on one log of `EVENTS` events of 1.7 KB."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        batch = random_triplets(DISTINCT)
        write_log(batch)
        against = "the bare kernel on the same events; d = 10,000, 70 non-zeros, 1.7 KB events, embedded log"
        ratio = ratio_figure("log_to_w_vs_kernel", against, whole_path, bare_kernel(batch), repeats=5)
        return [ratio, memory_figure()]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def write_log(batch: TripletBatch) -> None:
    """The events on the embedded log."""
    address = parse_address(f"log:{FOLDER / 'clicks.log'}")
    ensure_topic(address, 1)
    write_events(address, batch)


def write_events(address: Address, batch: TripletBatch) -> None:
    """`EVENTS` events, each with an id of its own, so that none passes for a repetition."""
    sink = open_sink(address)
    for start in range(0, EVENTS, CHUNK):
        sink.send([OutRecord(wire(batch, number)) for number in range(start, start + CHUNK)])
    sink.close()


def bare_kernel(batch: TripletBatch) -> Callable[[], float]:
    """The learner alone on the same events, already decoded, in batches of the size that `learn` polls."""
    swapped = TripletBatch(batch.query, batch.skipped, batch.clicked)
    parts = [
        one.slice(i, min(i + 4096, DISTINCT)) for one in (batch, swapped) for i in range(0, DISTINCT, 4096)
    ]

    def run() -> float:
        learner = Oasis(DIM, OasisConfig(C=C))
        learner.learn_many(batch)  # touches every page, as the measured part of `whole_path` has them
        begin, events = time.perf_counter(), 0
        while events < EVENTS // 2:
            for part in parts:
                learner.learn_many(part)
                events += len(part.query)
        return events / (time.perf_counter() - begin)

    return run


def whole_path(stream: str = EMBEDDED, learner: str = OASIS, dim: int = DIM) -> float:
    """Events per second of a `learn` process from its first fifth to its last batch, by its counters."""
    with learning("30s", stream=stream, learner=learner, dim=dim) as (process, port):
        begin = end = (0.0, 0.0)
        while process.poll() is None:
            learned, now = applied(port), time.perf_counter()
            if learned >= EVENTS / 5 and not begin[0]:
                begin = (learned, now)
            if learned > end[0]:
                end = (learned, now)
            if learned >= EVENTS:
                break
            time.sleep(0.05)
        assert begin[0], f"learn ended early: {(FOLDER / 'learn.log').read_text()[-500:]}"
        return (end[0] - begin[0]) / (end[1] - begin[1])


def memory_figure() -> Figure:
    """Peak RssAnon of a `learn` process that writes a version every 3 s until it has learned everything."""
    peak = 0
    with learning("3s", "--exit-when-caught-up") as (process, _port):
        while process.poll() is None:
            peak = max(peak, rss_anon(process.pid))
            time.sleep(0.01)
    w_bytes = DIM * DIM * 4
    value = round((peak - BASE_BYTES) / w_bytes, 3)
    detail = {"peak_rss_anon_mb": round(peak / 1e6, 1), "w_mb": w_bytes / 1e6}
    against = "the size of W, 400 MB, every page touched; 300 MB taken off for interpreter and libraries"
    return Figure("learn_rss_anon_over_w", value, "ratio", against, 1, detail)


@contextmanager
def learning(
    cadence: str, *options: str, stream: str = EMBEDDED, learner: str = OASIS, dim: int = DIM
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A real `tripletd learn` on the stream, from its beginning, in a store of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER / "checkpoints", ignore_errors=True)
    port = free_port()
    settings = FOLDER / "tripletd.toml"
    settings.write_text(
        f"""[stream]
{stream}
[space.views.x]
kind = "sparse"
dim = {dim}
map = "identity"
[learner]
{learner}
[checkpoints]
every = "{cadence}"
keep = 2
[http]
learn_port = {port}
"""
    )
    words = [sys.executable, "-m", "daemon", "learn", "--config", str(settings), *options]
    with (FOLDER / "learn.log").open("wb") as log:
        process = subprocess.Popen(words, stderr=log)
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()


def applied(port: int) -> float:
    """How many events a learner has learned, by its metrics; 0 while it has none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return 0.0
    counts = re.findall(r'^tripletd_events_total\{outcome="\w+"\} (\S+)', text, re.M)
    return float(sum(map(float, counts)))


def wire(batch: TripletBatch, number: int) -> bytes:
    """Event `number`: the triplets in turn, clicked and skipped swapped in every other round of them."""
    row, swapped = number % DISTINCT, number // DISTINCT % 2
    query, clicked, skipped = (_object(block, row) for block in (batch.query, batch.clicked, batch.skipped))
    if swapped:
        clicked, skipped = skipped, clicked
    return encode_event(Event(f"event-{number}", 1_700_000_000_000 + number, query, clicked, skipped))


def _object(block: object, row: int) -> ObjectRef:
    assert isinstance(block, SparseBlock)
    part = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
    return ObjectRef(x=SparseVector(np.ascontiguousarray(block.indices[part]), block.values[part]))
