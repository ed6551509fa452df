"""What learners share: how triplets are read, saved states, replaying, cloning and warming up.

Those of one matrix W share more: its state, steps of rank one, projections at stated events, its form.

A learner adds its settings, its arrays, its step and its scores: see `BaseLearner` and `MatrixLearner`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners import errors
from learners.block import Block, DenseBlock, Float32s, TripletBatch, as_block, as_triplets, bilinear, numbers
from learners.forms.bilinear import BilinearForm
from learners.forms.quadratic import ServedForm
from learners.forms.serving import DEFAULT_POWER, ServingForm
from learners.kernels.delayed import BILINEAR, BY_QUERY, DISTANCE, SYMMETRIC, replay_dense, step_dense
from learners.kernels.oasis import replay_sparse
from learners.outcome import REJECTED, UPDATED, StepInfo
from learners.pending import MOST, PendingSteps, room_of
from learners.psd import MAX_FULL_DIM, project_psd
from learners.steps import StepBatch, Steps, TripletSteps, taken_triplets

AnyConfig = TypeVar("AnyConfig")
Weights = NDArray[Any] | None
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class KnownAnswer:
    """A step worked out on paper, in 2 dimensions: what the compiled kernels are checked by.

    triplet: query, clicked, skipped. loss: before the step. scores: after it, of the two unit vectors with
    each other.
    """

    config: Any
    triplet: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
    loss: float
    scores: tuple[tuple[float, float], tuple[float, float]]


class BaseLearner(ABC, Generic[AnyConfig]):
    """A similarity of `dim`-dimensional vectors, learned one triplet at a time.

    A subclass gives `dim`, `_start`, `_live`, `_restore`, `_learn`, `similarity`, `form` and a known
    answer; and where a step has a shorter form than its triplet, `taken` and `replay`. Scoring never
    changes a learner, and it keeps no reference to its input. Not safe for two threads at once: a step
    writes the state in place, with the GIL released.
    """

    DEFAULT: ClassVar[Any] = None
    """Settings where none are given; None where some must be."""
    KNOWN: ClassVar[KnownAnswer | None] = None
    SPREADS: ClassVar[bool] = False
    """Whether sparse rows are made dense, so that a step on them costs what one on dense rows does."""
    SHARED: ClassVar[tuple[str, ...]] = ()
    """Arrays of the state that no step changes, alike for all models of one kind: `Keyed` keeps them once."""
    GROWS: ClassVar[tuple[str, ...]] = ()
    """Arrays of the state that are as long as what was learned. Such a learner keeps memory of its own: its
    `state` is a copy, and `from_state` takes none of these over."""

    config: AnyConfig

    def __init__(self, dim: int, config: AnyConfig | None = None) -> None:
        """The untrained learner of so many dimensions. Raises ConfigError."""
        errors.require_whole("dim", dim)
        self.config = self._settings(config)
        self._start(dim)

    @classmethod
    def _settings(cls, config: AnyConfig | None) -> AnyConfig:
        chosen: AnyConfig | None = cls.DEFAULT if config is None else config
        if chosen is None:
            raise errors.ConfigError(f"{cls.__name__} has no default settings: give them as config")
        return chosen

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the vectors."""

    @abstractmethod
    def _start(self, dim: int) -> None:
        """Begin untrained, by `config`. Raises ConfigError."""

    @abstractmethod
    def _live(self) -> dict[str, NDArray[Any]]:
        """The arrays of the state themselves."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        """Continue from saved arrays, by `config`; arrays that steps change in place are copied, or taken
        over. Raises StateError."""

    @abstractmethod
    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        """Apply a batch of the learner's dimension in order; weights: one each, or empty for 1."""

    @abstractmethod
    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Scores by the paper's formula, float32 [queries, items]; for numpy arrays, scipy CSR and blocks.

        Raises BlockError on another dimension or an index out of range. Where BLAS computes it, in blocks of
        queries, its last bits may depend on how many are asked at once.
        """

    @abstractmethod
    def form(self, normalised: bool = True) -> ServedForm:
        """What the learner is served as, independent of what is learned later; see `learners.search`.
        normalised: score by S(q, p) / sqrt(S(q, q) S(p, p)), the learned cosine."""

    def as_learned(self, copy: bool = True) -> ServedForm:
        """A form with the scores of `similarity`, to search by them: what the papers score. copy: independent
        of what is learned later; False lets it read the state in place, for as long as that stands still.

        Raises ConfigError for a learner without one.
        """
        raise errors.ConfigError(f"{type(self).__name__} has no form of its scores as they were learned")

    def learn_one(self, query: Any, clicked: Any, skipped: Any) -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each); the info holds one entry.

        Raises BlockError when the vectors do not fit each other or the learner; a malformed row is no error
        but an outcome.
        """
        return self.learn_many(one_triplet(query, clicked, skipped))

    @overload
    def learn_many(self, batch: TripletBatch, /, weights: Weights = None) -> StepInfo: ...

    @overload
    def learn_many(
        self,
        queries: Any,
        clicked: Any,
        skipped: Any,
        /,
        weights: Weights = None,
        *,
        keys: Sequence[str] | None = None,
    ) -> StepInfo: ...

    def learn_many(
        self, *triplets: Any, weights: Weights = None, keys: Sequence[str] | None = None
    ) -> StepInfo:
        """Apply triplets in order, bit for bit as `learn_one` of each would, however they are cut.

        Either a `TripletBatch`, or three numpy arrays [n, dim] or scipy CSR matrices, row i of each triplet
        i. weights: [n] importance, scales the step of each event; 0 makes an event passive, negative or not
        finite rejects it. keys: whose model each triplet is for (`Keyed`). Raises BlockError on another
        dimension or number of weights; a malformed row is no error but an outcome.
        """
        if len(triplets) in {2, 4}:  # the last is the weights
            *triplets, weights = triplets  # type: ignore[assignment]
        batch = as_triplets(*triplets, keys=keys)
        info = self._learn(batch, checked_weights(batch, self.dim, weights))
        self._check_precision(batch, info)
        return info

    def _check_precision(self, batch: TripletBatch, info: StepInfo) -> None:
        """What a learner tells of triplets that it has learned; nothing here."""

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Weights = None) -> Sequence[Steps]:
        """What another copy must `replay` to reach the bits that `learn_many(batch, weights)`, which gave
        `info`, left: the triplets that were accepted, with their weights. Copies.

        Pure: the state is neither read nor changed, so it may run later, and in another thread than the
        steps. Raises BlockError when `info` is of another number of events.
        """
        return taken_triplets(batch, info, weights)

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy took: its bits.

        Raises BlockError for steps of another kind or dimension, and naming the first that is malformed: the
        others are applied then.
        """
        if not isinstance(steps, TripletSteps):
            raise errors.BlockError(
                f"{type(self).__name__} replays triplets, not steps of rank one: give its own `taken`"
            )
        info = self.learn_many(steps.batch, steps.weights)
        wrong = np.flatnonzero(info.outcome == REJECTED)
        if len(wrong):
            raise errors.BlockError(f"step {wrong[0]} of {len(steps)} is malformed: the others are applied")

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next step needs, by name: read-only views, which change with the next step. Save them as
        they are; `from_state` reads them back.

        Names, shapes and dtypes follow from the settings and the dimension alone (a budget is a capacity),
        so that another copy can have its memory ready; but for the length of what `GROWS`. No name holds a
        dot.
        """
        return {name: errors.read_only(array) for name, array in self._live().items()}

    @property
    def numbers(self) -> int:
        """How many numbers the state has."""
        return sum(array.size for array in self.state().values())

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, NDArray[Any]], config: AnyConfig | None = None, copy: bool = True
    ) -> Self:
        """Continue from the arrays of `state`. copy=False takes the large ones over without a copy: they must
        be writable, and steps change them in place.

        Raises StateError naming the array that is missing or has another shape, dtype or value.
        """
        learner = cls.__new__(cls)
        learner.config = cls._settings(config)
        learner._restore(arrays, copy)
        return learner

    @classmethod
    def added_later(cls, config: AnyConfig, dim: int) -> dict[str, NDArray[Any]]:
        """What a state of an earlier release lacks, all of it, as it is before any event; nothing here."""
        return {}

    def fresh(self) -> Self:
        """The same learner before any event."""
        return type(self)(self.dim, self.config)

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    @classmethod
    def warm_up(cls, sparse_rows: bool | None = None) -> None:
        """Load the kernels and check them on a known answer before the first event. sparse_rows: whether rows
        will be CSR or dense; None: either. Raises RuntimeError.
        """
        known = cls.KNOWN
        if known is None:
            return
        both = np.eye(2, dtype=np.float32)
        kinds = {False: np.asarray, True: sparse.csr_array}
        for kind in kinds.values() if sparse_rows is None else [kinds[sparse_rows]]:
            learner = cls(2, known.config)
            info = learner.learn_one(*(kind(np.array([row], np.float32)) for row in known.triplet))
            scores = learner.similarity(both, both)
            if abs(info.loss[0] - known.loss) > 1e-5 or np.abs(scores - known.scores).max() > 1e-5:
                raise RuntimeError(
                    "a compiled kernel gives a wrong answer: remove numba's cache (__pycache__/*.nb?)"
                )


