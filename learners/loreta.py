"""LORETA on a shared matrix: W = W_0 + U V^T, where steps of OASIS change a correction of rank r alone.

S_W(a, b) = a^T W b, the hinge loss and the step size tau = min(C, l / ||V||_F^2), V = q (c - s)^T, are those
of OASIS. W_0, float32 [d, d], never changes and may be shared by any number of models: the matrix that many
tenants have in common, or the diagonal of a metric, I where none is given. Then W is of full rank from the
start, and r bounds how far a model may leave what is shared, not what it scores with. The state of a model is
2 d r numbers instead of d^2.

The step is LORETA-1 of Shalit, Weinshall, Chechik: Online learning in the embedded manifold of low-rank
matrices, JMLR 13 (2012), section 4: along the gradient's part in the tangent space, and back by their
retraction of second order. With p = q, e = c - s, a = U^+ q, b = V^+ e, s = a^T b, eta = tau, and q', e' what
lies outside the columns of U, of V:

    U <- U + eta [(1/2 - eta s / 8) (q - q') + (1 - eta s / 2) q'] b^T
    V <- V + eta [(1/2 - eta s / 8) (e - e') + (1 - eta s / 2) e'] a^T

What differs from the paper, and why:

- U^+ = (U^T U)^-1 U^T by Cholesky's factor of the Gram matrix, which is kept up to date, instead of Meyer's
  update of U^+ itself: the same vectors, d r numbers less of state, and no rounding that adds up.
- A correction begins at 0, where no pseudo-inverse exists. While its rank is below r, a step of a new
  direction becomes a new column of U and of V, so the first r of those are OASIS's to rounding; a step whose
  q lies in the columns of U changes V alone, one whose c - s lies in those of V changes U alone, and both
  are exact as well: W + tau q (c - s)^T is then on the manifold.
- Where eta |s| > 1 the retraction is far from the exponential map, and beyond 4 it turns round: eta is cut
  to 1 / |s|. In streams of triplets sampled from labels eta |s| was at most .3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.base import Doubles, KnownAnswer, ScoredByMatrix, identity, saved_square, started
from learners.block import Float32s, TripletBatch, row_blocks
from learners.errors import ConfigError, StateError, require_positive, require_whole, saved, to_write
from learners.faults import spread_triplets
from learners.forms.lowrank import LowRankBase, low_rank_form
from learners.forms.serving import DEFAULT_POWER, ServingForm
from learners.kernels.loreta import step_low_rank
from learners.outcome import StepInfo
from learners.psd import MAX_FULL_DIM

MAX_RANK = 256
"""Above, a step's small systems of r unknowns cost more than all else."""

FITS = 1e-3
"""How far a Gram matrix that is kept up may be from one that is formed anew, of its largest entry; sums in
float32 are off by 1e-5."""


@dataclass(frozen=True, slots=True)
class LoretaConfig:
    """Settings. C: aggressiveness, > 0, an upper bound of tau. rank: r, from 1 to `MAX_RANK`. start: W_0,
    float32 [dim, dim], or its diagonal, float32 [dim], > 0; None for I. Raises ConfigError."""

    C: float = 0.1
    rank: int = 16
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("C", self.C)
        require_whole("rank", self.rank)
        if not 1 <= self.rank <= MAX_RANK:
            raise ConfigError(f"rank must be from 1 to {MAX_RANK}, not {self.rank}")


