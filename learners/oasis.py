"""OASIS: online passive-aggressive learning of a bilinear similarity, on sparse and dense vectors.

S_W(a, b) = a^T W b; for a triplet (q, c, s): V = q (c - s)^T, loss l = max(0, 1 - S_W(q, c) + S_W(q, s)),
tau = min(C, l / ||V||_F^2), W <- W + tau V, starting from W = I (Chechik, Sharma, Shalit, Bengio: Large scale
online learning of image similarity through ranking, JMLR 11 (2010), sections 2 and 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from learners import base
from learners.block import DenseBlock, Float32s, TripletBatch
from learners.errors import ConfigError, require_positive
from learners.kernels.oasis import step_sparse
from learners.outcome import StepInfo
from learners.steps import Steps, taken_steps


@dataclass(frozen=True, slots=True)
class OasisConfig:
    """Settings of OASIS.

    C: aggressiveness, > 0, an upper bound of tau; the papers use 0.1.
    symmetric: "online" adds (V + V^T)/2, so W stays symmetric bit for bit (section 6); "off" is plain OASIS.
    psd_every: project W onto the symmetric PSD matrices after each so many accepted events; 0 never. Refused
    above `MAX_FULL_DIM` dimensions, where one projection takes minutes. The projection calls LAPACK: its bits
    repeat on one machine and library, not across them.
    start: the diagonal of W_0, float32 [dim], > 0; None for that of I.
    Raises ConfigError.
    """

    C: float = 0.1
    symmetric: Literal["off", "online"] = "off"
    psd_every: int = 0
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("C", self.C)
        if self.symmetric not in ("off", "online"):
            raise ConfigError(f'symmetric must be "off" or "online", not {self.symmetric!r}')
        base.require_period(self.psd_every)


class Oasis(base.MatrixLearner[OasisConfig]):
    """A learned similarity q^T W p of `dim`-dimensional vectors.

    C, the aggressiveness, bounds tau, the share of q (c - s)^T that one triplet adds to W. A small C needs
    more clicks and forgives wrong ones; from loss / ||V||^2 on, .5 for unit vectors at right angles, a single
    triplet is learned as a whole.

    >>> import numpy as np
    >>> learner = Oasis(3, OasisConfig(C=0.5))
    >>> query, clicked, skipped = np.eye(3, dtype=np.float32)
    >>> learner.learn_one(query, clicked, skipped).tau.tolist()
    [0.5]
    >>> learner.similarity(query[None], np.stack([clicked, skipped])).tolist()
    [[0.5, -0.5]]
    """

    DEFAULT: ClassVar[OasisConfig] = OasisConfig()
    KNOWN: ClassVar[base.KnownAnswer] = base.KnownAnswer(
        OasisConfig(C=0.25), ((1, 0), (0, 1), (1, 0)), 2.0, ((0.75, 0.25), (0, 1))
    )

    @property
    def _symmetric(self) -> bool:
        return self.config.symmetric == "online"

    def _learn(self, batch: TripletBatch, weights: base.Doubles) -> StepInfo:
        info = StepInfo.empty(len(batch))

        def step(start: int, budget: int, steps: base.StepArrays) -> Any:
            rows = batch.slice(start, len(batch))
            triplets = [block.kernel_rows() for block in (rows.query, rows.clicked, rows.skipped)]
            if isinstance(rows.query, DenseBlock):
                return self._step_dense(budget, triplets, weights[start:], steps)
            settings = (self.config.C, self._symmetric, budget, *triplets, weights[start:], steps)
            return step_sparse(self.settled().reshape(-1), self.dim, *settings)

        self._up_to_projections(info, step)
        return info

    def taken(self, batch: TripletBatch, info: StepInfo, weights: base.Weights = None) -> Sequence[Steps]:
        """Step sizes, queries and errors c - s of what updated; tau has taken the weights in already."""
        return taken_steps(batch, info)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        base.replay_rank_one(self.base, self._symmetric, steps, self.pending)


class OasisByQuery(Oasis):
    """Plain OASIS whose steps on dense rows of one query in a row, as those of a list, are added as one:
    rounded otherwise, with other bits than `Oasis` or a `replay` has."""

    SUMS: ClassVar[bool] = True
