"""The metrics of learn, merge and validate, and what every role's metrics are made of.

Histograms are fed by whole arrays: one binning per batch, not one call per event.
"""

from __future__ import annotations

import platform
import threading
import time
from collections import Counter as TallyOf
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from checkpoints.versions import LOSS_MESSAGES
from streams.partitions import OpenTransactions

Floats = npt.NDArray[np.floating]


class ArrayHistograms(Collector):
    """Counts of values per bucket, cumulative as Prometheus wants them, by the values of one label, given as
    `label=[values]`; all are shown from the start.

    Args:
        name: metric name with its base unit, without suffix.
        documentation: help text.
        edges: ascending upper bounds; a value equal to an edge falls below it (`le`). +Inf is added.
        registry: where it registers itself.
        label: none for a histogram without.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        edges: Sequence[float],
        registry: CollectorRegistry,
        **label: Sequence[str],
    ):
        self._about, self._label = (name, documentation), [*label]
        self._bins = {value: _Bins(edges) for values in [*label.values()] or [[""]] for value in values}
        registry.register(self)

    def observe(self, value: str, values: Floats, counts: npt.NDArray[np.integer]) -> None:
        """Add finite `values` [n] to the histogram of this label value, `counts` [n] times each."""
        self._bins[value].add(values, counts)

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The family without samples: lets the registry check names without collecting."""
        yield HistogramMetricFamily(*self._about, labels=self._label)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The family, each label value with its cumulative buckets and sum."""
        family = HistogramMetricFamily(*self._about, labels=self._label)
        for value, bins in self._bins.items():
            buckets, total = bins.cumulative()
            family.add_metric([value] if self._label else [], buckets=buckets, sum_value=total)
        yield family


class ArrayHistogram(ArrayHistograms):
    """The same without a label."""

    def observe_many(self, values: Floats) -> None:
        """Add an array [n]; values that are not finite are left out (the step refused them)."""
        self._bins[""].add(values[np.isfinite(values)])

    def observe_mean(self, total: float, count: int) -> None:
        """Add `count` observations known only by their total, each at the mean; none when count is 0."""
        if count > 0:
            self._bins[""].add(np.array([total / count]), np.array([count]))


class _Bins:
    """Counts per bucket and the sum, safe to add to from several threads."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = np.asarray(edges, dtype=np.float64)
        self._labels = [*(repr(float(edge)) for edge in edges), "+Inf"]
        self._counts = np.zeros(len(self._labels), dtype=np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, values: Floats, counts: npt.NDArray[np.integer] | None = None) -> None:
        # In the values' own precision: float32 0.1 is above float64 0.1, yet belongs in the bucket "0.1".
        edges = self._edges.astype(values.dtype)
        places = np.searchsorted(edges, values, side="left")
        added = np.bincount(places, counts, minlength=len(self._counts)).astype(np.int64)
        total = float((values if counts is None else values * counts).sum(dtype=np.float64))
        with self._lock:
            self._counts += added
            self._sum += total

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        with self._lock:
            counts, total = np.cumsum(self._counts).tolist(), self._sum
        return list(zip(self._labels, map(float, counts), strict=True)), total


@cache
def version() -> str:
    """Version of the installed distribution; "unknown" when run from a bare checkout."""
    try:
        return metadata.version("tripletd")
    except metadata.PackageNotFoundError:
        return "unknown"


def add_build_info(registry: CollectorRegistry, role: str) -> None:
    """`tripletd_build_info{version, python, role} 1`."""
    info = Info("tripletd_build", "What is running", registry=registry)
    info.info({"version": version(), "python": platform.python_version(), "role": role})


def add_place(registry: CollectorRegistry, checkpoints: str) -> None:
    """`tripletd_place_info{checkpoints} 1`: the folder a role works with, to tell it from another's."""
    Info("tripletd_place", "The checkpoint folder", registry=registry).info({"checkpoints": checkpoints})


class KnownGauge(Collector):
    """Without labels, and without a sample before it is known: an alert must not take that for 0."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._about = name, documentation
        self._value: float | None = None
        registry.register(self)

    def set(self, value: float) -> None:
        """The value from now on."""
        self._value = float(value)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The family, empty until there is a value."""
        yield GaugeMetricFamily(*self._about, value=self._value)

    describe = collect
    """Its name is known from the start."""


