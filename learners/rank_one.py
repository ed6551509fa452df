"""Steps of rank one taken again on a matrix, by the kernels of the learners that took them."""

from __future__ import annotations

from learners.block import DenseBlock, Float32s
from learners.errors import BlockError
from learners.kernels.replay_dense import replay_dense
from learners.kernels.replay_sparse import replay_sparse
from learners.psd import project_psd
from learners.steps import StepBatch, Steps


def replay_rank_one(W: Float32s, symmetric: bool, steps: Steps) -> None:
    """W <- W + tau V for each step in order, in place; V = q e^T, or its symmetric part; then the projection
    that `steps` may tell of.

    Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
    those before it are applied then.
    """
    if not isinstance(steps, StepBatch):
        raise BlockError("this learner takes steps of rank one again, not triplets: take its own")
    dim = W.shape[0]
    if steps.dim != dim:
        raise BlockError(f"steps have {steps.dim} dimensions, the learner {dim}: take its own")
    rows = (steps.query.kernel_rows(), steps.error.kernel_rows())
    if isinstance(steps.query, DenseBlock):
        taken = replay_dense(W, symmetric, steps.tau, *rows)
    else:
        taken = replay_sparse(W.reshape(-1), dim, symmetric, steps.tau, *rows)
    if taken < len(steps):
        raise BlockError(f"step {taken} of {len(steps)} is malformed: steps before it are applied")
    if steps.project:
        W[...] = project_psd(W)
