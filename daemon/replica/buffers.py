"""The two buffers of a served model (left-right), and one of them: its arrays, the learner that steps in
them, the view that readers get.

After Ramalhete and Correia, "Left-Right: a concurrency control technique with wait-free population
oblivious reads" (2015): readers announce themselves on the active buffer; the writer changes the idle
one, makes it the active one, and waits until the last reader of the old one has left before it touches
that. Nothing is allocated, and a reader never waits for the writer's work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from daemon.replica.form_updates import FormUpdater
from daemon.replica.loading import Arrays, BufferArrays, LoadedState, VersionRejected
from daemon.replica.view import ModelId, View
from daemon.versions.contents import watermark_of
from learners.base import Learner
from learners.block import DenseBlock, SparseBlock
from learners.errors import LearnerError
from learners.forms.quadratic import ServedForm
from learners.keyed import Keyed
from learners.steps import StepBatch, Steps

SCATTERED = 8
"""What touching one number of a state out of order costs, in numbers read in order: a cache line of 64 bytes
holds 16 float32, and half of them are used where rows are sparse."""


@dataclass(slots=True, eq=False)
class ModelBuffer:
    """The writer's working place while it is idle, one model while it is active.

    learner: steps in `buffers.state`; None where whole versions are served. remake: such a learner on other
    arrays. view: None until a version was loaded. generation: counts loaded versions, so that what was
    computed of an earlier one is known.
    """

    buffers: BufferArrays
    carry: FormUpdater
    learner: Learner | None = None
    remake: Callable[[Arrays], Learner] | None = None
    generation: int = 0
    view: View | None = None

    def take_version(self, state: LoadedState, form: ServedForm, map_id: str, generation: int) -> View:
        """A view of a version that was loaded into this side's buffers, not yet `prepared`."""
        self.learner, self.remake, self.generation = None, None, generation
        about = state.queries, state.answers, state.order
        self.view = View(model_of(state), map_id, form, state.records, None, *about)
        return self.view

    def follow_from(self, state: LoadedState) -> None:
        """From now on the version taken is followed by steps: its form keeps up. Raises VersionRejected."""
        assert self.view is not None
        self.learner, self.remake = state.learner, state.remake
        try:
            form = self.carry.follow(self.view.form, state.learner, self.buffers)
        except (LearnerError, ValueError, np.linalg.LinAlgError) as error:
            raise VersionRejected("form", f"version {state.manifest.number}: {error}") from error
        self.view = replace(self.view, form=form)

    def carry_to(self, state: LoadedState, other: ModelBuffer) -> None:
        """Take a version whose state was loaded into this side's buffers, with the other side's form and what
        was prepared of it: a form answers to any change of the state alike, by steps or by a load.
        """
        assert other.view is not None
        self.carry.bring(other.view.form, self.buffers)
        self.learner, self.remake, self.generation = state.learner, state.remake, other.generation
        self.mirror(other)
        assert self.view is not None
        view = replace(self.view, model=model_of(state), queries=state.queries)
        self.view = replace(view, answers=state.answers, order=state.order)

    def stand_at(self, model: ModelId) -> None:
        """The learner has taken the steps that lead to this model: so does the view."""
        assert self.view is not None
        self.view = replace(self.view, model=model)
        self.mirror(self)

    def copy_of(self, other: ModelBuffer) -> None:
        """Become equal to another side, which is only read."""
        assert other.view is not None
        assert other.learner is not None
        assert other.remake is not None
        self.remake, self.generation = other.remake, other.generation
        self.learner = copied(other.learner, self.buffers.state, other.remake)
        self.carry.bring(other.view.form, self.buffers)
        self.mirror(other)

    def steps_like(self, other: ModelBuffer, batches: Sequence[Steps]) -> None:
        """Become equal to a side that took these steps since both were equal: take them too, or copy it."""
        assert other.learner is not None
        whole = size = other.learner.numbers
        if isinstance(other.learner, Keyed):  # a step is of one key's model
            size //= other.learner.config.slots
        dense = self.learner is not None and self.learner.SPREADS
        if self.learner is None or sum(touched(batch, size, dense) for batch in batches) > whole:
            assert other.remake is not None
            self.learner = copied(other.learner, self.buffers.state, other.remake, self.learner)
        else:
            for batch in batches:
                self.learner.replay(batch)
        self.mirror(other)

    def mirror(self, other: ModelBuffer) -> None:
        """The other's view, on this side's buffers, which hold the same numbers."""
        assert other.view is not None
        assert self.learner is not None
        number = trained_number(other.view.model)
        form = self.carry.like(other.view.form, number, self.learner, self.buffers)
        self.view = replace(other.view, form=form)