class KeyMetrics:
    """All 0 where one model learns all events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._used = gauge("tripletd_keys_used", "Keys that have a model")
        self._slots = gauge("tripletd_keys_slots", "Most keys that can have a model")
        about = "Keys whose model was given up for another key's"
        self.evicted = Counter("tripletd_keys_evicted", about, registry=registry)

    def follow(self, slots: int, used: Callable[[], int]) -> None:
        """Ask `used` for the keys that have a model whenever it is read, in any thread."""
        self._slots.set(slots)
        self._used.set_function(used)


FOLDER_LOST = ("tripletd_folder_lost", "1 while the checkpoint folder is gone or lacks what the role has")
FOLDER_LOSSES = "tripletd_folder_losses", "Times that the checkpoint folder was lost, by how"


class FolderMetrics:
    """Whether the checkpoint folder has what a role works with."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lost = _preset(Gauge(*FOLDER_LOST, ["how"], registry=registry), tuple(LOSS_MESSAGES))
        self._losses = _preset(Counter(*FOLDER_LOSSES, ["how"], registry=registry), tuple(LOSS_MESSAGES))
        self._seen: TallyOf[str] = TallyOf()

    def record(self, now: str, losses: Mapping[str, int]) -> None:
        """How it is lost now, "" where it is not, and how often it was so far, by how."""
        for how in LOSS_MESSAGES:
            self._lost[how].set(how == now)
            self._losses[how].inc(losses.get(how, 0) - self._seen[how])
            self._seen[how] = losses.get(how, 0)


class HeldBackMetrics:
    """What open transactions hold back of the topic that a role reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        about = "Records behind an open transaction, which nobody is given before it ends"
        self._events = gauge("tripletd_held_back_events", about, ["partition"])
        about = "For how long the same transaction has been seen open"
        self._seconds = gauge("tripletd_held_back_seconds", about, ["partition"])

    def record(self, transactions: OpenTransactions, partitions: Iterable[int], at: float) -> None:
        """Show what was seen at `at` (of the clock of `transactions`), for each of the topic's partitions."""
        for partition in partitions:
            held = transactions.held.get(partition)
            self._events.labels(str(partition)).set(0 if held is None else held.end - held.first)
            self._seconds.labels(str(partition)).set(at - transactions.since.get(partition, at))


OUTCOMES = ("updated", "passive", "degenerate", "rejected", "duplicate", "capped", "aside")
PHASES = ("poll", "decode", "step", "checkpoint", "idle")

_LOSS_EDGES = (0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 10.0)
_TAU_EDGES = (1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
_STEP_EDGES = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.1, 1.0)
_CHECKPOINT_EDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_UPDATED, _REJECTED = 0, 3


