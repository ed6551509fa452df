"""Dissim-OASIS: online passive-aggressive learning of a distance, on sparse and dense vectors.

S'(a, b) = -(a - b)^T W (a - b); loss l = max(0, 1 - S'(q, c) + S'(q, s)), tau = min(C, l / ||V'||_F^2),
W <- W + tau V', V' = v v^T - u u^T with u = q - c, v = q - s, from W = I (Chechik, Sharma, Shalit, Bengio:
Large scale online learning of image similarity through ranking, JMLR 11 (2010), section 6, which prints V'
with the opposite sign). W stays symmetric bit for bit; like OASIS it may become indefinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.batch import TripletBatch
from learners.block import Block, DenseBlock, Int64s
from learners.distance import DistanceLearner, Pairs, pairs_of
from learners.errors import ConfigError
from learners.kernels.distance_dense import step_pairs_dense
from learners.kernels.distance_sparse import step_pairs_sparse
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM, project_psd
from learners.rank_one import replay_rank_one
from learners.steps import StepBatch, Steps, taken_steps

UNBOUNDED = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class DissimConfig:
    """Settings of Dissim-OASIS.

    C: aggressiveness, > 0, an upper bound of tau. psd_every: project W onto the PSD matrices after each so
    many accepted events; 0 never; refused above `MAX_FULL_DIM` dimensions. Raises ConfigError.
    """

    C: float = 0.1
    psd_every: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.C) and self.C > 0):
            raise ConfigError(f"C must be a finite number above 0, not {self.C}")
        if self.psd_every < 0:
            raise ConfigError(f"psd_every must be 0 (never) or a number of events, not {self.psd_every}")


class Dissim(DistanceLearner):
    """Dissim-OASIS. An event is degenerate where e = 0 (c = s) or m = 0 (q lies midway between c and s)."""

    config: DissimConfig

    def __init__(self, dim: int, config: DissimConfig = DissimConfig()) -> None:
        """Start from W = I. Raises ConfigError."""
        _check(dim, config)
        super().__init__(dim)
        self.config = config

    def _apply(self, pairs: Pairs, weights: NDArray[np.float64], info: StepInfo, start: int) -> int:
        """Steps up to the next projection, which is done."""
        every = self.config.psd_every
        budget = every - self.events % every if every else UNBOUNDED
        rest, part = slice(start, None), pairs.slice(start, len(info))
        steps = (info.outcome[rest], info.loss[rest], info.tau[rest], info.reason[rest])
        rows = (part.m.kernel_rows(), part.e.kernel_rows(), part.squares(), weights[rest], steps)
        if isinstance(part.m, DenseBlock):
            consumed, accepted = step_pairs_dense(self.W, self.config.C, budget, *rows)
        else:
            flat, batch = self.W.reshape(-1), part.batch
            triplets = tuple(block.kernel_rows() for block in (batch.query, batch.clicked, batch.skipped))
            consumed, accepted = step_pairs_sparse(flat, self.dim, self.config.C, budget, triplets, *rows)
        self.events += accepted
        if accepted == budget:
            self.W[...] = project_psd(self.W)
            info.projected.append(start + int(consumed))
        return int(consumed)

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[StepBatch]:
        """Step sizes, m as query and e as error of what updated; tau has taken the weights in already."""
        return taken_steps(batch, info, _sides)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        replay_rank_one(self.W, True, steps)

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: DissimConfig = DissimConfig(), copy: bool = True
    ) -> Self:
        """Go on from the arrays of `state`. copy=False takes W over without a copy (it must be writable).

        Raises StateError naming the array that is missing or does not fit.
        """
        learner = cls.__new__(cls)._take_over(arrays, copy)
        _check(learner.dim, config)
        learner.config = config
        return learner

    def clone(self) -> Self:
        """An independent copy, with its own W."""
        return self.from_state(self.state(), self.config)

    @staticmethod
    def warm_up() -> None:
        """Load the kernels and check each on a known answer before the first event. Raises RuntimeError."""
        rows = np.eye(2, dtype=np.float32)
        for kind in (np.asarray, sparse.csr_array):
            learner = Dissim(2, DissimConfig(C=0.25))
            info = learner.learn_one(*(kind(rows[n : n + 1]) for n in (0, 1, 0)))
            # u = (1, -1), v = 0: V' = -u u^T, loss 3, tau = min(1/4, 3/4)
            if learner.W.tolist() != [[0.75, 0.25], [0.25, 0.75]] or info.loss.tolist() != [3.0]:
                raise RuntimeError(
                    "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
                )


def _sides(batch: TripletBatch, rows: Int64s) -> tuple[Block, Block]:
    """m and e of rows that were accepted."""
    pairs = pairs_of(batch.take(rows), np.empty(len(rows), np.uint8))
    return pairs.m, pairs.e


def _check(dim: int, config: DissimConfig) -> None:
    if config.psd_every and dim > MAX_FULL_DIM:
        raise ConfigError(
            f"psd_every needs dim <= {MAX_FULL_DIM}, not {dim}: set it to 0 and use the serving form"
        )