Learner: TypeAlias = BaseLearner[Any]
"""Any learner: who keeps, moves or serves one knows no more of it than this."""


def one_triplet(query: Any, clicked: Any, skipped: Any) -> TripletBatch:
    """Three vectors, each anything that `as_block` reads, as a batch of one. Raises BlockError."""
    batch = as_triplets(query, clicked, skipped)
    if len(batch) != 1:
        raise errors.BlockError(f"learn_one takes one triplet, not {len(batch)}: use learn_many")
    return batch


def checked_weights(batch: TripletBatch, dim: int, weights: Weights) -> Doubles:
    """The weights of a batch as kernels take them: float64 [n], or empty for 1 each. Raises BlockError on
    triplets of another dimension than dim, or another number of weights."""
    if batch.dim != dim:
        raise errors.BlockError(f"triplets have {batch.dim} dimensions, the learner {dim}: map them alike")
    if weights is None:
        return np.zeros(0)
    scale = numbers("weights", weights)
    if scale.shape != (len(batch),):
        raise errors.BlockError(f"weights have shape {scale.shape}: give one per triplet ({len(batch)})")
    return np.require(scale, np.float64, ["C", "A"])


ROUNDING = 2.0**-24 / 3**0.5
"""What float32 rounds off a sum near 1, root mean square: half a spacing of 2^-23 above 1 and 2^-24 below."""

