"""OMKS over explicit maps: memory that does not grow with the stream, and events per second by dimension."""

from __future__ import annotations

import gc
import statistics
import time
from pathlib import Path

import numpy as np

from learners import DenseBlock, TripletBatch
from learners.hedge import HedgeConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from tests.benchmarks.harness import Figure

MAPS = 36
"""9 views x 4 kernels, as in the paper."""

DIMS = {100: 600, 256: 100, 1000: 12}
"""Columns of a block -> events of one run: about a second each."""

OBJECTS = 60
RUNS = 5


def learner(width: int) -> OmksMaps:
    """36 blocks of so many columns; C is small, so that many an event steps in every block to the end."""
    config = OmksMapsConfig((width,) * MAPS, C=0.01, hedge=HedgeConfig("share"))
    return OmksMaps(width * MAPS, config)


def batch(width: int, events: int, seed: int = 0) -> TripletBatch:
    """Random objects, every block of unit length, in random triplets."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((OBJECTS, MAPS, width)).astype(np.float32)
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    rows = DenseBlock(values.reshape(OBJECTS, -1))
    return TripletBatch(*(rows.take(rng.integers(0, OBJECTS, events)) for _ in range(3)))


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def memory_flat() -> Figure:
    """Resident memory after 10 times the events over after 1 time."""
    one, events = learner(100), batch(100, DIMS[100])
    one.learn_many(events)
    before = resident()
    for _ in range(9):
        one.learn_many(events)
    after = resident()
    detail = {"events": 10.0 * len(events), "before_mb": before / 2**20, "after_mb": after / 2**20}
    return Figure(
        "omks_maps_memory_flat",
        after / before,
        "ratio",
        f"resident memory after a tenth of the events; {MAPS} maps of 100 columns",
        1,
        detail,
    )


def per_second(width: int, events: int) -> Figure:
    """Events per second at one width."""
    one, rows = learner(width), batch(width, events)
    one.learn_many(rows.slice(0, 2))  # every page is touched before the clock starts
    rates, updated = [], 0
    for _ in range(RUNS):
        begin = time.perf_counter()
        info = one.learn_many(rows)
        rates.append(events / (time.perf_counter() - begin))
        updated = int(np.count_nonzero(info.tau))
    detail = {
        "min": min(rates),
        "max": max(rates),
        "events": float(events),
        "updated_of_last": float(updated),
    }
    return Figure(
        f"omks_maps_{width}_per_second",
        statistics.median(rates),
        "events/s",
        f"nothing; {MAPS} maps of {width} columns, W of {one.W.nbytes / 2**20:.1f} MiB",
        RUNS,
        detail,
    )


def figures() -> list[Figure]:
    """All of them."""
    return [memory_flat(), *(per_second(width, events) for width, events in DIMS.items())]
