"""OASIS of vectors with very many columns: of W only the entries that a step has touched are kept.

The steps of OASIS (Chechik, Sharma, Shalit, Bengio, JMLR 11 (2010), section 2): a step adds tau q (c - s)^T,
which touches as many rows as q has numbers, and in each as many columns as c - s has. So W = W_0 + S with a
diagonal W_0, and a hash table of S for each row that was touched (`learners.kernels.row_tables`). Until there
are `entries` of them it is OASIS up to the rounding of float32; then those of smallest magnitude are dropped
until half are left. That changes what is scored, and is counted in `dropped`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.base import BaseLearner, Doubles, KnownAnswer, started
from learners.block import Block, DenseBlock, Float32s, SparseBlock, TripletBatch, as_block
from learners.errors import (
    BlockError,
    ConfigError,
    StateError,
    require_positive,
    require_whole,
    saved,
    saved_count,
    to_write,
)
from learners.forms.quadratic import score_pairs
from learners.forms.touched import Tables, TouchedForm
from learners.kernels.oasis_rows import add_entries, replay_rows, step_rows
from learners.kernels.row_tables import DROPPED, DROPS, ENTRIES, GROUP, MARKS, sound_tables
from learners.outcome import StepInfo
from learners.steps import StepBatch, Steps, taken_steps

ENTRY_PLACES = 2
"""Places for each entry: tables are three quarters full before they grow, and half as long again after it."""
ROW_PLACES = 4 * GROUP
"""Places for each row besides, of the first FEW rows: so a matrix that may hold every entry can."""
FEW = 4096
LEAST_ENTRIES = 64


@dataclass(frozen=True, slots=True)
class OasisSparseConfig:
    """Settings. C: aggressiveness, > 0, an upper bound of tau. entries: most entries of W - W_0 kept, 16
    bytes each. start: the diagonal of W_0, float32 [dim], > 0; None for ones. Raises ConfigError.
    """

    C: float = 0.1
    entries: int = 16_000_000
    start: Float32s | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_positive("C", self.C)
        require_whole("entries", self.entries)
        if self.entries < LEAST_ENTRIES:
            raise ConfigError(f"entries must be at least {LEAST_ENTRIES}, not {self.entries}")


def places(dim: int, entries: int) -> int:
    """Places of all tables together."""
    return ENTRY_PLACES * min(entries, dim * dim) + ROW_PLACES * (min(dim, FEW) + 1)


def touched_bytes(dim: int, entries: int) -> int:
    """The memory of a learner: 8 for each place, 16 for each column, and W_0."""
    return 8 * places(dim, entries) + (16 + 4) * dim


class OasisSparse(BaseLearner[OasisSparseConfig]):
    """A learned similarity q^T W p of `dim`-dimensional vectors, W = W_0 + S with touched entries of S alone.

    tables: S as `learners.kernels.row_tables` keeps it. diagonal: of W_0, float32 [dim]. events: accepted so
    far. Dense rows are learned as the sparse rows that they are.
    """

    DEFAULT: ClassVar[OasisSparseConfig] = OasisSparseConfig()
    KNOWN: ClassVar[KnownAnswer] = KnownAnswer(
        OasisSparseConfig(C=0.25), ((1, 0), (0, 1), (1, 0)), 2.0, ((0.75, 0.25), (0, 1))
    )

    tables: Tables
    diagonal: Float32s
    events: int

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return len(self.diagonal)

    @property
    def entries(self) -> int:
        """Entries of S that are kept now."""
        return int(self.tables.marks[ENTRIES])

    @property
    def dropped(self) -> int:
        """Entries that had to go for want of room, so far."""
        return int(self.tables.marks[DROPPED])

    @property
    def drops(self) -> int:
        """How many times entries were dropped."""
        return int(self.tables.marks[DROPS])

    def change(self) -> sparse.csr_array:
        """S = W - W_0, float32 [dim, dim], columns ascending; a copy."""
        return self.tables.matrix()

    def _start(self, dim: int) -> None:
        if not 1 <= dim < np.iinfo(np.int32).max:
            raise ConfigError(f"dim must be at least 1, not {dim}")
        self.diagonal, self.events = started(dim, self.config.start), 0
        self.tables = Tables.empty(dim, places(dim, self.config.entries), MARKS)

    def _live(self) -> dict[str, NDArray[Any]]:
        return {**self.tables.arrays, "events": np.array(self.events, np.int64)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        starts = saved(arrays, "starts", np.int64, (None,))
        dim = len(starts)
        if not dim:
            raise StateError("array starts has shape (0,): it must hold numbers")
        room = places(dim, self.config.entries)
        kept = {
            "starts": starts,
            "sizes": saved(arrays, "sizes", np.int32, (dim,)),
            "counts": saved(arrays, "counts", np.int32, (dim,)),
            "columns": saved(arrays, "columns", np.int32, (room,)),
            "values": saved(arrays, "values", np.float32, (room,)),
            "marks": saved(arrays, "marks", np.int64, (MARKS,)),
        }
        self.events = saved_count(arrays, "events")
        self.tables = Tables(**{name: to_write(array, name, copy) for name, array in kept.items()})
        if self.tables.marks.min() < 0 or not sound_tables(self.tables.for_kernels):
            raise StateError("arrays starts, sizes, counts, columns and marks do not fit: they were altered")
        self.diagonal = started(dim, self.config.start)

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        info, rows = StepInfo.empty(len(batch)), touched(batch)
        triplets = [block.kernel_rows() for block in (rows.query, rows.clicked, rows.skipped)]
        steps = (info.outcome, info.loss, info.tau, info.reason)
        settings = (float(self.config.C), self.config.entries)
        self.events += int(
            step_rows(self.tables.for_kernels, self.diagonal, *settings, *triplets, weights, steps)
        )
        return info

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Any = None) -> Sequence[Steps]:
        """Step sizes, queries and errors c - s of what updated; tau has taken the weights in already."""
        return taken_steps(touched(batch), info)

    def replay(self, steps: Steps) -> None:
        """Take steps again that this learner's kernels took elsewhere: W gets their bits. `events` stays.

        Raises BlockError on steps of another kind or dimension, and naming the first step that is malformed:
        those before it are applied then.
        """
        if not isinstance(steps, StepBatch) or steps.project:
            raise BlockError("this learner replays steps of rank one: give its own `taken`")
        if steps.dim != self.dim:
            raise BlockError(
                f"steps have {steps.dim} dimensions, the learner {self.dim}: give its own `taken`"
            )
        rows = (as_sparse(steps.query).kernel_rows(), as_sparse(steps.error).kernel_rows())
        done = replay_rows(self.tables.for_kernels, self.config.entries, steps.tau, *rows)
        if done < len(steps):
            raise BlockError(f"step {done} of {len(steps)} is malformed: steps before it are applied")

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores q^T W p; otherwise as `BaseLearner.similarity`."""
        return score_pairs(self.as_learned(copy=False), queries, items)

    def form(self, normalised: bool = True, copy: bool = True) -> TouchedForm:
        """q^T W p, normalised by sqrt(q^T W q p^T W p): neither symmetric nor projected, since a matrix of so
        many columns has no decomposition in reach. copy: as in `as_learned`."""
        return TouchedForm(self.tables.copy() if copy else self.tables, self.diagonal, normalised)

    def as_learned(self, copy: bool = True) -> TouchedForm:
        """q^T W p."""
        return self.form(normalised=False, copy=copy)


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


def settled_tables(tables: Tables, change: sparse.csr_array, entries: int) -> None:
    """Let empty tables hold S, those of its entries that are not 0."""
    change = sparse.csr_array(change, dtype=np.float32)
    change.eliminate_zeros()
    change.sort_indices()
    rows = (change.indptr.astype(np.int64), change.indices.astype(np.int32), change.data)
    add_entries(tables.for_kernels, entries, rows)
