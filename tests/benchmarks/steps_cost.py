"""What the step log costs the learner: at full speed, and at a steady 2,000 events per second.

`step_log_rate_ratio`: events per second of a learner whose every batch goes to a publishing thread, all of it
sent, over the same learner alone. `step_log_path_ratio`: the same for real `tripletd learn` processes that
read, decode and learn a log, `steps.enabled` true over false. `step_log_cpu_share`: processor time of
the publishing thread over time in a `learn` process that is fed 2,000 events per second, per event learned.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from daemon.learn.steplog.journal import ByteAllowance, Journal
from daemon.learn.steplog.publisher import Inbox, StepPublisher, open_steps
from daemon.learn.steplog.segments import AppliedBatch, Captured, Durable
from daemon.telemetry.metrics import StepLogMetrics
from learners import Oasis, OasisConfig, TripletBatch
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from streams.steps.segment import BREAK_REASONS, ChainPosition
from tests.benchmarks import whole_path
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.triplets import DIM, NON_ZEROS, random_triplets
from tests.harness.topics import delete_topic

FOLDER = Path("bench-run") / "steps-cost"
BATCH = 1_000
PAIRS = 31
WINDOW_SECONDS = 1.0
STEADY_RATE = 2_000
STEADY_SECONDS = 20.0
WARM_SECONDS = 5.0
START_SECONDS = 120.0
EVERY_S = 0.1
PLACE, BASE = ChainPosition(0, 0, 0, "0" * 32), Durable(0, 0, "0" * 32, "0" * 32)
SETTING = f"d = {DIM:,}, {NON_ZEROS} non-zeros, every 100 ms, embedded log"


def figures() -> list[Figure]:
    """All three figures."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        return [rate_figure(), *_path_figures()]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.rmtree(whole_path.FOLDER, ignore_errors=True)


def rate_figure() -> Figure:
    """`step_log_rate_ratio`: windows of one learner, with and without the publishing thread."""
    learning = Learning()
    figure = ratio_figure(
        "step_log_rate_ratio",
        f"the same learner without a step log, windows of {WINDOW_SECONDS:g} s in turn; {SETTING}",
        lambda: learning.window(True),
        lambda: learning.window(False),
        repeats=PAIRS,
    )
    figure.detail["megabytes_per_second"] = round(learning.bytes / learning.seconds / 1e6, 1)
    figure.detail["cpu_share_of_the_thread"] = round(learning.cpu / learning.seconds, 3)
    figure.detail["breaks"] = learning.breaks
    for published, name in ((True, "with"), (False, "without")):
        cpu, blocked = learning.account(published)
        figure.detail[f"learner_cpu_us_per_event_{name}"] = round(cpu * 1e6, 2)
        figure.detail[f"learner_blocked_share_{name}"] = round(blocked, 4)
    return figure


class Learning:
    """A learner on an endless stream of violating triplets, its steps published or not."""

    def __init__(self) -> None:
        self._learner = Oasis(DIM, OasisConfig(C=0.1))
        np.add(self._learner.W, np.float32(0.0), out=self._learner.W)  # touch every page
        batch = random_triplets(10_000)
        swapped = TripletBatch(batch.query, batch.skipped, batch.clicked)
        starts = range(0, len(batch), BATCH)
        self._batches = cycle([one.slice(at, at + BATCH) for one in (batch, swapped) for at in starts])
        self._times = np.zeros(BATCH, np.int64)
        self.bytes = self.cpu = self.seconds = self.breaks = 0.0
        self._used = {kind: np.zeros(4) for kind in (True, False)}  # events, seconds: all, run, queued

    def account(self, published: bool) -> tuple[float, float]:
        """Of the learning thread: processor seconds per event, and the share of time in which it neither ran
        nor waited for a processor, that is for the interpreter lock. Other processes hardly change these."""
        events, seconds, run, queued = self._used[published].tolist()
        return run / events, 1 - (run + queued) / seconds

    def window(self, published: bool) -> float:
        """Events per second over one window."""
        if not published:
            return self._learn(None)
        address = parse_address(f"log:{FOLDER / 'clicks.log'}").steps
        inbox, registry = Inbox(), CollectorRegistry()
        publisher = StepPublisher(
            inbox,
            lambda: open_steps(address),
            lambda most: Journal(
                PLACE, BASE, DIM, most, ByteAllowance(1 << 40, 0.0), taken=self._learner.taken
            ),
            every_s=EVERY_S,
            metrics=StepLogMetrics(registry, BREAK_REASONS),
            clock=time.monotonic,
        )
        publisher.start()
        rate = self._learn(inbox)
        publisher.stop()
        assert publisher.ended(60), "the step log is written too slowly to end"
        self._count(registry)
        for left in FOLDER.glob("clicks.log.steps*"):
            left.unlink()
        return rate

    def _learn(self, inbox: Inbox | None) -> float:
        used, begin, events = _scheduled(), time.perf_counter(), 0
        while (now := time.perf_counter()) - begin < WINDOW_SECONDS:
            batch = next(self._batches)
            info = self._learner.learn_many(batch)
            if inbox is not None:
                inbox.offer(AppliedBatch(events, events + BATCH, 0, batch, info, self._times))
            events += BATCH
        if inbox is not None:
            inbox.offer(Captured(events, 0))
        self._used[inbox is not None] += (events, now - begin, *(_scheduled() - used))
        return events / (now - begin)

    def _count(self, registry: CollectorRegistry) -> None:
        def value(name: str, **labels: str) -> float:
            return registry.get_sample_value(f"tripletd_step_log_{name}", labels) or 0.0

        self.bytes += value("bytes_total")
        self.cpu += value("cpu_seconds_total")
        self.seconds += WINDOW_SECONDS
        self.breaks += sum(value("breaks_total", reason=reason) for reason in BREAK_REASONS)