MOST_LOST = 0.01
"""Share of the length of steps that rounding may take; so much of W - I is then lost, by measurement."""

ROWS_CHECKED = 64
"""Steps of a batch by which its vectors are judged."""


class StepsFromIdentity:
    """Looks how much of its steps W, which starts from I in float32, loses to rounding on its diagonal.

    ||tau V||, V = q (c - s)^T or the V' of a distance, is about 2 tau r^2 for vectors of length r, and
    ROUNDING sqrt(n) for n entries beside a 1 is lost of it. It looks at the first triplets that update, and
    again whenever twice as many have come, so that a long stream pays nothing for it; it tells once.
    """

    def __init__(self) -> None:
        self._seen, self._next = 0, 1

    def look(self, name: str, batch: TripletBatch, info: StepInfo) -> None:
        """Warn with a PrecisionNotice where more than `MOST_LOST` of a batch's steps is lost."""
        self._seen += len(batch)
        if self._seen < self._next or not len(rows := np.flatnonzero(info.outcome == UPDATED)[:ROWS_CHECKED]):
            return
        self._next = 2 * self._seen
        part, tau = batch.take(rows), info.tau[rows]
        squared, entries = np.max([_sizes(one) for one in (part.query, part.clicked, part.skipped)], axis=0)
        cut = tau * np.square(8 * squared) < info.loss[rows]  # others are as small as what is left to learn
        steps = float(np.square(2 * tau * squared)[cut].sum())
        lost = ROUNDING * np.sqrt(entries[cut].sum() / steps) if steps else 0.0
        if lost > MOST_LOST:
            self._next = UNBOUNDED
            warnings.warn(
                f"{name} updates, but float32 rounds off {'most' if lost > 0.5 else f'about {lost:.0%}'} of "
                "its steps, which it adds to a W that starts with 1 on its diagonal. Vectors are up to "
                f"{np.sqrt(squared.max()):.0e} long, tau is at most {tau.max():.0e}: bring vectors to unit "
                "length, as the map unit does, or allow larger steps",
                errors.PrecisionNotice,
                stacklevel=4,
            )


