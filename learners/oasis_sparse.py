"""OASIS of vectors with very many columns: of W only the entries that a step has touched are kept.

The steps of OASIS (Chechik, Sharma, Shalit, Bengio, JMLR 11 (2010), section 2): a step adds tau q (c - s)^T,
which touches as many rows as q has numbers, and in each as many columns as c - s has. So W = W_0 + S with a
diagonal W_0, and S in a hash table for each row that was touched (`learners.kernels.row_tables`). An entry is
touched by the first step that adds tau q_i e_j to it, tau q_i and e_j not 0; it stays so when it becomes 0.

Until there are `entries` of them it is OASIS up to the rounding of float32. A step that could lead beyond, as
if all it touches were new, is taken after the entries of smallest magnitude were dropped, so that half of
`entries` are left: that changes what is scored, and is counted in `dropped`. A step that alone touches more
than half of `entries` is not taken: its event is degenerate.

A saved state has the entries by row and column and nothing of where they lie: it is a function of the steps,
whoever took them and wherever they went on from, and as long as what was touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners import errors
from learners.base import BaseLearner, Doubles, KnownAnswer, started
from learners.block import Block, DenseBlock, Float32s, SparseBlock, TripletBatch, as_block
from learners.forms.quadratic import score_pairs
from learners.forms.touched import Tables, TouchedForm
from learners.kernels.oasis_rows import replay_rows, step_rows
from learners.kernels.row_tables import ENTRIES, WANTED_ENTRIES
from learners.outcome import StepInfo
from learners.steps import StepBatch, Steps, taken_steps

LEAST_ENTRIES = 64
MOST_COLUMNS = np.iinfo(np.int32).max - 1
ENTRY_BYTES, ROW_BYTES, COLUMN_BYTES = 32, 64, 24
"""Memory at most: for each entry, of tables that are half full while they are copied to more room; for each
row that has any, the least table; and for each column, W_0 and where a row's table is."""


@dataclass(frozen=True, slots=True)
class OasisSparseConfig:
    """Settings. C: aggressiveness, > 0, an upper bound of tau. entries: most entries of W - W_0 kept, 12 to
    20 bytes each, and as much again while tables grow. start: the diagonal of W_0, float32 [dim], > 0; None
    for ones. Raises ConfigError.
    """

    C: float = 0.1
    entries: int = 16_000_000
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        errors.require_positive("C", self.C)
        errors.require_whole("entries", self.entries)
        if self.entries < LEAST_ENTRIES:
            raise errors.ConfigError(f"entries must be at least {LEAST_ENTRIES}, not {self.entries}")


def touched_bytes(dim: int, entries: int) -> int:
    """The memory of a learner at most, with so many entries kept."""
    return ENTRY_BYTES * min(entries, dim * dim) + ROW_BYTES * min(entries, dim) + COLUMN_BYTES * dim