def model_of(state: LoadedState) -> ModelId:
    """The name of a version's own state."""
    manifest = state.manifest
    return ModelId(manifest.number, 0, watermark_of(manifest), state.records, manifest.line)


def trained_number(model: ModelId) -> int:
    """The number by which the form of a state is made: version 0 is untrained, and its form may be the state
    itself; behind it a state is trained like any other.
    """
    return max(1, model.version) if model.total else 0


def copied(
    learner: Learner, room: Arrays, remake: Callable[[Arrays], Learner], there: Learner | None = None
) -> Learner:
    """A copy of a learner in arrays that are there already; `there`: one of the same settings that may lie on
    them, and is given back where it has become the copy by that. One that grows has memory of its own.
    """
    if learner.GROWS:
        return learner.clone()
    for name, array in learner.state().items():
        np.copyto(room[name], array)
    return there if there is not None and _lies_on(there, room) else remake(room)


def _lies_on(learner: Learner, room: Arrays) -> bool:
    """Whether a learner's state is what these arrays hold, without reading the large ones."""
    return all(
        np.may_share_memory(array, room[name]) or (array.size == 1 and np.array_equal(array, room[name]))
        for name, array in learner.state().items()
    )


def touched(batch: Steps, size: int, dense: bool = False) -> int:
    """What taking these steps costs, in numbers of a state of that size read in order: all of them for each
    dense step, more than all for a projection. dense: the learner makes sparse rows dense.
    """
    if not isinstance(batch, StepBatch):
        triplets = batch.batch
        rows = (triplets.query, triplets.clicked, triplets.skipped)
        if dense or isinstance(triplets.query, DenseBlock):
            return len(triplets) * size
        return SCATTERED * sum(block.nbytes // 4 for block in rows)
    if batch.project:
        return batch.dim**2 + 1
    if isinstance(batch.query, SparseBlock) and isinstance(batch.error, SparseBlock):
        return SCATTERED * int(np.diff(batch.query.indptr) @ np.diff(batch.error.indptr))
    return len(batch) * batch.dim**2


T = TypeVar("T")


class LeftRight(Generic[T]):
    """Two preallocated values: `read` gives the active one, the single writer changes the idle one.

    A side is free for the writer from `drain() == True` on until the next `flip`. At the start both are
    unread, so `idle` is free.
    """

    def __init__(self, left: T, right: T) -> None:
        self._sides = (left, right)
        self._active = 0
        self._readers: tuple[dict[object, tuple[str, float]], ...] = ({}, {})
        self._changed = threading.Condition(threading.Lock())

    @contextmanager
    def read(self) -> Iterator[T]:
        """The active side, which does not change inside the block.

        The lock is held for a few assignments only, never while the writer works or waits.
        """
        me = object()
        entry = (threading.current_thread().name, time.monotonic())
        with self._changed:
            side = self._active
            self._readers[side][me] = entry
        try:
            yield self._sides[side]
        finally:
            with self._changed:
                readers = self._readers[side]
                del readers[me]
                if not readers:
                    self._changed.notify_all()

    @property
    def active(self) -> T:
        """The side that readers get. For the writer, who alone decides when that changes."""
        return self._sides[self._active]

    @property
    def idle(self) -> T:
        """The side that does not answer. Only the writer changes it, and only once `drain` said
        that it is free."""
        return self._sides[1 - self._active]

    def flip(self) -> None:
        """Give the idle side to readers who come from now on; those inside stay where they are.

        RuntimeError when the idle side still has readers: one of them could then stay through two flips and
        meet the writer.
        """
        with self._changed:
            if self._readers[1 - self._active]:
                raise RuntimeError("the idle side still has readers: drain it before flipping")
            self._active = 1 - self._active

    def drain(self, timeout_s: float) -> bool:
        """Wait until nobody reads the idle side; False when somebody still does after `timeout_s` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._readers[1 - self._active], timeout_s)

    def lingering(self, longer_than_s: float = 0.0) -> list[str]:
        """Who reads the idle side for at least so long: "name of the thread, 12.3 s" each, longest first."""
        now = time.monotonic()
        with self._changed:
            inside = [(now - since, name) for name, since in self._readers[1 - self._active].values()]
        return [f"{name}, {age:.1f} s" for age, name in sorted(inside, reverse=True) if age >= longer_than_s]