def _sizes(block: Block) -> Doubles:
    """Squared lengths of rows, and their numbers of entries, float64 [2, n]."""
    rows = (block.values if isinstance(block, DenseBlock) else block.checked_csr()).astype(np.float64)
    return np.stack([(rows**2).sum(axis=1), (rows != 0).sum(axis=1)])


UNBOUNDED = np.iinfo(np.int64).max

ONE_MATRIX = (np.zeros(0), np.zeros(0, np.bool_))
"""What `step_dense` tells of one matrix among several: nothing."""

StepArrays: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""outcome, loss, tau and reason, as kernels write them."""


def started(dim: int, start: Float32s | None) -> Float32s:
    """The diagonal of W_0, float32 [dim]: `start`, or ones without one. Raises ConfigError for another shape
    or a number that is not above 0."""
    if start is None:
        return np.ones(dim, np.float32)
    if start.shape != (dim,) or start.dtype != np.float32 or not (np.isfinite(start) & (start > 0)).all():
        raise errors.ConfigError(f"start must be {dim} finite float32 numbers above 0")
    return start


class ScoredByMatrix(BaseLearner[AnyConfig]):
    """A similarity given by a matrix W, however that is kept."""

    DISTANCE: ClassVar[bool] = False
    """Whether the score is -(a - b)^T W (a - b), with a W symmetric to the bit, and not a^T W b."""

    @property
    @abstractmethod
    def W(self) -> Float32s:
        """What is scored with, float32 [dim, dim]."""

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """Raw scores q^T W p; otherwise as `BaseLearner.similarity`."""
        return bilinear(self.W, as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items"))

    def form(self, normalised: bool = True, power: float | None = DEFAULT_POWER) -> ServingForm:
        """What it is served as: `ServingForm.from_matrix` of W, or sym(W) as it was learned where `power` is
        None."""
        return form_of_matrix(self.W, normalised, power, self.DISTANCE)

    def as_learned(self, copy: bool = True) -> BilinearForm:
        """q^T W p, or minus the distance, without symmetric part, projection or norms."""
        return BilinearForm(self.W, None, self.DISTANCE)


class MatrixLearner(ScoredByMatrix[AnyConfig]):
    """A similarity given by a matrix, from W = I on, or from another diagonal that `config.start` gives.

    base: the matrix without its pending steps, float32 [dim, dim], C-contiguous (4 dim^2 bytes; numpy asks
    for huge pages by itself). pending: see `learners.pending`. events: how many events were accepted so far,
    that is not rejected. The state's W is `base`: see `matrix_in`.
    """

    ROOM: ClassVar[int | None] = None
    """Steps on dense rows that may wait, a multiple of 4; None for what `room_of` says of the dimension."""
    SUMS: ClassVar[bool] = False
    """Whether steps of one query in a row are summed before they are added, in plain OASIS on dense rows
    alone: see `learners.kernels.delayed`."""

    base: Float32s
    pending: PendingSteps
    events: int

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.base.shape[0])

    @property
    def W(self) -> Float32s:
        """The learned matrix, float32 [dim, dim]: `base` itself where no step is pending, else a copy."""
        return self.pending.with_them(self.base)

    def settled(self) -> Float32s:
        """The learned matrix itself, to be changed in place, every pending step added."""
        self.pending.add_to(self.base)
        return self.base

    @property
    def _kind(self) -> int:
        return self._kind_by(self.config)

    @classmethod
    def _kind_by(cls, config: AnyConfig) -> int:
        if cls.DISTANCE:
            return DISTANCE
        return SYMMETRIC if getattr(config, "symmetric", "off") == "online" else BILINEAR

    @property
    def _room(self) -> int:
        return room_of(self.dim) if self.ROOM is None else self.ROOM

    def _start(self, dim: int) -> None:
        self._check(dim)
        self.base, self.events, self._sizes = identity(dim), 0, StepsFromIdentity()
        np.fill_diagonal(self.base, started(dim, getattr(self.config, "start", None)))
        self.pending = PendingSteps.none(dim, self._room, self._kind)

    @classmethod
    def added_later(cls, config: AnyConfig, dim: int) -> dict[str, NDArray[Any]]:
        """The arrays of pending steps, which older versions lack."""
        room = room_of(dim) if cls.ROOM is None else cls.ROOM
        return PendingSteps.none(dim, room, cls._kind_by(config)).arrays

    def _check(self, dim: int) -> None:
        """Raises ConfigError where the settings do not fit so many dimensions."""
        if self._psd_every and dim > MAX_FULL_DIM:
            raise errors.ConfigError(
                f"psd_every needs dim <= {MAX_FULL_DIM}, not {dim}: set it to 0 and use the serving form"
            )

    def _live(self) -> dict[str, NDArray[Any]]:
        return {"W": self.base, "events": np.array(self.events, np.int64), **self.pending.arrays}

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        self.base, self.events = saved_matrix(arrays, copy=copy), errors.saved_count(arrays, "events")
        self.pending = PendingSteps.restored(arrays, self.dim, self._room, self._kind, copy)
        self._sizes = StepsFromIdentity()
        if self.DISTANCE:
            require_symmetric(self.base)
        self._check(self.dim)

    def _check_precision(self, batch: TripletBatch, info: StepInfo) -> None:
        self._sizes.look(type(self).__name__, batch, info)

    @property
    def _psd_every(self) -> int:
        return int(getattr(self.config, "psd_every", 0))

    def _up_to_projections(
        self, info: StepInfo, step: Callable[[int, int, StepArrays], tuple[int, int]]
    ) -> None:
        """Take steps from one projection of W to the next, after every `psd_every` accepted events.

        step: (first row, how many events it may accept, where it writes) -> (rows consumed, events accepted).
        """
        every, done = self._psd_every, 0
        while done < len(info):
            budget = every - self.events % every if every else UNBOUNDED
            rest = slice(done, None)
            steps = (info.outcome[rest], info.loss[rest], info.tau[rest], info.reason[rest])
            consumed, accepted = step(done, budget, steps)
            done += int(consumed)
            self.events += int(accepted)
            if accepted == budget:
                self.base[...] = project_psd(self.settled())
                info.projected.append(done)

    def _step_dense(self, budget: int, triplets: list[Any], weights: Doubles, steps: StepArrays) -> Any:
        """Passive-aggressive steps on dense rows of queries, clicked and skipped, as `_up_to_projections`
        takes them."""
        C = float(self.config.C)  # type: ignore[attr-defined]
        waiting, kind = self.pending.for_kernels, BY_QUERY if self.SUMS else self._kind
        return step_dense(self.base, waiting, kind, C, budget, 0, tuple(triplets), weights, steps, ONE_MATRIX)

    def as_learned(self, copy: bool = True) -> BilinearForm:
        """As `ScoredByMatrix.as_learned`."""
        if copy:
            W = self.W
            return BilinearForm(W.copy() if W is self.base else W, None, self.DISTANCE)
        return BilinearForm(self.base, self.pending, self.DISTANCE)


def form_of_matrix(W: Float32s, normalised: bool, power: float | None, distance: bool = False) -> ServingForm:
    """The form of W, which it keeps a copy of where it needs it. distance: as in `ServingForm`, where the
    score is not normalised."""
    dim = len(W)
    if power is None or dim == 1:
        none, no_values = np.zeros((dim, 0), np.float32), np.zeros(0, np.float32)
        form = ServingForm(None, none, no_values, normalised, W.copy())
    else:
        form = ServingForm.from_matrix(W if dim <= MAX_FULL_DIM else W.copy(), normalised, power=power)
    return replace(form, distance=distance and not normalised)


def identity(dim: int) -> Float32s:
    """W = I, float32 [dim, dim], in fresh pages. Raises ConfigError below 1 dimension or beyond int32."""
    if not 1 <= dim <= np.iinfo(np.int32).max:
        raise errors.ConfigError(f"dim must be at least 1, not {dim}")
    W = np.zeros((dim, dim), np.float32)
    np.fill_diagonal(W, 1.0)
    return W


def saved_square(arrays: Mapping[str, NDArray[Any]], name: str = "W") -> Float32s:
    """The square matrix of that name itself. Raises StateError."""
    W = errors.saved(arrays, name, np.float32, (None, None))
    if W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise errors.StateError(f"array {name} has shape {W.shape}: it must be square")
    return W


def saved_matrix(arrays: Mapping[str, NDArray[Any]], name: str = "W", copy: bool = True) -> Float32s:
    """The square matrix of that name to continue from: copied, or taken over. Raises StateError."""
    return errors.to_write(saved_square(arrays, name), name, copy)


def require_symmetric(W: Float32s) -> None:
    """Raises StateError where W is not symmetric to the bit."""
    step = max(1, errors.CHECKED // len(W))
    for start in range(0, len(W), step):
        if not np.array_equal(W[start : start + step], W[:, start : start + step].T):
            raise errors.StateError("array W is not symmetric: it belongs to another algorithm")


def replay_rank_one(W: Float32s, symmetric: bool, steps: Steps, pending: PendingSteps | None = None) -> None:
    """W <- W + tau V for each step in order, in place; V = q e^T, or its symmetric part; then the projection
    that `steps` may hold.

    pending: where steps on dense rows wait, as the step lets them; None adds them all. Raises BlockError on
    steps of another kind or dimension, and naming the first step that is malformed: those before it are
    applied then.
    """
    if not isinstance(steps, StepBatch):
        raise errors.BlockError("this learner replays steps of rank one, not triplets: give its own `taken`")
    dim = W.shape[0]
    if steps.dim != dim:
        raise errors.BlockError(f"steps have {steps.dim} dimensions, the learner {dim}: give its own `taken`")
    rows = (steps.query.kernel_rows(), steps.error.kernel_rows())
    dense = isinstance(steps.query, DenseBlock)
    kind = SYMMETRIC if symmetric else BILINEAR
    waiting = PendingSteps.none(dim, MOST, kind) if pending is None else pending
    if dense:
        taken = replay_dense(W, waiting.for_kernels, symmetric, steps.tau, *rows)
    else:
        waiting.add_to(W)
        taken = replay_sparse(W.reshape(-1), dim, symmetric, steps.tau, *rows)
    if pending is None or steps.project:
        waiting.add_to(W)
    if taken < len(steps):
        raise errors.BlockError(f"step {taken} of {len(steps)} is malformed: steps before it are applied")
    if steps.project:
        W[...] = project_psd(W)


def require_period(psd_every: int) -> None:
    """Raises ConfigError for what is no number of events."""
    errors.require_whole("psd_every", psd_every)
    if psd_every < 0:
        raise errors.ConfigError(f"psd_every must be 0 (never) or a number of events, not {psd_every}")
