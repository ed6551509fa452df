"""Faults of rows and weights, found without a step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, TripletBatch
from learners.kernels.checks import MAGNITUDE, MAX_MAGNITUDE, NONE, NOT_FINITE, fault_sparse
from learners.kernels.omks_blocks import fault_dense, scatter_sparse
from learners.outcome import StepInfo

WEIGHT_FAULTS = [MAGNITUDE, NOT_FINITE, MAGNITUDE]
"""Of a weight below 0, one that is no number, one that is too large: the first that holds."""


def spread_rows(block: Block, reason: NDArray[np.uint8]) -> Float32s:
    """The rows, dense (those of a dense block themselves); a fault of a row is put into `reason` where there
    is none yet, and a sparse row then stays 0."""
    if isinstance(block, DenseBlock):
        fault_dense(block.values, reason)
        return block.values
    rows = np.zeros((len(block), block.dim), np.float32)
    scatter_sparse(block.kernel_rows(), reason, rows)
    return rows


def fault_weights(weights: NDArray[np.float64], reason: NDArray[np.uint8]) -> None:
    """The fault of each weight, put into `reason` where the rows of its event have none."""
    fault = np.select([weights < 0, ~np.isfinite(weights), weights > MAX_MAGNITUDE], WEIGHT_FAULTS, NONE)
    reason[...] = np.where(reason == NONE, fault, reason)


def faults_of(batch: TripletBatch, weights: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The `Reason` of each event, uint8 [n], NONE where it is sound; the same that a step gives.

    weights: float64 [n], or empty where all are 1.
    """
    reason = np.zeros(len(batch), np.uint8)
    for block in (batch.query, batch.clicked, batch.skipped):
        if isinstance(block, DenseBlock):
            fault_dense(block.values, reason)
        else:
            fault_sparse(block.dim, block.kernel_rows(), reason)
    if len(weights):
        fault_weights(weights, reason)
    return reason


def spread_triplets(
    batch: TripletBatch, weights: NDArray[np.float64], info: StepInfo, part: slice
) -> tuple[list[Float32s], tuple[Any, ...]]:
    """(the rows of a part of a batch, dense: queries, clicked, skipped; where kernels write of it in
    `info`, with the faults of rows and weights already in it). weights: float64, those of the part."""
    reason = info.reason[part]
    rows = [spread_rows(block, reason) for block in (batch.query, batch.clicked, batch.skipped)]
    fault_weights(weights, reason)
    return rows, (info.outcome[part], info.loss[part], info.tau[part], reason)
