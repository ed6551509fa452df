"""Which events of a batch every learner rejects, told without learning them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learners.batch import TripletBatch
from learners.block import DenseBlock
from learners.kernels.faults import fault_sparse
from learners.kernels.omks_blocks import fault_dense
from learners.spread import fault_weights


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
