"""OASIS: online passive-aggressive learning of a bilinear similarity, on sparse and dense vectors.

S_W(a, b) = a^T W b; for a triplet (q, c, s): V = q (c - s)^T, loss l = max(0, 1 - S_W(q, c) + S_W(q, s)),
tau = min(C, l / ||V||_F^2), W <- W + tau V, starting from W = I (Chechik, Sharma, Shalit, Bengio: Large scale
online learning of image similarity through ranking, JMLR 11 (2010), sections 2 and 6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import DenseBlock, Float32s, TripletBatch, as_block, bilinear
from learners.errors import ConfigError
from learners.kernels.oasis_dense import step_dense
from learners.kernels.oasis_sparse import step_sparse
from learners.matrix import (
    as_state,
    checked_weights,
    identity,
    one_triplet,
    replay_rank_one,
    state_events,
    state_matrix,
)
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM, project_psd
from learners.steps import StepBatch, Steps, taken_steps

UNBOUNDED = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class OasisConfig:
    """Settings of OASIS.

    C: aggressiveness, > 0, an upper bound of tau; the papers use 0.1.
    symmetric: "online" adds (V + V^T)/2, so W stays symmetric bit for bit (section 6); "off" is plain OASIS.
    psd_every: project W onto the symmetric PSD matrices after each so many accepted events; 0 never. Refused
    above `MAX_FULL_DIM` dimensions, where one projection takes minutes. The projection calls LAPACK: its bits
    repeat on one machine and library, not across them.
    Raises ConfigError.
    """

    C: float = 0.1
    symmetric: Literal["off", "online"] = "off"
    psd_every: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.C) and self.C > 0):
            raise ConfigError(f"C must be a finite number above 0, not {self.C}")
        if self.symmetric not in ("off", "online"):
            raise ConfigError(f'symmetric must be "off" or "online", not {self.symmetric!r}')
        if self.psd_every < 0:
            raise ConfigError(f"psd_every must be 0 (never) or a number of events, not {self.psd_every}")


class Oasis:
    """A learned similarity of `dim`-dimensional vectors.

    W: float32 [dim, dim], C-contiguous, the learned matrix (4 dim^2 bytes; numpy asks for huge pages by
    itself). events: how many events were accepted so far, that is not rejected; it times `psd_every`.
    Not safe for two threads at once: a step writes W in place, with the GIL released.
    """

    W: Float32s
    config: OasisConfig
    events: int

    def __init__(self, dim: int, config: OasisConfig = OasisConfig()) -> None:
        """Start from W = I, where the similarity is the dot product. Raises ConfigError."""
        _check(dim, config)
        self.W, self.config, self.events = identity(dim), config, 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.W.shape[0])

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each); the info holds one entry.

        Raises BlockError when the vectors do not fit each other or the learner; a malformed row is no error
        but an outcome.
        """
        return self.learn_many(one_triplet(query, clicked, skipped))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, bit for bit as `learn_one` of each would, also across projections of
        `psd_every`.

        weights: [n] importance, scales C per event; 0 makes an event passive, negative or not finite rejects
        it. Raises BlockError on another dimension or number of weights.
        """
        scale, info, done = checked_weights(batch, self.dim, weights), StepInfo.empty(len(batch)), 0
        while done < len(batch):
            done += self._apply(batch, scale, info, done)
        return info

    def _apply(self, batch: TripletBatch, weights: NDArray[np.float64], info: StepInfo, start: int) -> int:
        """Steps from row `start` up to the next projection, which is done; the rows consumed."""
        every = self.config.psd_every
        budget = every - self.events % every if every else UNBOUNDED
        rest = slice(start, None)
        settings = (self.config.C, self.config.symmetric == "online", budget)
        steps = (info.outcome[rest], info.loss[rest], info.tau[rest], info.reason[rest])
        rows = batch.slice(start, len(batch))
        triplets = [block.kernel_rows() for block in (rows.query, rows.clicked, rows.skipped)]
        if isinstance(rows.query, DenseBlock):
            consumed, accepted = step_dense(self.W, *settings, *triplets, weights[rest], steps)
        else:
            flat = self.W.reshape(-1)
            consumed, accepted = step_sparse(flat, self.dim, *settings, *triplets, weights[rest], steps)
        self.events += accepted
        if accepted == budget:
            self.W[...] = project_psd(self.W)
            info.projected.append(start + int(consumed))
        return int(consumed)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[StepBatch]:
        """Step sizes, queries and errors c - s of what updated; tau has taken the weights in already."""
        return taken_steps(batch, info)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        replay_rank_one(self.W, self.config.symmetric == "online", steps)

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores q^T W p, float32 [queries, items]; for numpy arrays, scipy CSR and blocks.

        Raises BlockError on another dimension or an index out of range. Computed by BLAS in blocks of
        queries: its last bits may depend on how many are asked at once.
        """
        return bilinear(self.W, as_block(queries, self.dim), as_block(items, self.dim))

    def state(self) -> dict[str, NDArray[Any]]:
        """{"W": float32 [dim, dim], "events": int64 []}: read-only views, which change with the next step."""
        return as_state(self.events, W=self.W)

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: OasisConfig = OasisConfig(), copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes W over without a copy (it must be writable).

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        W, events = state_matrix(arrays, copy=copy), state_events(arrays)
        _check(W.shape[0], config)
        learner = cls.__new__(cls)
        learner.W, learner.config, learner.events = W, config, events
        return learner

    def clone(self) -> Self:
        """An independent copy, with its own W."""
        return self.from_state(self.state(), self.config)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        first, second = (
            DenseBlock(np.eye(2, dtype=np.float32)[:1]),
            DenseBlock(np.eye(2, dtype=np.float32)[1:]),
        )
        dense = TripletBatch(first, second, first)
        for batch in (
            dense,
            TripletBatch(*(as_block(sparse.csr_array(b.values)) for b in (first, second, first))),
        ):
            learner = Oasis(2, OasisConfig(C=0.25))
            info = learner.learn_many(batch)
            if learner.W.tolist() != [[0.75, 0.25], [0.0, 1.0]] or info.loss.tolist() != [2.0]:
                raise RuntimeError(
                    "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
                )


def _check(dim: int, config: OasisConfig) -> None:
    if config.psd_every and dim > MAX_FULL_DIM:
        raise ConfigError(
            f"psd_every needs dim <= {MAX_FULL_DIM}, not {dim}: set it to 0 and use the serving form"
        )
