"""One side of a served model: its buffers, the learner that steps in them, and the view that readers get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daemon.config.learners import LearnerConfig
from daemon.replica.loading import Buffers, State
from daemon.replica.model import ModelId
from daemon.replica.refusals import Refused
from daemon.replica.view import View
from daemon.versions.algorithms import learner_config_of, restored
from learners.block import Block, SparseBlock
from learners.carried import CarriedForm, Tangent
from learners.errors import LearnerError
from learners.protocol import Learner
from learners.quadratic import Form
from learners.serving import ServingForm
from learners.steps import StepBatch

SCATTERED = 8
"""What touching one number of W out of order costs, in numbers read in order: a cache line of 64 bytes holds
16 float32, and half of them are used where rows are sparse."""


@dataclass(slots=True, eq=False)
class Side:
    """The writer's working place while it is idle, one model while it is active.

    learner: steps in `buffers.W`, made with `config`; None where whole versions are served. view: None until
    a version was loaded. generation: counts loaded versions, so that what was computed of an earlier one is
    known.
    """

    buffers: Buffers
    learner: Learner | None = None
    config: LearnerConfig | None = None
    generation: int = 0
    view: View | None = None

    def take_version(self, state: State, form: ServingForm, map_id: str, generation: int) -> View:
        """A view of a version that was loaded into this side's buffers, not yet `prepared`."""
        self.learner, self.config, self.generation = None, None, generation
        self.view = View(model_of(state), map_id, form, state.records)
        return self.view

    def follow_from(self, state: State, power: float) -> None:
        """Have the version that this side has taken followed by steps: its form is carried on as W changes.

        power: of the form's eigenvalues. Raises Refused.
        """
        assert self.view is not None
        assert isinstance(self.view.form, ServingForm)
        self._learn_from(state)
        try:
            form = CarriedForm.of(self.view.form, self.buffers.W, power, self.buffers.tangent)
        except (LearnerError, ValueError, np.linalg.LinAlgError) as error:
            raise Refused("form", f"version {state.manifest.number}: {error}") from error
        self.view = replace(self.view, form=form)

    def carry_to(self, state: State, other: Side) -> None:
        """Take a version whose W was loaded into this side's buffer, with the other side's form and what was
        prepared of it: a form answers to any change of W alike, by steps or by a load. Raises Refused.
        """
        copy_tangent(other.buffers.tangent, self.buffers)
        self._learn_from(state)
        self.generation = other.generation
        self.mirror(other)
        assert self.view is not None
        self.view = replace(self.view, model=model_of(state))

    def _learn_from(self, state: State) -> None:
        try:
            self.config = learner_config_of(state.manifest)
            self.learner = restored(self.config, state.arrays)
        except (LearnerError, KeyError, ValueError) as error:
            raise Refused("malformed", f"version {state.manifest.number}: {error}") from error

    def copy_of(self, other: Side) -> None:
        """Become equal to another side, which is only read."""
        np.copyto(self.buffers.W, other.buffers.W)
        copy_tangent(other.buffers.tangent, self.buffers)
        self.learner, self.config, self.generation = None, other.config, other.generation
        if other.learner is not None and other.config is not None:
            self.learner = restored(other.config, {**other.learner.state(), "W": self.buffers.W})
        self.mirror(other)

    def steps_like(self, other: Side, batches: Sequence[StepBatch]) -> None:
        """Become equal to a side that took these steps since both were equal: take them too, or copy it."""
        if self.learner is None or sum(map(touched, batches)) > self.buffers.W.size:
            np.copyto(self.buffers.W, other.buffers.W)
        else:
            for batch in batches:
                self.learner.replay(batch)
        self.mirror(other)

    def mirror(self, other: Side) -> None:
        """The other's view, on this side's buffers, which hold the same numbers."""
        assert other.view is not None
        self.view = replace(other.view, form=on_buffers(other.view.form, self.buffers))


def model_of(state: State) -> ModelId:
    """The name of a version's own state."""
    return ModelId(state.manifest.number, 0, state.manifest.watermark, state.records)


def on_buffers(form: Form, buffers: Buffers) -> CarriedForm:
    """A carried form on other buffers."""
    assert isinstance(form, CarriedForm), "a side that steps has a carried form"
    tangent = None if form.tangent is None else buffers.tangent
    return replace(form, state_matrix=buffers.W, tangent=tangent)


def copy_tangent(tangent: Tangent | None, buffers: Buffers) -> None:
    """Bring a carried form's matrices to other buffers."""
    mine = buffers.tangent
    if tangent is not None and mine is not None:
        np.copyto(mine.constant, tangent.constant)
        np.copyto(mine.P, tangent.P)


def touched(batch: StepBatch) -> int:
    """What taking these steps costs, in numbers of W read in order: all of them for each dense step, more
    than all for a projection.
    """
    if batch.project:
        return batch.dim**2 + 1
    if isinstance(batch.query, SparseBlock) and isinstance(batch.error, SparseBlock):
        return SCATTERED * int(_lengths(batch.query) @ _lengths(batch.error))
    return len(batch) * batch.dim**2


def _lengths(block: Block) -> np.ndarray:
    assert isinstance(block, SparseBlock)
    return np.diff(block.indptr)
