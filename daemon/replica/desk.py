"""The writer's hand on the two sides: what the idle one owes to the active one."""

from __future__ import annotations

from dataclasses import replace

from checkpoints.encoding import array_digest
from daemon.replica.model import ModelId
from daemon.replica.refine import Work
from daemon.replica.side import Side, trained_number
from daemon.replica.sides import Sides
from daemon.replica.view import View
from daemon.versions.algorithms import state_digest
from learners.forms.quadratic import ServedForm
from learners.steps import Steps


class Desk:
    """Works on the idle side, flips, and brings the other side up to the same state.

    One thread. After a flip the old side owes something: to be left by its readers (always), then to take the
    same steps or to be copied. `settle` pays that; every piece of work begins with a settled desk.
    """

    def __init__(self, sides: Sides[Side], algorithm: str, drain_s: float) -> None:
        self._sides = sides
        self._algorithm = algorithm
        self._drain_s = drain_s
        self._draining = False
        self._copy = False
        self._owed: list[Steps] = []
        self._taken: list[Steps] = []

    def settle(self) -> bool:
        """Bring the idle side to the active one's state; False while a reader does not leave it."""
        if self._draining:
            if not self._sides.drain(self._drain_s):
                return False
            self._draining = False
        idle, active = self._sides.idle, self._sides.active
        if self._copy:
            idle.copy_of(active)
        elif self._owed:
            idle.steps_like(active, self._owed)
        self._copy, self._owed = False, []
        return True

    @property
    def unshown(self) -> bool:
        """Whether the idle side holds steps that readers have not seen: it cannot be flipped for another
        reason then.
        """
        return bool(self._taken)

    def stuck(self) -> tuple[str, ...]:
        """Readers who do not leave the old side."""
        return tuple(self._sides.lingering(self._drain_s)) if self._draining else ()

    def spoil(self) -> None:
        """The idle side holds what cannot be used: to be copied from the active one, where that one steps."""
        active = self._sides.active
        self._taken = []
        self._copy = active.view is not None and active.learner is not None

    def flip_version(self) -> None:
        """The idle side, with a version on it, becomes active."""
        self._flip()
        self._copy = self._sides.active.learner is not None

    def take(self, batch: Steps) -> None:
        """Steps into the idle side's state; readers see none of it until `flip_steps`. Raises BlockError:
        `spoil` then.
        """
        learner = self._sides.idle.learner
        assert learner is not None, "a version was loaded to be followed by steps"
        learner.replay(batch)
        self._taken.append(batch)

    def digest(self) -> str:
        """Of the idle side's state, with all steps taken, as the learner tells it of versions."""
        learner = self._sides.idle.learner
        assert learner is not None, "a version was loaded to be followed by steps"
        state = learner.state()
        return state_digest(self._algorithm, state, lambda name: array_digest(state[name]))

    def flip_steps(self, model: ModelId) -> None:
        """The steps taken are the model from now on."""
        idle, active = self._sides.idle, self._sides.active
        assert active.view is not None
        idle.mirror(active)
        assert idle.view is not None
        idle.view = replace(idle.view, model=model)
        self._flip()
        self._owed, self._taken = self._taken, []

    def relabel(self, model: ModelId) -> None:
        """The same numbers under another name: no flip is needed, readers get the one view or the other."""
        for side in (self._sides.active, self._sides.idle):
            if side.view is not None:
                side.view = replace(side.view, model=model)

    def install(self, work: Work) -> ModelId | None:
        """Give readers a form made anew and what was prepared of it; the model that answers with it.

        None where it was made of a version that is not served any more.
        """
        idle, active = self._sides.idle, self._sides.active
        if active.view is None or active.generation != work.generation:
            return None
        if work.form is None:
            for side in (active, idle):
                if side.view is not None:
                    side.view = replace(side.view, formed=work.formed, prepared=work.prepared)
            return active.view.model
        self._write(idle, active.view, work.form, work)
        self._flip()
        if self.settle():
            self._write(self._sides.idle, active.view, work.form, work)
        else:
            self._copy = True
        return active.view.model

    @staticmethod
    def _write(side: Side, view: View, form: ServedForm, work: Work) -> None:
        assert side.learner is not None
        side.carry.bring(form, side.buffers)
        own = side.carry.like(form, trained_number(view.model), side.learner, side.buffers)
        side.view = replace(view, form=own, formed=work.formed, prepared=work.prepared)

    def _flip(self) -> None:
        self._sides.flip()
        self._draining = True