def _scheduled() -> NDArray[np.float64]:
    """Seconds that this thread has run, and that it was ready to and waited for a processor."""
    run, queued, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return np.array([int(run), int(queued)]) / 1e9


def _path_figures() -> list[Figure]:
    shutil.rmtree(whole_path.FOLDER, ignore_errors=True)
    whole_path.FOLDER.mkdir(parents=True)
    batch = random_triplets(whole_path.DISTINCT)
    whole_path.write_log(batch)
    ratio = ratio_figure(
        "step_log_path_ratio",
        f"the same `learn` process with steps.enabled = false, from its log to W; {SETTING}",
        lambda: _path(True),
        lambda: _path(False),
        repeats=5,
    )
    return [ratio, _steady_figure(batch)]


def _path(published: bool) -> float:
    with _steps_setting(published):
        return whole_path.whole_path()


@contextmanager
def _steps_setting(published: bool) -> Iterator[None]:
    os.environ["TRIPLETD_STEPS__ENABLED"] = str(published).lower()
    for left in whole_path.FOLDER.glob("clicks.log.steps*"):
        left.unlink()
    try:
        yield
    finally:
        del os.environ["TRIPLETD_STEPS__ENABLED"]


def _steady_figure(batch: TripletBatch) -> Figure:
    """`step_log_cpu_share`, with the processor time of whole processes that do and do not publish."""
    shares = {published: _steady(batch, published) for published in (True, False)}
    detail = {
        "process_cpu_with": round(shares[True][0], 3),
        "process_cpu_without": round(shares[False][0], 3),
        "megabytes_per_second": round(shares[True][2] / 1e6, 2),
    }
    against = f"one processor core; a learn process fed {STEADY_RATE:,} events per second, {SETTING}"
    return Figure("step_log_cpu_share", round(shares[True][1], 4), "ratio", against, 1, detail)


def _steady(batch: TripletBatch, published: bool) -> tuple[float, float, float]:
    """(processor time of the process, of its publishing thread, bytes), each per `STEADY_RATE` events."""
    address = parse_address(f"log:{whole_path.FOLDER / 'clicks.log'}")
    delete_topic(address)
    ensure_topic(address, 1)
    stop = threading.Event()
    feeding = threading.Thread(target=_feed, args=(batch, stop), daemon=True)
    with _steps_setting(published), whole_path.learning("10s") as (process, port):
        feeding.start()
        try:
            _await(lambda: whole_path.applied(port) > 0)
            time.sleep(WARM_SECONDS)
            begun, before = whole_path.applied(port), _usage(process.pid, port)
            time.sleep(STEADY_SECONDS)
            learned, after = whole_path.applied(port) - begun, _usage(process.pid, port)
        finally:
            stop.set()
            feeding.join()
    cpu, thread, size = ((b - a) / learned * STEADY_RATE for a, b in zip(before, after, strict=True))
    return cpu, thread, size


def _await(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not happened():
        log = whole_path.FOLDER / "learn.log"
        assert time.monotonic() < end, f"learn does not begin: {log.read_text()[-500:]}"
        time.sleep(0.1)


def _feed(batch: TripletBatch, stop: threading.Event) -> None:
    sink, number, began = open_sink(parse_address(f"log:{whole_path.FOLDER / 'clicks.log'}")), 0, time.time()
    while not stop.wait(0.02):
        due = int((time.time() - began) * STEADY_RATE)
        sink.send([OutRecord(whole_path.wire(batch, one)) for one in range(number, due)])
        number = due
    sink.close()


def _usage(pid: int, port: int) -> tuple[float, float, float]:
    """Processor seconds of a process and of its publishing thread, and the bytes that it has published."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()

    def metric(name: str) -> float:
        found = re.search(rf"^tripletd_step_log_{name} (\S+)", text, re.M)
        return float(found.group(1)) if found else 0.0

    return ticks, metric("cpu_seconds_total"), metric("bytes_total")
