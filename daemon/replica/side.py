"""One side of a served model: its buffers, the learner that steps in them, and the view that readers get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daemon.config.model import LearnerConfig
from daemon.replica.loading import Buffers, Loaded
from daemon.replica.model import ModelId
from daemon.replica.refusals import Refused
from daemon.replica.view import Form, View
from daemon.versions.algorithms import learner_config_of, restored
from learners.block import Block, SparseBlock
from learners.carried import CarriedForm, Tangent
from learners.errors import LearnerError
from learners.protocol import Learner
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

    def take_version(self, loaded: Loaded, map_id: str, generation: int) -> View:
        """A view of a version that was loaded into this side's buffers, not yet `prepared`."""
        manifest = loaded.manifest
        self.learner, self.config, self.generation = None, None, generation
        model = ModelId(manifest.number, 0, manifest.watermark, loaded.records)
        self.view = View(model, map_id, loaded.form, loaded.records)
        return self.view

    def follow_from(self, loaded: Loaded, power: float) -> None:
        """Have the version, which this side has taken, followed by steps: its form is carried on as W
        changes.

        power: of the form's eigenvalues. Raises Refused.
        """
        assert self.view is not None
        try:
            self.config = learner_config_of(loaded.manifest)
            self.learner = restored(self.config, loaded.arrays)
            carried = CarriedForm.of(loaded.form, self.buffers.W, power, self.buffers.tangent)
        except (LearnerError, KeyError, ValueError, np.linalg.LinAlgError) as error:
            raise Refused("malformed", f"version {loaded.manifest.number}: {error}") from error
        self.view = replace(self.view, form=carried)

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
