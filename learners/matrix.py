"""The state of learners of one matrix: W, how many events were accepted, and steps of rank one on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.block import DenseBlock, Float32s, TripletBatch, as_block
from learners.errors import BlockError, ConfigError, StateError
from learners.kernels.oasis_dense import replay_dense
from learners.kernels.oasis_sparse import replay_sparse
from learners.psd import project_psd
from learners.steps import StepBatch, Steps


def to_write(array: NDArray[Any], name: str, copy: bool) -> NDArray[Any]:
    """The array as steps write it: a copy in C order, or itself, for which it must be writable. Raises
    StateError with its name."""
    if copy:
        return np.array(array, order="C")
    if not (array.flags.writeable and array.flags.c_contiguous and array.flags.aligned):
        raise StateError(f"{name} cannot be taken over: it is read-only or not contiguous; use copy=True")
    return array


CHECKED = 1 << 22
"""Numbers of a matrix that are looked at together."""


def identity(dim: int) -> Float32s:
    """W = I, float32 [dim, dim], in fresh pages. Raises ConfigError below 1 dimension or beyond int32."""
    if not 1 <= dim <= np.iinfo(np.int32).max:
        raise ConfigError(f"dim must be at least 1, not {dim}")
    W = np.zeros((dim, dim), np.float32)
    np.fill_diagonal(W, 1.0)
    return W


def as_state(events: int, **matrices: Float32s) -> dict[str, NDArray[Any]]:
    """Read-only views of the matrices, and `events` as int64 []."""
    views = {name: matrix.view() for name, matrix in matrices.items()}
    for view in views.values():
        view.flags.writeable = False
    return {**views, "events": np.array(events, np.int64)}


def checked_matrix(arrays: Mapping[str, NDArray[Any]], name: str = "W") -> Float32s:
    """The square, finite float32 matrix of that name itself. Raises StateError naming what is missing or does
    not fit."""
    W = arrays.get(name)
    if W is None:
        raise StateError(f"array {name} is missing")
    if W.ndim != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise StateError(f"array {name} has shape {W.shape}: it must be square")
    if W.dtype != np.float32:
        raise StateError(f"array {name} has dtype {W.dtype}: it must be float32")
    if not all(np.isfinite(rows).all() for rows in np.array_split(W, -(-W.size // CHECKED))):
        raise StateError(f"array {name} holds values that are not finite")
    return W


def state_matrix(arrays: Mapping[str, NDArray[Any]], name: str = "W", copy: bool = True) -> Float32s:
    """The matrix of that name to go on from: copied, or taken over, for which it must be writable. Raises
    StateError."""
    return to_write(checked_matrix(arrays, name), name, copy)


def symmetric_matrix(arrays: Mapping[str, NDArray[Any]], name: str = "W", copy: bool = True) -> Float32s:
    """`state_matrix`, which must be symmetric to the bit. Raises StateError."""
    W = state_matrix(arrays, name, copy)
    step = max(1, CHECKED // len(W))
    for start in range(0, len(W), step):
        if not np.array_equal(W[start : start + step], W[:, start : start + step].T):
            raise StateError(f"array {name} is not symmetric: it belongs to another algorithm")
    return W


def state_events(arrays: Mapping[str, NDArray[Any]]) -> int:
    """The number of accepted events. Raises StateError."""
    events = arrays.get("events")
    if events is None:
        raise StateError("array events is missing")
    if events.dtype != np.int64 or events.size != 1 or int(events.reshape(-1)[0]) < 0:
        raise StateError(f"array events must be one int64 >= 0, not {events.dtype} {events.shape}")
    return int(events.reshape(-1)[0])


def one_triplet(query: Any, clicked: Any, skipped: Any) -> TripletBatch:
    """Three vectors, each anything that `as_block` reads, as a batch of one. Raises BlockError."""
    batch = TripletBatch(as_block(query), as_block(clicked), as_block(skipped))
    if len(batch) != 1:
        raise BlockError(f"learn_one takes one triplet, not {len(batch)}: use learn_many")
    return batch


def checked_weights(batch: TripletBatch, dim: int, weights: NDArray[Any] | None) -> NDArray[np.float64]:
    """The weights of a batch as kernels take them: float64 [n], or empty for 1 each. Raises BlockError on
    triplets of another dimension than dim, or another number of weights."""
    if batch.dim != dim:
        raise BlockError(f"triplets have {batch.dim} dimensions, the learner {dim}: map them alike")
    scale = np.zeros(0) if weights is None else np.ascontiguousarray(weights, np.float64)
    if weights is not None and scale.shape != (len(batch),):
        raise BlockError(f"weights have shape {scale.shape}: give one per triplet ({len(batch)})")
    return scale


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