class OasisSparse(BaseLearner[OasisSparseConfig]):
    """A learned similarity q^T W p of `dim`-dimensional vectors, W = W_0 + S with touched entries of S alone.

    tables: S as `learners.kernels.row_tables` keeps it; and, once a symmetric form was asked for, those of
    its transpose, which `replay` keeps up to date. diagonal: of W_0, float32 [dim]. events: accepted so far.
    drops, dropped: how often entries had to go, and how many. Dense rows are learned as the sparse rows that
    they are.
    """

    DEFAULT: ClassVar[OasisSparseConfig] = OasisSparseConfig()
    GROWS: ClassVar[tuple[str, ...]] = ("rows", "starts", "columns", "values")
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        OasisSparseConfig(C=0.25), ((1, 0), (0, 1), (1, 0)), 2.0, ((0.75, 0.25), (0, 1))
    )

    tables: Tables
    diagonal: Float32s
    events: int
    drops: int
    dropped: int
    _transposed: Tables | None = None

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.diagonal)

    @property
    def entries(self) -> int:
        """Entries of S that are kept now."""
        return self.tables.count

    @property
    def numbers(self) -> int:
        """As `BaseLearner.numbers`: columns and values."""
        return 2 * self.entries

    def change(self) -> sparse.csr_array:
        """S = W - W_0, float32 [dim, dim], columns ascending; a copy."""
        return self.tables.matrix()

    def _start(self, dim: int) -> None:
        if not 1 <= dim <= MOST_COLUMNS:
            raise errors.ConfigError(f"dim must be in 1..{MOST_COLUMNS}, not {dim}")
        self.diagonal, self.tables = started(dim, self.config.start), Tables.empty(dim)
        self.events = self.drops = self.dropped = 0

    def _live(self) -> dict[str, NDArray[Any]]:
        return {
            "dim": np.array(self.dim, np.int64),
            **self.tables.entries(),
            "dropped": np.array([self.drops, self.dropped], np.int64),
            "events": np.array(self.events, np.int64),
        }

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        dim = errors.saved_count(arrays, "dim")
        if not 1 <= dim <= MOST_COLUMNS:
            raise errors.StateError(f"array dim must be one of 1..{MOST_COLUMNS}, not {dim}")
        dropped = errors.saved(arrays, "dropped", np.int64, (2,))
        if dropped.min() < 0:
            raise errors.StateError("array dropped must hold counts: it was altered")
        self.events, self.tables = errors.saved_count(arrays, "events"), Tables.of_entries(dim, arrays)
        self.drops, self.dropped = map(int, dropped)
        self.diagonal = started(dim, self.config.start)

    def clone(self) -> Self:
        """An independent copy, with as much room."""
        other = type(self).__new__(type(self))
        other.config, other.diagonal, other.tables = self.config, self.diagonal, self.tables.copy()
        other.events, other.drops, other.dropped = self.events, self.drops, self.dropped
        other._transposed = None if self._transposed is None else self._transposed.copy()
        return other

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, rows = StepInfo.empty(len(batch)), touched(batch)
        triplets = [block.kernel_rows() for block in (rows.query, rows.clicked, rows.skipped)]
        steps, C, limit = (info.outcome, info.loss, info.tau, info.reason), self.config.C, self.config.entries
        done, decided = 0, False
        while done < len(batch):
            held = self.tables.for_kernels
            settings = (self.diagonal, float(C), limit, done, decided)
            done, accepted = step_rows(held, *settings, *triplets, weights, steps)
            self.events += int(accepted)
            self._transposed = None
            decided = done < len(batch)
            if decided:
                self._make_room()
        return info

    def _make_room(self) -> None:
        marks, limit = self.tables.marks, self.config.entries
        if marks[ENTRIES] + marks[WANTED_ENTRIES] > limit and marks[ENTRIES] > limit // 2:
            self.keep_largest(limit // 2)
        else:
            self.tables.make_room()

    def keep_largest(self, most: int) -> None:
        """Drop the entries of smallest magnitude, so that so many are left."""
        if self.entries <= most:
            return
        cut = self.tables.cut_for(most)
        self.drops, self.dropped = self.drops + 1, self.dropped + self.tables.drop_below(cut)
        if self._transposed is not None:
            self._transposed.drop_below(cut, transposed=True)

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Any = None) -> Sequence[Steps]:
        """Step sizes, queries and errors c - s of what updated; tau has taken the weights in already."""
        return taken_steps(touched(batch), info)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        if not isinstance(steps, StepBatch) or steps.project:
            raise errors.BlockError("this learner replays steps of rank one: give its own `taken`")
        if steps.dim != self.dim:
            raise errors.BlockError(
                f"steps have {steps.dim} dimensions, the learner {self.dim}: give its own `taken`"
            )
        query, error = as_sparse(steps.query), as_sparse(steps.error)
        rows, done, wrong = (query.kernel_rows(), error.kernel_rows()), 0, 0
        while done < len(steps):
            held, before = self.tables.for_kernels, done
            done, wrong = replay_rows(held, self.config.entries, done, steps.tau, *rows)
            self._transpose(steps.tau[before:done], query.slice(before, done), error.slice(before, done))
            if wrong:
                raise errors.BlockError(
                    f"step {done} of {len(steps)} is malformed: steps before it are applied"
                )
            if done < len(steps):
                self._make_room()

    def _transpose(self, tau: Float32s, query: SparseBlock, error: SparseBlock) -> None:
        """Take steps that the tables took in those of the transpose: e (tau q)^T, the same products."""
        tables, done = self._transposed, 0
        if tables is None:
            return
        own = query.entries
        scaled = np.repeat(tau, np.diff(query.indptr)) * query.values[own]
        rows = (query.indptr - own.start, query.indices[own], scaled)
        ones, unbounded = np.ones(len(tau), np.float32), np.iinfo(np.int64).max // 2
        while done < len(tau):
            done, wrong = replay_rows(tables.for_kernels, unbounded, done, ones, error.kernel_rows(), rows)
            if wrong:  # tau q is larger than any difference of vectors
                self._transposed = None
                return
            if done < len(tau):
                tables.make_room()

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores q^T W p; otherwise as `BaseLearner.similarity`."""
        return score_pairs(self.as_learned(copy=False), queries, items)

    def form(self, normalised: bool = True, copy: bool = True, symmetric: bool = True) -> TouchedForm:
        """q^T sym(W) p, normalised by sqrt(q^T W q p^T W p); not projected, since a matrix of so many columns
        has no decomposition in reach. copy: as in `as_learned`. symmetric: False for q^T W p, which needs no
        transpose."""
        if symmetric and self._transposed is None:
            self._transposed = self.tables.transposed()
        both = (self.tables, self._transposed if symmetric else None)
        if copy:
            both = (both[0].copy(), None if both[1] is None else both[1].copy())
        return TouchedForm(*both, self.diagonal, normalised)

    def as_learned(self, copy: bool = True) -> TouchedForm:
        """q^T W p."""
        return self.form(normalised=False, copy=copy, symmetric=False)


def as_sparse(block: Block) -> SparseBlock:
    """The rows as CSR; what a dense row holds besides zeros, malformed numbers too."""
    if isinstance(block, SparseBlock):
        return block
    assert isinstance(block, DenseBlock)
    return as_block(sparse.csr_array(block.values))  # type: ignore[return-value]


def touched(batch: TripletBatch) -> TripletBatch:
    """The batch with CSR rows."""
    if isinstance(batch.query, SparseBlock):
        return batch
    return TripletBatch(as_sparse(batch.query), as_sparse(batch.clicked), as_sparse(batch.skipped))