class Loreta(ScoredByMatrix[LoretaConfig]):
    """A learned similarity q^T (W_0 + U V^T) p of `dim`-dimensional vectors.

    start: W_0, float32 [dim, dim], never written; it is in the state, and models of one `Keyed` share it.
    U, V: float32 [r, dim], the columns of the factors as rows, 0 from `rank` on. gram: float64 [2, r, r], of
    U and V. rank: columns in use. updates: how many events changed them.
    """

    DEFAULT: ClassVar[LoretaConfig] = LoretaConfig()
    SPREADS: ClassVar[bool] = True
    SHARED: ClassVar[tuple[str, ...]] = ("start",)
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        LoretaConfig(C=0.25, rank=1), ((1, 0), (0, 1), (1, 0)), 2.0, ((0.75, 0.25), (0, 1))
    )

    start: Float32s
    U: Float32s
    V: Float32s
    gram: Doubles
    _counts: NDArray[np.int64]

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.start)

    @property
    def rank(self) -> int:
        """The rank that the correction has reached, at most that of the settings."""
        return int(self._counts[0])

    @property
    def updates(self) -> int:
        """How many events changed the correction."""
        return int(self._counts[1])

    @property
    def W(self) -> Float32s:
        """W_0 + U V^T, float32 [dim, dim], as a new array."""
        k = self.rank
        return np.asarray(self.start + self.U[:k].T @ self.V[:k], np.float32)

    def _start(self, dim: int) -> None:
        if dim > MAX_FULL_DIM:
            raise ConfigError(
                f"loreta takes at most {MAX_FULL_DIM} dimensions, not {dim}: it corrects a full matrix"
            )
        given, rank = self.config.start, self.config.rank
        if given is not None and given.ndim == 2:
            if given.shape != (dim, dim) or given.dtype != np.float32 or not np.isfinite(given).all():
                raise ConfigError(f"start must be finite float32 [{dim}, {dim}], not {given.shape}")
            self.start = np.ascontiguousarray(given)
        else:
            self.start = identity(dim)
            np.fill_diagonal(self.start, started(dim, given))
        self.U, self.V = np.zeros((rank, dim), np.float32), np.zeros((rank, dim), np.float32)
        self.gram, self._counts = np.zeros((2, rank, rank)), np.zeros(2, np.int64)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"start": self.start, "U": self.U, "V": self.V, "gram": self.gram, "counts": self._counts}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        rank = self.config.rank
        start = saved_square(arrays, "start")
        self.start = start.copy() if copy else start
        factors, grams = (rank, self.dim), (2, rank, rank)
        self.U = to_write(saved(arrays, "U", np.float32, factors), "U", copy)
        self.V = to_write(saved(arrays, "V", np.float32, factors), "V", copy)
        self.gram = to_write(saved(arrays, "gram", np.float64, grams), "gram", copy)
        self._counts = to_write(saved(arrays, "counts", np.int64, (2,)), "counts", copy)
        if not 0 <= self.rank <= min(rank, self.updates):
            raise StateError(
                f"array counts holds rank {self.rank} after {self.updates} updates: it was altered"
            )
        most = np.sqrt(float(np.finfo(np.float32).max) / (4 * rank))
        for name, array, bound in (("U", self.U, most), ("V", self.V, most), ("start", start, most * most)):
            if not max(float(array.max()), -float(array.min())) <= bound:
                raise StateError(f"array {name} holds numbers too large to be multiplied: it was altered")
        for kept, rows in zip(self.gram, (self.U, self.V), strict=True):
            formed = np.dot(rows, rows.T)
            if not float(np.abs(kept - formed).max()) <= FITS * float(formed.diagonal().max()):
                raise StateError("array gram is not that of U and V: it was altered")

    def fresh(self) -> Self:
        """The same learner before any event, on the same W_0."""
        return type(self)(self.dim, replace(self.config, start=self.start))

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, scale = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        state = (self.start, self.U, self.V, self.gram, self._counts, float(self.config.C))
        for part in row_blocks(len(batch), 3 * self.dim):
            rows, steps = spread_triplets(batch.slice(part.start, part.stop), scale[part], info, part)
            step_low_rank(*state, *rows, scale[part], steps)
        return info

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> ServingForm:
        """What it is served as, see `learners.forms.lowrank`; as it was learned where `power` is None."""
        if power is None:
            return super().form(normalised, power)
        base = LowRankBase.of(ServingForm.from_matrix(self.start, normalised, power=power), self.start)
        k = self.rank
        return low_rank_form(base, self.U[:k], self.V[:k])
