"""The metrics that `serve` exports: answers, served versions, items, freshness, the search's check, keys,
the store of [index]."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from checkpoints.versions import LOSS_MESSAGES
from daemon.replica.view import ReplicaStatus
from daemon.serve.items.catalog import CatalogStatus
from daemon.serve.retrieve import GraphStatus, GuardResult
from daemon.serve.store import answers_in_words
from daemon.telemetry.metrics import FOLDER_LOSSES, FOLDER_LOST, ArrayHistograms, add_build_info

FRESHNESS_EDGES = (
    0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0,
)  # fmt: skip
"""Bounds in seconds: fine where `latest` lives, and up to a day for versions that people promote."""


class ServeMetrics:
    """`registry` goes to the HTTP server; `follow` sets what is asked when it is read."""

    def __init__(self, aliases: Sequence[str]) -> None:
        registry = self.registry = CollectorRegistry()
        self._freshness = ArrayHistograms(
            "tripletd_event_to_served_seconds",
            "From an event to the first answer that used it",
            FRESHNESS_EDGES,
            registry,
            alias=aliases,
        )
        about = "Cosine of one text's vector now to its first one, by model of the upstream"
        self._upstream_cosine = Gauge("tripletd_upstream_cosine", about, ["model"], registry=registry)
        ProcessCollector(registry=registry)
        add_build_info(registry, "serve")

    def upstream_cosine(self, model: str, cosine: float) -> None:
        """A model of the upstream was compared with its first vector."""
        self._upstream_cosine.labels(model).set(cosine)

    def record_freshness(
        self, alias: str, seconds: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
    ) -> None:
        """Add the ages of events [n] at the first answer that used them, and how many events had each."""
        self._freshness.observe(alias, seconds, counts)

    def follow(
        self,
        replicas: Callable[[], Iterable[ReplicaStatus]],
        items: Callable[[], CatalogStatus | None],
        waiting: Callable[[], Mapping[str, int]],
    ) -> None:
        """Ask these whenever the metrics are read.

        replicas: how each alias stands. items: the serving catalog, None while it is not there. waiting: by
        alias, events that no answer has used yet.
        """
        makers: tuple[Callable[[], Iterator[Metric]], ...] = (
            lambda: _served(list(replicas())),
            lambda: _folder(list(replicas())),
            lambda: _items(items()),
            lambda: _waiting(waiting()),
        )
        for make in makers:
            self.registry.register(_OnRead(make))


class _OnRead(Collector):
    """Metric families that are made at each read."""

    def __init__(self, make: Callable[[], Iterator[Metric]]) -> None:
        self._make = make

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        return self._make()


def _served(states: Sequence[ReplicaStatus]) -> Iterator[Metric]:
    yield from _models(states)
    about = "Times that following the steps restarted from a version, by reason"
    for name, documentation, label, field in (
        ("tripletd_swaps", "Models swapped in, by what changed", "result", "swaps"),
        ("tripletd_refused_swaps", "Versions refused, by reason", "reason", "refusals"),
        ("tripletd_step_log_fallbacks", about, "reason", "fallbacks"),
    ):
        counts = CounterMetricFamily(name, documentation, labels=["alias", label])
        yield _filled(counts, {one.alias: getattr(one, field) for one in states})
    seconds = _gauge("tripletd_swap_seconds", "Of the last swap, by phase", "phase")
    yield _filled(seconds, {one.alias: one.swap_seconds for one in states})
    about = (
        "Error of a form carried along the steps, when it was last recomputed: fold, norms (relative; 0 is "
        "exact), overlap (of the top 10; 1 is exact)"
    )
    error = _gauge("tripletd_carried_error", about, "kind")
    carried = {one.alias: one.carried for one in states if one.carried is not None}
    kinds = ("fold", "norms", "overlap")
    yield _filled(
        error, {alias: {kind: getattr(one, kind) for kind in kinds} for alias, one in carried.items()}
    )
    refine = _gauge("tripletd_refine_seconds", "Seconds of the last recomputation of the form")
    for alias, one in carried.items():
        refine.add_metric([alias], one.seconds)
    yield refine


def _models(states: Sequence[ReplicaStatus]) -> Iterator[Metric]:
    info = _gauge("tripletd_served_version_info", "The version that answers", "version")
    line = _gauge("tripletd_served_line_info", "The line of history of what answers", "line")
    about = "In words how what answers orders and searches, where lists have an order of their own"
    order = _gauge("tripletd_served_order_info", about, "order")
    serving = _gauge("tripletd_serving", "1 while the alias answers")
    version = _gauge("tripletd_served_version", "Number of the version that answers")
    records = _gauge("tripletd_served_records", "Records applied in the state that answers, since version 0")
    watermark = _gauge("tripletd_served_watermark_seconds", "Newest event time in answers, Unix seconds")
    since = _gauge("tripletd_served_since_seconds", "When this state began to answer, Unix seconds")
    about = "How long something newer has been there than what answers, 0 for none"
    behind = _gauge("tripletd_served_behind_seconds", about)
    reach = _gauge("tripletd_serve_reach", "1 while what answers searches by its form, 0: it orders lists")
    for one in states:
        serving.add_metric([one.alias], one.model is not None)
        if one.model is None:
            continue
        info.add_metric([one.alias, str(one.model.version)], 1)
        if one.model.line:
            line.add_metric([one.alias, one.model.line], 1)
        waited = 0.0 if one.behind_since is None else max(0.0, time.time() - one.behind_since)
        behind.add_metric([one.alias], waited)
        version.add_metric([one.alias], one.model.version)
        reach.add_metric([one.alias], one.answers.reach)
        if words := answers_in_words(one.answers):
            order.add_metric([one.alias, words], 1)
        records.add_metric([one.alias], one.model.total)
        if one.model.watermark is not None:
            watermark.add_metric([one.alias], one.model.watermark / 1000)
        if one.since is not None:
            since.add_metric([one.alias], one.since)
    yield from (info, line, order, serving, version, records, watermark, since, behind, reach)


def _folder(states: Sequence[ReplicaStatus]) -> Iterator[Metric]:
    """All aliases follow one folder: it is lost when one of them says so."""
    lost = GaugeMetricFamily(*FOLDER_LOST, labels=["how"])
    losses = CounterMetricFamily(*FOLDER_LOSSES, labels=["how"])
    for how in LOSS_MESSAGES:
        lost.add_metric([how], any(one.folder == how for one in states))
        losses.add_metric([how], max((one.folder_losses.get(how, 0) for one in states), default=0))
    yield from (lost, losses)


def _items(found: CatalogStatus | None) -> Iterator[Metric]:
    if found is None:
        return
    for name, documentation, value in (
        ("tripletd_items", "Objects that are served", found.items),
        ("tripletd_items_current", "1 when all items were taken in", found.ready),
        ("tripletd_item_parts", "Parts of the index", found.parts),
        ("tripletd_items_bytes", "Memory of the index", found.nbytes),
    ):
        yield GaugeMetricFamily(name, documentation, value)
    about = "Dead letters of items that their topic has not taken yet"
    yield GaugeMetricFamily("tripletd_item_dead_letters_unwritten", about, found.unwritten)
    records = CounterMetricFamily("tripletd_item_records", "Item records taken in", labels=["op"])
    dead = CounterMetricFamily("tripletd_item_dead_letters", "Item records refused", labels=["reason"])
    for family, counts in ((records, {"put": found.puts, "remove": found.removes}), (dead, found.dead)):
        for label, count in counts.items():
            family.add_metric([label], count)
        yield family


def _waiting(by_alias: Mapping[str, int]) -> Iterator[Metric]:
    family = _gauge("tripletd_events_unanswered", "Learned events that no answer has used yet")
    for alias, count in by_alias.items():
        family.add_metric([alias], count)
    yield family


def _gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=["alias", *labels])


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, by_alias: Mapping[str, Mapping[str, float]]
) -> Metric:
    for alias, values in by_alias.items():
        for label, value in values.items():
            family.add_metric([alias, label], value)
    return family


class GuardMetrics:
    """Families that stay at nothing where approximate search is off. `record` may be called by any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._recall = gauge(
            "tripletd_ann_recall",
            "Share of the exact top 10 that approximate search found, when last measured; 1 for exact search",
        )
        self._width = gauge(
            "tripletd_ann_width", "Pool of a walk for ten hits since then; 0 for exact search"
        )
        about = "Models measured at a swap, by how they are searched"
        self._guards = Counter("tripletd_ann_guards", about, ["result"], registry=registry)
        for result in ("approximate", "exact"):
            self._guards.labels(result)

    def record(self, found: GuardResult) -> None:
        """Show this finding, the newest."""
        self._recall.set(found.recall)
        self._width.set(found.width or 0)
        self._guards.labels("exact" if found.width is None else "approximate").inc()


