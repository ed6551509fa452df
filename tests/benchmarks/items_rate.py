"""Figures of the serving catalog: what it takes in, and what its readers notice of it.

`items_puts_per_second`: puts of 100 dense numbers, half of them replacing an object, read from an embedded
log and served, as fast as that goes. `items_reader_pause_us`: how long reading the newest snapshot takes,
99.9th percentile, while another process puts 10,000 objects a second; the detail says the longest, how old
the newest object of the snapshot was, and the memory of the index over that of its living objects' numbers.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from daemon.config import load_config
from daemon.serve.items.catalog import ServingCatalog, build_catalog
from learners.block import DenseBlock
from learners.maps import SpaceMap, ViewConfig
from streams.event import ObjectRef
from streams.items import Display, ItemPut, item_record
from streams.open import ensure_topic, open_sink
from streams.source import Address, OutRecord
from tests.benchmarks.harness import Figure

DIM = 100
IDS = 50_000
CATCH_UP = 100_000
RATE = 10_000
SECONDS = 20
BATCH = 500


def figures() -> list[Figure]:
    """Rate of taking in, and the pause of readers at a steady rate."""
    return [catching_up(), steady()]


def catching_up() -> Figure:
    """A topic written beforehand, read from its beginning."""
    rates = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            address = _stream(folder)
            write(address, CATCH_UP, None)
            catalog = _catalog(address)
            began = time.perf_counter()
            catalog.start()
            while not catalog.status().ready:
                time.sleep(0.005)
            rates.append(CATCH_UP / (time.perf_counter() - began))
            catalog.close()
    against = f"a topic of {CATCH_UP:,} puts, d = {DIM} dense, embedded log"
    detail: dict[str, float] = {"lowest": round(min(rates)), "highest": round(max(rates))}
    return Figure("items_puts_per_second", round(float(np.median(rates))), "1/s", against, len(rates), detail)


def steady() -> Figure:
    """Puts at a steady rate by another process, while a reader looks all the time."""
    with tempfile.TemporaryDirectory() as folder:
        address = _stream(folder)
        catalog = _catalog(address)
        pauses, bytes_over = _Reader(catalog), []
        catalog.start()
        writer = multiprocessing.get_context("spawn").Process(
            target=write, args=(address, RATE * SECONDS, RATE)
        )
        writer.start()
        while catalog.status().puts == 0:
            time.sleep(0.01)
        pauses.start()
        ages: list[float] = []
        while writer.is_alive():
            time.sleep(0.1)
            ages.append(time.time() - _newest(catalog))
            status = catalog.status()
            bytes_over.append(status.nbytes / (status.items * _bytes_of_one()))
        writer.join()
        status = catalog.status()
        pauses.stop()
        catalog.close()
    looks = np.array(pauses.seconds) * 1e6
    detail = {
        "p50": round(float(np.percentile(looks, 50)), 1),
        "longest": round(float(looks.max()), 1),
        "looks": float(len(looks)),
        "puts": float(status.puts),
        "age_of_newest_p50_ms": round(1e3 * float(np.percentile(ages, 50)), 1),
        "age_of_newest_max_ms": round(1e3 * max(ages), 1),
        "bytes_over_living_max": round(max(bytes_over[len(bytes_over) // 2 :]), 2),
        "merges": float(status.merges),
    }
    against = f"{RATE:,} puts/s for {SECONDS} s by another process, d = {DIM} dense, embedded log"
    return Figure(
        "items_reader_pause_us", round(float(np.percentile(looks, 99.9)), 1), "us", against, 1, detail
    )


class _Reader:
    """Reads the newest snapshot all the time and keeps how long each reading took."""

    def __init__(self, catalog: ServingCatalog) -> None:
        self.seconds: list[float] = []
        self._catalog = catalog
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.0005):
            began = time.perf_counter()
            _ = self._catalog.current
            self.seconds.append(time.perf_counter() - began)


def write(address: Address, count: int, rate: float | None) -> None:
    """Put `count` objects, the ids again and again; `rate` per second, None for as fast as it goes.

    The first number of a vector is the time of its record, so that its age can be told.
    """
    vectors = np.random.default_rng(0).standard_normal((BATCH, DIM)).astype(np.float32)
    began = time.time()
    with closing(open_sink(address.items)) as sink:
        for first in range(0, count, BATCH):
            if rate is not None:
                time.sleep(max(0.0, began + first / rate - time.time()))
            shown = Display(title=f"{time.time():.6f}", tags=("new", "wood"))
            sink.send([_record(first + n, vectors[n], shown) for n in range(BATCH)])


def _record(number: int, vector: np.ndarray, shown: Display) -> OutRecord:
    return item_record(ItemPut(ObjectRef(f"item {number % IDS}", x=vector), shown))


def _newest(catalog: ServingCatalog) -> float:
    """When the newest object of the newest snapshot was put, seconds since the epoch."""
    snapshot = catalog.current
    number, part = max(
        enumerate(snapshot.parts), key=lambda one: one[1].serial if not one[1].merged_from else 0
    )
    shown = snapshot.display_at(number, len(part) - 1)
    return float(shown.title) if shown is not None and shown.title else time.time()


def _bytes_of_one() -> int:
    """An object's numbers alone."""
    return 4 * DIM


def _stream(folder: str) -> Address:
    address = Address("log", str(Path(folder) / "shop.log"), "shop")
    for topic in (address, address.items, address.dead):
        ensure_topic(topic, 1)
    return address


def _catalog(address: Address) -> ServingCatalog:
    views = {"x": {"kind": "dense", "dim": DIM, "map": "unit"}}
    config = load_config(None, {"stream.address": str(address), "space.views": views}, {})
    sample = {"x": DenseBlock(np.eye(DIM, dtype=np.float32)[:2])}
    return build_catalog(config, SpaceMap({"x": ViewConfig("unit")}).fit(sample))