class LearnMetrics:
    """Counters, gauges and histograms of one learner; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        events = counter("tripletd_events", "Events by outcome of their step", ["outcome"])
        self._events = _preset(events, OUTCOMES)
        self._dead_letters = counter("tripletd_dead_letters", "Dead letters by reason", ["reason"])
        self._lag_events = gauge("tripletd_lag_events", "Records not yet learned", ["partition"])
        about = "Age of the last learned event while records wait"
        self._lag_seconds = gauge("tripletd_lag_seconds", about, ["partition"])
        self.held_back = HeldBackMetrics(registry)
        self._phases = _preset(counter("tripletd_loop_seconds", "Loop time by phase", ["phase"]), PHASES)
        self._step = ArrayHistogram("tripletd_step_seconds", "Seconds of one step", _STEP_EDGES, registry)
        self._loss = ArrayHistogram("tripletd_loss", "Hinge loss before the step", _LOSS_EDGES, registry)
        self._tau = ArrayHistogram("tripletd_tau", "Step size tau of updates", _TAU_EDGES, registry)
        self.weight_norm = gauge("tripletd_weight_norm", "Norm of the matrix W, or of all that is learned")
        self.version = gauge("tripletd_version", "Newest version written")
        self.watermark = gauge("tripletd_watermark_seconds", "Newest event time learned, Unix seconds")
        self.parked = gauge("tripletd_parked", "1 while parked by a STOP verdict")
        self.paused = gauge("tripletd_paused", "1 while paused for poison")
        self.poison_share = gauge("tripletd_poison_share", "Dead letters among the newest records")
        self.keys = KeyMetrics(registry)
        self.folder = FolderMetrics(registry)
        about = "From capture to durable"
        self._checkpoint_seconds = Histogram(
            "tripletd_checkpoint_seconds", about, buckets=_CHECKPOINT_EDGES, registry=registry
        )
        self._checkpoint_bytes = gauge("tripletd_checkpoint_bytes", "Size of the newest version")
        about = "Versions that could not be written"
        self.checkpoint_failures = counter("tripletd_checkpoint_failures", about)
        self._written_at = time.monotonic()
        age = gauge("tripletd_checkpoint_age_seconds", "Since the newest version, or since start")
        age.set_function(lambda: time.monotonic() - self._written_at)
        ProcessCollector(registry=registry)
        add_build_info(registry, "learn")

    def record_batch(
        self,
        outcome: npt.NDArray[np.uint8],
        loss: npt.NDArray[np.float32],
        tau: npt.NDArray[np.float32],
        seconds: float,
    ) -> None:
        """Add one kernel call: per-event outcome, loss and tau [n] and the call's seconds."""
        counts = np.bincount(outcome, minlength=len(OUTCOMES))
        for name, count in zip(OUTCOMES, counts.tolist(), strict=True):
            self._events[name].inc(count)
        self._loss.observe_many(loss[outcome != _REJECTED])
        self._tau.observe_many(tau[(outcome == _UPDATED) & (tau > 0)])  # 0 where another part of it updated
        self._step.observe_mean(seconds, len(outcome))

    def record_stepless(self, duplicate: int, capped: int, aside: int) -> None:
        """Add events of which the main learner made no step: their id was known, a cap refused them, or they
        are not among the pairs that it learns."""
        for name, count in (("duplicate", duplicate), ("capped", capped), ("aside", aside)):
            self._events[name].inc(count)

    def record_dead_letters(self, by_reason: Mapping[str, int]) -> None:
        """Add dead letters; reasons are the closed list of the streams package."""
        for reason, count in by_reason.items():
            self._dead_letters.labels(reason).inc(count)

    def record_lag(self, partition: int, events: int, seconds: float) -> None:
        """Set what is still to be learned of a partition: records, and seconds behind."""
        self._lag_events.labels(str(partition)).set(events)
        self._lag_seconds.labels(str(partition)).set(seconds)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the enclosed part of the loop; `name` is one of PHASES."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name].inc(time.perf_counter() - start)

    def add_phase(self, name: str, seconds: float) -> None:
        """Add seconds measured elsewhere (the reader thread's poll and decode)."""
        self._phases[name].inc(seconds)

    def record_checkpoint(self, number: int, seconds: float, size: int) -> None:
        """A version is durable: its number, seconds from capture to durable, bytes."""
        self.version.set(number)
        self._checkpoint_seconds.observe(seconds)
        self._checkpoint_bytes.set(size)
        self._written_at = time.monotonic()


def _preset(counter: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: counter.labels(name) for name in names}


_SEND_EDGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class StepLogMetrics:
    """Counters and gauges of one publishing thread."""

    def __init__(self, registry: CollectorRegistry, break_reasons: tuple[str, ...]) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.segments = counter("tripletd_step_log_segments", "Segments written to the step log")
        self.steps = counter("tripletd_step_log_steps", "Applied steps in them")
        self.bytes = counter("tripletd_step_log_bytes", "Bytes of their records")
        about = "Times that steps began to be left out, by reason"
        self.breaks = counter("tripletd_step_log_breaks", about, ["reason"])
        for reason in break_reasons:
            self.breaks.labels(reason)
        self.broken = gauge("tripletd_step_log_broken", "1 while steps are left out, up to the next version")
        self.unavailable = gauge("tripletd_step_log_unavailable", "1 while the step log cannot be written")
        self.send_seconds = Histogram(
            "tripletd_step_log_send_seconds", "Seconds of one write", buckets=_SEND_EDGES, registry=registry
        )
        about = "Processor time of the publishing thread"
        self.busy_seconds = counter("tripletd_step_log_cpu_seconds", about)


class MergeMetrics:
    """Counters and gauges of one merger; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.merges = counter("tripletd_merges", "Merged versions written")
        self.failures = counter("tripletd_merge_failures", "Merged versions that could not be written")
        self.seconds = gauge("tripletd_merge_seconds", "Seconds that the last merge took, until durable")
        self.version = gauge("tripletd_version", "Newest version written")
        self.watermark = gauge("tripletd_watermark_seconds", "Newest event time merged, Unix seconds")
        self._waiting = gauge(
            "tripletd_shard_unmerged_records", "Records in a shard's newest version, not merged", ["shard"]
        )
        self._age = gauge("tripletd_shard_version_age_seconds", "Age of a shard's newest version", ["shard"])
        self.folder = FolderMetrics(registry)
        ProcessCollector(registry=registry)
        add_build_info(registry, "merge")

    def record_shard(self, shard: int, unmerged: int, age_s: float) -> None:
        """What a shard's newest version holds that no merged one does, and how old that version is."""
        self._waiting.labels(str(shard)).set(unmerged)
        self._age.labels(str(shard)).set(age_s)