class GraphMetrics(Collector):
    """How graphs stand, asked when metrics are; nothing where there are none."""

    def __init__(self, registry: CollectorRegistry, status: Callable[[], GraphStatus | None]) -> None:
        self._status = status
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """What a scraper reads."""
        now = self._status() or GraphStatus()
        about = "Living objects by whether a graph holds them or they are scanned"
        objects = GaugeMetricFamily("tripletd_ann_objects", about, labels=["held"])
        objects.add_metric(["graph"], sum(one.living for one in now.graphs))
        objects.add_metric(["scan"], now.tail)
        yield objects
        yield GaugeMetricFamily("tripletd_ann_building", "Objects of the graph being built", now.building)
        about = "Graphs by what became of them: built, adopted from disk, damaged on disk, failed to be built"
        graphs = CounterMetricFamily("tripletd_ann_graphs", about, labels=["result"])
        for result in ("built", "adopted", "damaged", "failed"):
            graphs.add_metric([result], getattr(now, result))
        yield graphs
        yield GaugeMetricFamily("tripletd_ann_build_seconds", "What the last graph took", now.seconds)
        yield GaugeMetricFamily(
            "tripletd_ann_bytes", "Memory of all graphs, mapped files included", now.nbytes
        )


class KeyAnswerMetrics:
    """Families that stay at nothing where there is one model for all. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._held = Gauge("tripletd_key_models", "Models of single keys ready to answer", registry=registry)
        self._made = counter("tripletd_key_models_made", "Models of single keys made when asked")
        about = "Keys answered in a pass over the objects, by their own model or by version 0"
        self._answers = counter("tripletd_key_answers", about, ["model"])
        for model in ("own", "version_0"):
            self._answers.labels(model)

    def made(self, held: int) -> None:
        """A model was made; now so many are held."""
        self._made.inc()
        self._held.set(held)

    def answered(self, model: str) -> None:
        """Queries of a key are being answered by this model."""
        self._answers.labels(model).inc()


_STORE_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class IndexMetrics:
    """Of questions to the store of [index]. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        about = "Answers of the store of [index], by mode"
        self._seconds = Histogram(
            "tripletd_index_seconds", about, ["mode"], buckets=_STORE_SECONDS, registry=registry
        )
        about = "Questions that the store of [index] did not answer"
        self._failures = Counter("tripletd_index_failures", about, ["kind"], registry=registry)
        for kind in ("away", "refused", "malformed"):
            self._failures.labels(kind)
        about = "Share of the store's exact first 10 that it found when last measured; below 0 before"
        self._recall = Gauge("tripletd_index_recall", about, registry=registry)
        self._recall.set(-1)

    def answered(self, mode: str, seconds: float) -> None:
        """The store answered."""
        self._seconds.labels(mode).observe(seconds)

    def failed(self, kind: str) -> None:
        """It did not: `away`, `refused` or `malformed`."""
        self._failures.labels(kind).inc()

    def measured(self, recall: float) -> None:
        """Its recall was measured."""
        self._recall.set(recall)
