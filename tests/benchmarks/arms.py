"""What arms cost: events of the stream per second with them, over the same events without any.

Of the role's step, `daemon.learn.step.learn`. Every learner learns every event: the denominator is the main
learner alone, plain OASIS, on the same batches. `triplets`: each event has a query of its own. `lists`: pairs
come list by list, as feed writes them, PAIRS of one query. `one_core`: one thread, in time of the processor,
which other work on the machine takes no part of. `step`: as many threads as there are cores, in time of the
clock; `two_idle_cores` of it is what two cores that do nothing else could come to at best, by the times of
the processor: the longer of the main learner's and of half of all. `load`: of the machine meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, cast

import numpy as np

from daemon.learn.state import LearnState
from daemon.learn.step import learn
from daemon.memory.cores import usable_cores
from learners import DenseBlock, Oasis, TripletBatch
from learners.arms import ArmConfig, Arms
from learners.caps import CapsConfig, StepWindow
from streams.catalog import RoleColumns
from streams.decode import DecodedBatch
from streams.ids import IdWindow
from tests.benchmarks.dense_step import batch_of, unit_rows
from tests.benchmarks.harness import Figure, ratio_figure

DIM, EVENTS, BATCH, PAIRS, WINDOW = 384, 16_384, 4096, 10, 100_000
"""BATCH: records that `learn` polls at once."""
METRIC = np.linspace(0.5, 2, DIM, dtype=np.float32)
SEVEN = tuple(ArmConfig(f"arm{n}", C=0.05 + n / 100) for n in range(7))
REPEATS = 7


def triplets() -> TripletBatch:
    """Events of as many queries."""
    return batch_of(DIM, EVENTS)


def lists() -> TripletBatch:
    """PAIRS events of each query, with one object clicked."""
    query, clicked = (
        np.repeat(unit_rows(DIM, EVENTS // PAIRS + 1, seed), PAIRS, 0)[:EVENTS] for seed in (0, 1)
    )
    return TripletBatch(DenseBlock(query), DenseBlock(clicked), DenseBlock(unit_rows(DIM, EVENTS, 2)))


def decoded(start: int) -> DecodedBatch:
    """BATCH events with ids of their own, whose rows the triplets have already."""
    numbers = np.arange(start, start + BATCH, dtype=np.int64)
    role = RoleColumns(np.zeros(BATCH, np.int32), None)
    weights, ids = np.ones(BATCH, np.float32), numbers.astype(np.uint64)
    pairs, sources = np.zeros(BATCH, np.uint8), np.zeros(BATCH, np.uint64)
    return DecodedBatch(
        0, numbers, numbers, weights, ids, sources, pairs, role, role, role, [], start + BATCH, b""
    )


def step_rate(
    batch: TripletBatch, arms: Sequence[ArmConfig], threads: int, clock: Callable[[], float]
) -> Callable[[], float]:
    """Events per second of the role's step."""
    parts = [(decoded(start), batch.slice(start, start + BATCH)) for start in range(0, EVENTS, BATCH)]

    def run() -> float:
        window, caps = IdWindow(WINDOW), StepWindow(CapsConfig(), 0)
        race = Arms(DIM, arms, METRIC)
        nothing = cast(Any, None)  # no map: rows are mapped
        state = LearnState(Oasis(DIM), window, nothing, caps, None, "above", race, threads=threads)
        begin = clock()
        for part in parts:
            learn(state, *part, None)
        return EVENTS / (clock() - begin)

    return run


def figures() -> list[Figure]:
    """All of them."""
    measured, cores = [], usable_cores()
    for (stream, batch), arms in product((("triplets", triplets()), ("lists", lists())), (7, 1)):
        what = f"the main learner alone, plain OASIS; d = {DIM}, {stream}"
        ours, alone = (step_rate(batch, SEVEN[:n], 1, time.process_time) for n in (arms, 0))
        name = f"with_{arms}_arms_{stream}"
        one = ratio_figure(f"one_core_{name}", f"{what}, one thread", ours, alone, REPEATS)
        ours, alone = (step_rate(batch, SEVEN[:n], cores, time.perf_counter) for n in (arms, 0))
        both = ratio_figure(f"step_{name}", f"{what}, {cores} cores", ours, alone, REPEATS)
        more = {"two_idle_cores": min(1.0, 2 * one.value), "load": round(os.getloadavg()[0], 2)}
        measured += [one, replace(both, detail=both.detail | more)]
    return measured