_JUDGE_EDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


FINDINGS = ("superior", "equivalent", "not yet", "inferior")
ANSWERS = ("yes", "no", "not known yet")


class ValidateMetrics:
    """Gauges and counters of one validator; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        known = partial(KnownGauge, registry=registry)
        about = "Holdout measure by kind, for the newest and best version, version 0, the shown order"
        self._measures = gauge("tripletd_holdout_map", about, ["kind", "which"])
        symmetry = "||sym(W)||^2 / ||W||^2, 1 for a symmetric W, for the same"
        sparsity = "Share of the weights of a diagonal metric that are 0, for the same"
        self._alone = {
            "decision": gauge("tripletd_holdout_decision", "Decision measure, for the same", ["which"]),
            "symmetry_index": gauge("tripletd_symmetry_index", symmetry, ["which"]),
            "sparsity": gauge("tripletd_sparsity", sparsity, ["which"]),
        }
        self._versions = gauge("tripletd_judged_version", "Version number, for the same", ["which"])
        self.judged = counter("tripletd_judged_versions", "Versions judged")
        about = "Versions never judged: pruned before, on too few lists, or for a newer one (validate.judge)"
        self.passed_over = counter("tripletd_passed_over_versions", about)
        self.judge_seconds = Histogram(
            "tripletd_judge_seconds", "Seconds per judgment", buckets=_JUDGE_EDGES, registry=registry
        )
        self.held_back = HeldBackMetrics(registry)
        self.folder = FolderMetrics(registry)
        self.window = gauge("tripletd_window_impressions", "Holdout impressions in the window")
        about = "Holdout impressions not usable"
        self._skipped = counter("tripletd_skipped_impressions", about, ["reason"])
        self.drift = counter("tripletd_drift", "Drifts detected on the holdout loss")
        self.holdout_loss = known("tripletd_holdout_loss", "Best version's holdout loss")
        about = "1 while the best version is above version 0 on the newest window"
        self.best_holds = known("tripletd_best_holds", about)
        about = "Keys of the newest judged version by verdict, where there is one model per key"
        self._keys = gauge("tripletd_judged_keys", about, ["verdict"])
        about = "1 for what is known of the learned versions against version 0, by clicks"
        self._better = gauge("tripletd_better_for_users", about, ["finding"])
        about = "Natural logarithm of the capital against no version being better than version 0"
        self._capital = known("tripletd_evidence", about)
        about = "About how many more lists a verdict takes; absent while nothing points there"
        self._missing = gauge("tripletd_evidence_missing_lists", about, ["verdict"])
        about = "1 for the answer in force to: is it better than the ranking that users had?"
        self._answer = gauge("tripletd_better", about, ["answer"])
        self.stopped = known("tripletd_stopped", "1 while a STOP verdict is in force")
        ProcessCollector(registry=registry)
        add_build_info(registry, "validate")

    def record_measures(self, which: str, version: int | None, measures: Mapping[str, float | None]) -> None:
        """Set the measures of the "newest", "best" or "zero" version, or of the "shown_order".

        The label is not `role`: Prometheus attaches that one to the whole process. Values that are None
        are left out.
        """
        if version is not None:
            self._versions.labels(which).set(version)
        for kind, value in measures.items():
            alone = self._alone.get(kind)
            if value is not None:
                (self._measures.labels(kind, which) if alone is None else alone.labels(which)).set(value)

    def record_evidence(self, finding: str, capital: float, missing: int | None) -> None:
        """Set what clicks say of the learned versions against version 0."""
        for one in FINDINGS:
            self._better.labels(one).set(one == finding)
        self._capital.set(capital)
        self._missing.clear()
        if missing is not None and finding == "not yet":
            self._missing.labels("superior").set(missing)

    def record_answer(self, answer: str) -> None:
        """Set the answer in force."""
        for one in ANSWERS:
            self._answer.labels(one).set(one == answer)

    def record_keys(self, by_verdict: Mapping[str, int]) -> None:
        """Set how many keys of the newest judged version have each verdict."""
        for verdict, count in by_verdict.items():
            self._keys.labels(verdict).set(count)

    def record_skipped(self, by_reason: Mapping[str, int]) -> None:
        """Add impressions that could not be judged, by reason."""
        for reason, count in by_reason.items():
            self._skipped.labels(reason).inc(count)
