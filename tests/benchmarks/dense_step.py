"""The OASIS step on dense rows, whose updates are delayed, over the same step event by event, and PyTorch's.

Rates are of processor time, one thread each: other work on the machine takes wall time from both, but not at
the same moments. `ratio_of_arithmetic` is what the ratio would be if the fused products of a step, 2 d^2,
took all of its time at the speed of the tile alone (`tile_per_second`): the largest there can be. The step
event by event is up to a third faster where W begins at a line of memory; here it begins where NumPy puts a
large array, and `ratio_aligned` is against the other. The delayed step runs alike at both. PyTorch is
measured where the interpreter has it (pip install torch, the build for CPUs).
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from learners import DenseBlock, Oasis, OasisConfig, TripletBatch
from learners.block import Float32s
from learners.hedge import HedgeConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.outcome import StepInfo
from tests.benchmarks.harness import Figure, paired_ratio, ratio_figure
from tests.benchmarks.per_event import step_per_event
from tests.benchmarks.tile_alone import products_per_second

C = 0.1
EVENTS = {384: 6_000, 768: 2_000, 1536: 600}
"""Dimension -> triplets of one run: all of them update."""

MAPS, WIDTH, ROUNDS = 4, 1_000, 256
"""Maps of OMKS, columns of each, triplets of one run; the maps of the paper's 36 are as large, and alike."""

TORCH_DIM = 768

LINE, NUMPY_BEGINS = 64, 16
"""Bytes of a line of memory, and bytes behind one at which NumPy's large arrays begin: what malloc keeps of
them lies before."""


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


def identity(dim: int, behind: int) -> Float32s:
    """float32 [dim, dim] that begins so many bytes behind the start of a line of memory."""
    room = np.zeros(4 * dim * dim + 2 * LINE, np.uint8)
    start = -room.ctypes.data % LINE + behind
    W = room[start : start + 4 * dim * dim].view(np.float32).reshape(dim, dim)
    np.fill_diagonal(W, 1)
    return W


def delayed(batch: TripletBatch) -> Callable[[], float]:
    """Events per second of the learner, from W = I."""

    def run() -> float:
        learner = Oasis(batch.dim, OasisConfig(C))
        return _rate(len(batch), lambda: (learner.learn_many(batch), learner.settled()))

    return run


def per_event(batch: TripletBatch, behind: int = NUMPY_BEGINS) -> Callable[[], float]:
    """The same of the step event by event."""

    def run() -> float:
        W, info = identity(batch.dim, behind), StepInfo.empty(len(batch))
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


def per_event_maps(batch: TripletBatch, behind: int = NUMPY_BEGINS) -> Callable[[], float]:
    """The same of a step event by event in each block, without its weights."""
    values = [np.asarray(block.kernel_rows()) for block in (batch.query, batch.clicked, batch.skipped)]
    blocks = [
        [np.ascontiguousarray(rows[:, start : start + WIDTH]) for rows in values]
        for start in range(0, MAPS * WIDTH, WIDTH)
    ]

    def run() -> float:
        matrices, info = [identity(WIDTH, behind) for _ in blocks], StepInfo.empty(len(batch))
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


Run: TypeAlias = Callable[[], float]


def _against(name: str, what: str, ours: Run, theirs: tuple[Run, Run], repeats: int, products: int) -> Figure:
    """A figure with the bound of its ratio; theirs: W as NumPy puts it, and aligned. products: fused ones of
    an event."""
    figure, tile = ratio_figure(name, what, ours, theirs[0], repeats), products_per_second()
    aligned, _, _ = paired_ratio(ours, theirs[1], repeats)
    more = {
        "ratio_aligned": round(aligned, 3),
        "tile_per_second": round(tile),
        "ratio_of_arithmetic": round(tile / products / figure.detail["theirs_per_second_median"], 3),
    }
    return replace(figure, detail=figure.detail | more)


def figures() -> list[Figure]:
    """All of them; that against PyTorch only where it is installed."""
    measured = []
    for dim, count in EVENTS.items():
        batch = batch_of(dim, count)
        what = (
            f"the step event by event, W read and written at each; d = {dim}, {count:,} triplets, one thread"
        )
        name = f"dense_step_vs_per_event_{dim}"
        theirs = per_event(batch), per_event(batch, 0)
        measured.append(_against(name, what, delayed(batch), theirs, 11, 2 * dim**2))
    several = batch_of(MAPS * WIDTH, ROUNDS)
    what = f"the step event by event in each map; {MAPS} maps of {WIDTH:,} columns, {ROUNDS} triplets"
    name, theirs = "omks_maps_vs_per_event_1000", (per_event_maps(several), per_event_maps(several, 0))
    measured.append(_against(name, what, delayed_maps(several), theirs, 7, 2 * MAPS * WIDTH**2))
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
