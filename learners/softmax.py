"""Softmax over the clicked objects of a minibatch: one matrix on both sides, recent clicks learned again.

A pair is a query and an object clicked for it. With u(x) = A^T x / ||A^T x||, the loss of a minibatch of
pairs (q_i, c_i) is the weighted mean of -log softmax_j(u(q_i)^T u(c_j) / temperature) at j = i: each clicked
object against those clicked for other queries (N-pair loss, Sohn, NIPS 2016; InfoNCE, van den Oord et al.,
2018). A moves by Adam (Kingma, Ba, ICLR 2015) from I on; learned is W = A A^T. The newest pairs are kept, and
each minibatch holds those that just came and others drawn from all that are kept (experience replay, Lin,
1992): few pairs are learned many times, and the more there are, the less often, down to once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners import errors
from learners.base import Doubles, KnownAnswer, ScoredByMatrix, identity, saved_matrix, started
from learners.block import Float32s, Int64s, TripletBatch
from learners.faults import spread_triplets
from learners.outcome import DEGENERATE, PASSIVE, REJECTED, UPDATED, StepInfo

FIRST_DECAY, SECOND_DECAY, ADAM_EPSILON = 0.9, 0.999, 1e-8
"""Those of the paper."""

SHORTEST = 1e-6
"""What a mapped vector is divided by at least."""

LARGEST_DIAGONAL = float(np.finfo(np.float32).max) / 4
"""Of a restored W, so that no later step leaves the range of float32."""

MOST_SPREADS = 8
"""A mean of Adam is at most (1 - b1) / sqrt((1 - b2)(1 - b1^2 / b2)) = 7.3 roots of the mean of squares, by
Cauchy and Schwarz."""

LONGEST = 1.001
"""What a number of a vector of unit length may be, with its rounding."""

RECENT = 32
"""A pair that is among so many newest ones is the same click again: a list gives a triplet for each object
that was passed over."""

AT_ONCE = 256
"""Triplets that are made dense together."""

MARK_BITS = 61

MOST_KEPT = 1 << 24


@dataclass(frozen=True, slots=True)
class SoftmaxConfig:
    """Settings of the softmax learner.

    temperature: > 0, what cosines are divided by. rate: in (0, 1], of Adam: a step moves each entry of A
    by about rate / dim, so A itself, which is I at first, by no more than rate in the spectral norm. anneal:
    after t steps the rate is rate / sqrt(1 + t / anneal), so that noise averages out; 0 keeps it.
    batch: pairs of a minibatch. every: new pairs between two steps at first, so that each is learned batch /
    every times; every <= batch. memory: newest pairs kept, >= batch, 8 dim bytes each. From half as many
    pairs on, and whenever there are twice as many, the interval doubles, up to batch: then each pair is
    learned once. start: the diagonal of W_0, float32 [dim], > 0; None for that of I. Raises ConfigError.
    """

    temperature: float = 0.7
    rate: float = 0.4
    anneal: int = 200
    batch: int = 128
    every: int = 8
    memory: int = 4096
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        errors.require_number("temperature", self.temperature)
        if not 1e-3 <= self.temperature <= 1e3:
            raise errors.ConfigError(
                f"temperature must be a number from 0.001 to 1000, not {self.temperature}"
            )
        errors.require_positive("rate", self.rate)
        if self.rate > 1:
            raise errors.ConfigError(f"rate must be at most 1, the norm of A at first, not {self.rate}")
        for name in ("anneal", "batch", "every", "memory"):
            errors.require_whole(name, getattr(self, name))
        if self.anneal < 0:
            raise errors.ConfigError(f"anneal must be 0 (never) or a number of steps, not {self.anneal}")
        if not 1 <= self.every <= self.batch <= self.memory <= MOST_KEPT:
            raise errors.ConfigError(
                f"1 <= every <= batch <= memory <= {MOST_KEPT} must hold: every is {self.every}, batch "
                f"{self.batch}, memory {self.memory}"
            )


class Softmax(ScoredByMatrix[SoftmaxConfig]):
    """A learned similarity q^T W p, W = A A^T, of `dim`-dimensional vectors.

    The loss that an event reports is the hinge loss of its learned cosines; its tau is its weight where it is
    a new pair, which is learned from then on. A row of the memory holds vectors in the columns of `start`, at
    unit length. Products of matrices are BLAS's: bits repeat on one machine and library, not across them.
    """

    DEFAULT: ClassVar[SoftmaxConfig] = SoftmaxConfig()
    SPREADS: ClassVar[bool] = True
    # a pair alone has a softmax of 1: nothing to learn
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        SoftmaxConfig(batch=1, every=1, memory=1), ((1, 0), (0, 1), (1, 0)), 2.0, ((1, 0), (0, 1))
    )

    A: Float32s
    """float32 [dim, dim], in the columns of `start`."""
    first: Float32s
    second: Float32s
    """Adam's running means of the gradient and of its square, float32 [dim, dim]."""
    queries: Float32s
    clicked: Float32s
    """The pairs kept, float32 [memory, dim]: pair n is in row n % memory."""
    weights: Float32s
    """float32 [memory], > 0."""
    marks: Int64s
    """int64 [memory, 2], a hash of each vector: equal objects are not told apart."""
    pairs: int
    """How many pairs came."""
    steps: int
    """How many minibatches were learned."""
    events: int
    """How many events were accepted."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.A)

    @property
    def W(self) -> Float32s:
        """The learned matrix, symmetric and positive semi-definite, float32 [dim, dim], as a new array."""
        return np.asarray((self.A @ self.A.T) * np.outer(self._scale, self._scale), np.float32)

    @property
    def _scale(self) -> Float32s:
        return np.sqrt(started(self.dim, self.config.start))

    def _start(self, dim: int) -> None:
        self.A, kept = identity(dim), self.config.memory
        started(dim, self.config.start)
        self.first, self.second = np.zeros_like(self.A), np.zeros_like(self.A)
        self.queries, self.clicked = np.zeros((kept, dim), np.float32), np.zeros((kept, dim), np.float32)
        self.weights, self.marks = np.zeros(kept, np.float32), np.zeros((kept, 2), np.int64)
        self.pairs = self.steps = self.events = 0

    def _live(self) -> dict[str, NDArray[Any]]:
        arrays = {name: getattr(self, name) for name in ("A", "first", "second", *MEMORY)}
        return arrays | {name: np.array(getattr(self, name), np.int64) for name in COUNTERS}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self.A = saved_matrix(arrays, "A", copy)
        self.first, self.second = saved_moments(arrays, self.A.shape, copy)
        dim, kept = self.dim, self.config.memory
        started(dim, self.config.start)
        for name, columns in MEMORY.items():
            shape = {"dim": (kept, dim), "two": (kept, 2), "one": (kept,)}[columns]
            dtype = np.int64 if name == "marks" else np.float32
            setattr(self, name, errors.to_write(errors.saved(arrays, name, dtype, shape), name, copy))
        self.pairs, self.steps, self.events = (errors.saved_count(arrays, name) for name in COUNTERS)
        if (self.weights[: min(self.pairs, kept)] <= 0).any():
            raise errors.StateError("array weights holds numbers that are not above 0: it was altered")
        self._require_reached()

    def _require_reached(self) -> None:
        """Raises StateError naming an array that no steps lead to, and by which later ones could overflow."""
        # an entry of W is never above the largest on its diagonal
        diagonal = np.square(self.A, dtype=np.float64).sum(axis=1) * np.square(self._scale, dtype=np.float64)
        if diagonal.max() > LARGEST_DIAGONAL:
            raise errors.StateError("array A holds numbers too large for W = A A^T: it was altered")
        for name in ("queries", "clicked"):
            rows = getattr(self, name)
            if max(rows.max(), -rows.min()) > LONGEST:
                raise errors.StateError(f"array {name} holds vectors above unit length: it was altered")

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, each = StepInfo.empty(len(batch)), weights if len(weights) else np.ones(len(batch))
        for start in range(0, len(batch), AT_ONCE):
            part = slice(start, min(start + AT_ONCE, len(batch)))
            rows, steps = spread_triplets(batch.slice(part.start, part.stop), each[part], info, part)
            self._learn_dense(rows, each[part].astype(np.float32), steps)
        return info

    def _learn_dense(self, rows: list[Float32s], weights: Float32s, steps: tuple[Any, ...]) -> None:
        outcome, loss, tau, reason = steps
        queries, clicked, skipped = (self.in_columns(part) for part in rows)
        for t in range(len(weights)):
            if reason[t]:
                outcome[t] = REJECTED
                continue
            self.events += 1
            loss[t] = self._hinge(np.stack([queries[t], clicked[t], skipped[t]]))
            outcome[t] = self.take(queries[t], clicked[t], weights[t])
            tau[t] = weights[t] if outcome[t] == UPDATED else 0

    def _hinge(self, triplet: Float32s) -> float:
        """max(0, 1 - cos(q, c) + cos(q, s)) of one triplet [3, dim], whose product is its own: the same bits
        however events are cut."""
        query, clicked, skipped = unit_rows((triplet @ self.A).astype(np.float64))
        return max(0.0, 1.0 - float(query @ clicked) + float(query @ skipped))

    def in_columns(self, rows: Float32s) -> Float32s:
        """Vectors in the columns of `start`, at unit length: as `take` wants them, float32 [n, dim]."""
        with np.errstate(invalid="ignore"):  # of malformed rows, which nobody takes
            return unit_rows(rows * self._scale.astype(np.float64))

    def take(self, query: Float32s, clicked: Float32s, weight: np.float32) -> np.uint8:
        """Learn from a pair of vectors `in_columns`, unless it says nothing: its outcome."""
        if weight == 0:
            return PASSIVE
        if not (query.any() and clicked.any()):
            return DEGENERATE
        mark, kept = (_mark(query), _mark(clicked)), self.config.memory
        newest = (self.pairs - 1 - np.arange(min(RECENT, self.pairs, kept))) % kept
        if (self.marks[newest] == mark).all(axis=1).any():
            return PASSIVE
        at = self.pairs % kept
        self.queries[at], self.clicked[at], self.weights[at], self.marks[at] = query, clicked, weight, mark
        self.pairs += 1
        if self.pairs % self._interval == 0:
            self._step()
        return UPDATED

    @property
    def _interval(self) -> int:
        """Pairs from one minibatch to the next."""
        doubled = (self.pairs // max(1, self.config.memory // 2)).bit_length()
        return min(self.config.batch, self.config.every << min(doubled, 32))

    def _drawn(self) -> Int64s:
        """The rows of the next minibatch, int64 [batch]: the newest pairs and others, from a generator whose
        only state is how many pairs came."""
        batch, interval, kept = self.config.batch, self._interval, self.config.memory
        newest = (self.pairs - 1 - np.arange(interval)) % kept
        numbers = np.random.Philox(key=0, counter=[0, self.pairs, 0, 0]).random_raw(batch - interval)
        return np.concatenate([newest, (numbers % np.uint64(min(self.pairs, kept))).astype(np.int64)])

    def _step(self) -> None:
        self.steps += 1
        at, config, steps = self._drawn(), self.config, self.steps
        G = softmax_gradient(
            self.A, (self.queries[at], self.clicked[at]), self.weights[at], self.marks[at], config.temperature
        )
        fallen = np.sqrt(1 + (steps - 1) / config.anneal) if config.anneal else 1.0
        adam_step(self.A, (self.first, self.second), G, config.rate / self.dim / fallen, steps)


COUNTERS = ("pairs", "steps", "events")
MEMORY = {"queries": "dim", "clicked": "dim", "weights": "one", "marks": "two"}
"""The arrays that hold a row for each pair kept, and their columns."""


def adam_step(
    matrix: Float32s, moments: tuple[Float32s, Float32s], gradient: Float32s, rate: float, steps: int
) -> None:
    """Move a matrix and the running means of its gradient and of the square, in place; steps: the number of
    this one, from 1."""
    first, second = moments
    first += np.float32(1 - FIRST_DECAY) * (gradient - first)
    second += np.float32(1 - SECOND_DECAY) * (np.square(gradient) - second)
    spread = np.sqrt(second * np.float32(1 / (1 - SECOND_DECAY**steps)))
    matrix -= np.float32(rate / (1 - FIRST_DECAY**steps)) * first / (spread + np.float32(ADAM_EPSILON))


def saved_moments(
    arrays: Mapping[str, NDArray[Any]], shape: tuple[int, ...], copy: bool
) -> tuple[Float32s, Float32s]:
    """The running means of Adam to continue from. Raises StateError for what no steps lead to, and by which
    later ones could overflow."""
    names = ("first", "second")
    first, second = (
        errors.to_write(errors.saved(arrays, one, np.float32, shape), one, copy) for one in names
    )
    if second.min() < 0:
        raise errors.StateError("array second holds squares below 0: it was altered")
    if (np.abs(first) > MOST_SPREADS * np.sqrt(second) + np.float32(ADAM_EPSILON)).any():
        raise errors.StateError(
            "array first holds means too large for the squares in second: one was altered"
        )
    return first, second


def state_bytes(memory: int, dim: int) -> int:
    """What a state takes: three matrices [dim, dim], and so many pairs."""
    return 12 * dim * dim + memory * (8 * dim + 20)


def softmax_gradient(
    A: Float32s, sides: tuple[Float32s, Float32s], weights: Float32s, marks: Int64s, temperature: float
) -> Float32s:
    """The gradient by A of a minibatch's loss, float32 [dim, dim].

    sides: queries and clicked objects, [batch, dim] each. weights: [batch], > 0. marks: [batch, 2], of both
    sides. A query is set against no object that is itself, or that it clicked in a pair of the minibatch.
    """
    count, rows = len(weights), np.concatenate(sides)
    mapped = rows @ A
    lengths = np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), np.float32(SHORTEST))
    units = mapped / lengths
    u, v = units[:count], units[count:]
    logits = u @ v.T / np.float32(temperature)
    asked, found = marks[:, 0], marks[:, 1]
    alike = (found == found[:, None]) | (found == asked[:, None]) | (asked == asked[:, None])
    np.fill_diagonal(alike, False)
    logits[alike] = -np.inf
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.diag_indices(count)] -= 1
    each = weights.astype(np.float64)
    shares *= (each / (each.sum() * temperature)).astype(np.float32)[:, None]
    by_units = np.concatenate([shares @ v, shares.T @ u])
    by_units -= units * (by_units * units).sum(axis=1, keepdims=True)
    return np.asarray(rows.T @ (by_units / lengths), np.float32)


def unit_rows(rows: Doubles | Float32s) -> Float32s:
    """Rows [..., dim] brought to unit length, float32; one of zeros stays."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


def _mark(row: Float32s) -> int:
    return int.from_bytes(blake2b(row.tobytes(), digest_size=8).digest(), "little") & ((1 << MARK_BITS) - 1)
