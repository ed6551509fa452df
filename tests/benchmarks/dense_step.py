"""The OASIS step on dense rows, whose updates are delayed, over the same step event by event, and PyTorch's.

Rates are of processor time, one thread each: other work on the machine takes wall time from both, but not at
the same moments. PyTorch is measured where the interpreter has it (pip install torch, the build for CPUs).
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from learners import DenseBlock, Oasis, OasisConfig, TripletBatch
from learners.block import Float32s
from learners.hedge import HedgeConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.outcome import StepInfo
from tests.benchmarks.harness import Figure, ratio_figure
from tests.benchmarks.per_event import step_per_event

C = 0.1
EVENTS = {384: 6_000, 768: 2_000, 1536: 600}
"""Dimension -> triplets of one run: all of them update."""

MAPS, WIDTH, ROUNDS = 4, 1_000, 256
"""Maps of OMKS, columns of each, triplets of one run; the maps of the paper's 36 are as large, and alike."""

TORCH_DIM = 768


def unit_rows(dim: int, count: int, seed: int) -> Float32s:
    """Random rows of unit length, float32 [count, dim]."""
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def batch_of(dim: int, count: int) -> TripletBatch:
    """Random triplets of unit rows."""
    return TripletBatch(*(DenseBlock(unit_rows(dim, count, seed)) for seed in range(3)))


def _rate(events: int, work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return events / (time.process_time() - begin)


def delayed(batch: TripletBatch) -> Callable[[], float]:
    """Events per second of the learner, from W = I."""

    def run() -> float:
        learner = Oasis(batch.dim, OasisConfig(C))
        return _rate(len(batch), lambda: (learner.learn_many(batch), learner.settled()))

    return run


def per_event(batch: TripletBatch) -> Callable[[], float]:
    """The same of the step event by event."""

    def run() -> float:
        W, info = np.eye(batch.dim, dtype=np.float32), StepInfo.empty(len(batch))
        rows = [block.kernel_rows() for block in (batch.query, batch.clicked, batch.skipped)]
        steps = (info.outcome, info.loss, info.tau, info.reason)
        return _rate(len(batch), lambda: step_per_event(W, C, *rows, np.zeros(0), steps))

    return run


def delayed_maps(batch: TripletBatch) -> Callable[[], float]:
    """OMKS over maps, from W = I in each."""
    config = OmksMapsConfig((WIDTH,) * MAPS, C=C, hedge=HedgeConfig("share"))

    def run() -> float:
        learner = OmksMaps(MAPS * WIDTH, config)
        return _rate(len(batch), lambda: (learner.learn_many(batch), learner.settled()))

    return run


def per_event_maps(batch: TripletBatch) -> Callable[[], float]:
    """The same of a step event by event in each block, without its weights."""
    values = [np.asarray(block.kernel_rows()) for block in (batch.query, batch.clicked, batch.skipped)]
    blocks = [
        [np.ascontiguousarray(rows[:, start : start + WIDTH]) for rows in values]
        for start in range(0, MAPS * WIDTH, WIDTH)
    ]

    def run() -> float:
        matrices, info = [np.eye(WIDTH, dtype=np.float32) for _ in blocks], StepInfo.empty(len(batch))
        steps = (info.outcome, info.loss, info.tau, info.reason)

        def work() -> None:
            for W, rows in zip(matrices, blocks, strict=True):
                step_per_event(W, C, *rows, np.zeros(0), steps)

        return _rate(len(batch), work)

    return run


def pytorch(batch: TripletBatch) -> Callable[[], float]:
    """The same step as one writes it in PyTorch: a matrix-vector product and `addr_` in place, one thread."""
    import torch

    torch.set_num_threads(1)
    rows = [torch.from_numpy(np.asarray(block.kernel_rows())) for block in (batch.query, batch.clicked)]
    errors = rows[1] - torch.from_numpy(np.asarray(batch.skipped.kernel_rows()))

    def run() -> float:
        W = torch.eye(batch.dim)

        def work() -> None:
            for q, e in zip(rows[0], errors, strict=True):
                loss = 1.0 - float(torch.dot(q, W @ e))
                if loss > 0:
                    norm = float(torch.dot(q, q) * torch.dot(e, e))
                    W.addr_(q, e, alpha=min(C, loss / norm))

        with torch.inference_mode():
            return _rate(len(batch), work)

    return run


def figures() -> list[Figure]:
    """All of them; that against PyTorch only where it is installed."""
    measured = []
    for dim, count in EVENTS.items():
        batch = batch_of(dim, count)
        what = (
            f"the step event by event, W read and written at each; d = {dim}, {count:,} triplets, one thread"
        )
        name = f"dense_step_vs_per_event_{dim}"
        measured.append(ratio_figure(name, what, delayed(batch), per_event(batch), repeats=11))
    several = batch_of(MAPS * WIDTH, ROUNDS)
    what = f"the step event by event in each map; {MAPS} maps of {WIDTH:,} columns, {ROUNDS} triplets"
    measured.append(
        ratio_figure(
            "omks_maps_vs_per_event_1000", what, delayed_maps(several), per_event_maps(several), repeats=7
        )
    )
    if importlib.util.find_spec("torch") is None:
        sys.stderr.write(
            "PyTorch is not here: dense_step_vs_pytorch_cpu is left as it was (pip install torch)\n"
        )
        return measured
    batch = batch_of(TORCH_DIM, EVENTS[TORCH_DIM])
    what = f"the same step in PyTorch, W @ e and addr_, one thread; d = {TORCH_DIM}"
    return [
        *measured,
        ratio_figure("dense_step_vs_pytorch_cpu", what, delayed(batch), pytorch(batch), repeats=7),
    ]
