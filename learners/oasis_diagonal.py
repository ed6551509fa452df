"""OASIS restricted to a diagonal: the passive-aggressive step on a weight per column.

S_w(a, b) = sum_j w_j a_j b_j; g = q (.) (c - s), loss l = max(0, 1 - w^T g). On a violating round w <- w +
tau g, tau = min(C, l / ||g||^2): the step of OASIS (Chechik, Sharma, Shalit, Bengio, JMLR 11 (2010), section
2) with W = diag(w), where of V = q (c - s)^T only the diagonal g is left. w = 1 at first, the diagonal of
W_0 = I. It is the rival "OASIS-diagonal" of SOML (Gao et al., AAAI 2014), dense where SOML is sparse: no w_j
is ever brought to 0. As theirs, a step costs the non-zeros of its vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.base import KnownAnswer, started
from learners.block import Float32s
from learners.errors import require_positive, saved_count
from learners.forms.quadratic import DiagonalForm
from learners.kernels.soml import PASSIVE_AGGRESSIVE
from learners.soml import DiagonalLearner, checked_dim, saved_vector


@dataclass(frozen=True, slots=True)
class OasisDiagonalConfig:
    """Settings. C: aggressiveness, > 0, an upper bound of tau. start: w before any event, float32 [dim], > 0;
    None for ones. Raises ConfigError.
    """

    C: float = 0.1
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("C", self.C)


class OasisDiagonal(DiagonalLearner[OasisDiagonalConfig]):
    """OASIS of `dim`-dimensional vectors with a diagonal matrix. An event with g = 0 is degenerate where it
    has a loss: there is no direction to go."""

    DEFAULT: ClassVar[OasisDiagonalConfig] = OasisDiagonalConfig()
    # g = (0.5, 0), loss 1 - 0.5, tau = min(1, 0.5 / 0.25), w = (1 + 0.5, 1)
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        OasisDiagonalConfig(C=1.0), ((1, 0), (0.5, 0), (0, 1)), 0.5, ((1.5, 0), (0, 1))
    )
    RULE = PASSIVE_AGGRESSIVE

    @property
    def w(self) -> NDArray[np.float64]:
        """float64 [dim], so that small steps beside 1 are not lost."""
        return self._state[0]

    @property
    def updates(self) -> int:
        """How many events changed w."""
        return self._rounds[0]

    @property
    def evidence(self) -> int:
        """The events that changed w."""
        return self.updates

    @property
    def _constants(self) -> tuple[float, float, float]:
        return float(self.config.C), 0.0, 0.0

    def _start(self, dim: int) -> None:
        first = started(checked_dim(dim), self.config.start).astype(np.float64)
        self._state, self._rounds = (first, np.zeros(0, np.int64)), (0, 0)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"w": self.w, "updates": np.array(self.updates, np.int64)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self._state = saved_vector(arrays, "w", np.float64, copy), np.zeros(0, np.int64)
        self._rounds = saved_count(arrays, "updates"), 0

    def form(self, normalised: bool = True) -> DiagonalForm:
        """What is served: the positive semi-definite part of diag(w), which is max(w, 0). A copy."""
        return DiagonalForm(np.maximum(self.w, 0).astype(np.float32), normalised)

    def forget(self, share: float) -> None:
        """w <- start + (1 - share) (w - start), and as much of the updates, rounded down."""
        start = started(self.dim, self.config.start)
        self.w[:] = start + (1 - share) * (self.w - start)
        self._rounds = int((1 - share) * self.updates), 0
