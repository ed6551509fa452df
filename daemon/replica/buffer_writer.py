"""The one writer of the two buffers: what the idle one owes to the active one, and the swap of a whole
version (load, verify, form, prepare, warm, flip).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import structlog

from checkpoints.encoding import array_digest
from checkpoints.manifest import Manifest
from daemon.replica.buffers import LeftRight, ModelBuffer, trained_number
from daemon.replica.loading import LoadedState, VersionRejected, load_form, load_state
from daemon.replica.refine import RefineResult
from daemon.replica.settings import Hooks, VersionSource
from daemon.replica.view import ModelId, View
from daemon.versions.algorithms import state_digest
from daemon.versions.order import Answering
from learners.forms.quadratic import ServedForm
from learners.steps import Steps


class DoubleBufferWriter:
    """Works on the idle side, flips, and brings the other side up to the same state.

    One thread. After a flip the old side owes something: to be left by its readers (always), then to take the
    same steps or to be copied. `settle` pays that; every piece of work begins with a settled writer.
    """

    def __init__(self, sides: LeftRight[ModelBuffer], algorithm: str, drain_s: float) -> None:
        self._sides, self._algorithm, self._drain_s = sides, algorithm, drain_s
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
        """Whether the idle side holds steps that readers have not seen: nothing else may flip it then."""
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
        self._copy, self._taken = self._sides.active.learner is not None, []

    def take(self, batch: Steps) -> None:
        """Steps into the idle side's state; readers see them after `flip_steps`. BlockError: `spoil` then."""
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

    def order_by(self, answers: Answering, order: ServedForm | None) -> None:
        """Given lists are ordered so from now on."""
        for side in (self._sides.active, self._sides.idle):
            if side.view is not None:
                side.view = replace(side.view, answers=answers, order=order)

    def install(self, work: RefineResult) -> ModelId | None:
        """Give readers a refined form and what was prepared of it; the model that answers with it.

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
    def _write(side: ModelBuffer, view: View, form: ServedForm, work: RefineResult) -> None:
        assert side.learner is not None
        side.carry.bring(form, side.buffers)
        own = side.carry.like(form, trained_number(view.model), side.learner, side.buffers)
        side.view = replace(view, form=own, formed=work.formed, prepared=work.prepared)

    def _flip(self) -> None:
        self._sides.flip()
        self._draining = True


class CannotCatchUp(Exception):
    """The idle side holds half of what comes behind its version."""


CatchUp: TypeAlias = Callable[[Manifest], ModelId | None]
"""Takes into the idle side what comes behind a version: the model that it is then, None where nothing is to
be taken. Raises CannotCatchUp."""

Result = TypeVar("Result")
REST_S = 0.002
"""At most between two phases of a swap, so that those who answer meanwhile get the processor."""

log = structlog.get_logger("tripletd.replica")


class Swapper:
    """Brings versions onto the idle side and flips; the active side answers meanwhile, whatever happens."""

    def __init__(
        self,
        source: VersionSource,
        hooks: Hooks,
        sides: LeftRight[ModelBuffer],
        writer: DoubleBufferWriter,
        stepping: bool,
    ) -> None:
        self._source, self._hooks, self._sides, self._writer = source, hooks, sides, writer
        self._stepping = stepping
        self._generation = 0

    def swap(
        self, number: int, answers: Answering, catch_up: CatchUp | None = None
    ) -> tuple[Manifest, dict[str, float]]:
        """Serve version `number` from now on: its manifest, and the seconds that each phase took.

        answers: how it orders and searches. catch_up: takes steps behind the version before it answers; where
        that fails it answers without.

        A replica that steps, and falls back to a version, keeps the form it has and carries it on to that: so
        it follows again within the time of one reading of its state, and the refiner makes the form.
        The writer must be settled. Raises VersionRejected: the active side is as it was, the idle one spoilt.
        """
        seconds: dict[str, float] = {}
        self._writer.spoil()
        side, active = self._sides.idle, self._sides.active
        state = _timed(seconds, "load", lambda: load_state(self._source, number, side.buffers, answers))
        if active.view is not None:
            time.sleep(min(seconds["load"], REST_S))
        if self._stepping and active.view is not None and active.view.formed > 0:
            _timed(seconds, "follow", lambda: side.carry_to(state, active))
        else:
            self._form(state, side, seconds)
        if catch_up is not None and active.view is not None:
            try:
                model = _timed(seconds, "catch up", lambda: catch_up(state.manifest))
            except CannotCatchUp:
                return self.swap(number, answers)
            if model is not None:
                side.stand_at(model)
        _timed(seconds, "warm", lambda: self._call("warm", self._hooks.warm, side.view))
        _timed(seconds, "flip", self._writer.flip_version)
        return state.manifest, seconds

    def _form(self, state: LoadedState, side: ModelBuffer, seconds: dict[str, float]) -> None:
        self._generation += 1
        form = _timed(seconds, "form", lambda: load_form(self._source, state, side.buffers))
        view = side.take_version(state, form, self._source.space.map_id, self._generation)
        prepared = _timed(seconds, "prepare", lambda: self._call("prepare", self._hooks.prepare, view))
        side.view = replace(view, prepared=prepared)
        if self._stepping:
            _timed(seconds, "follow", lambda: side.follow_from(state))

    def _call(self, reason: str, hook: Callable[[Any], Any], view: Any) -> Any:
        try:
            return hook(view)
        except Exception as error:
            log.exception("a version cannot be made ready", version=view.model.version, phase=reason)
            raise VersionRejected(
                reason, f"version {view.model.version}: {type(error).__name__}: {error}"
            ) from error


def _timed(seconds: dict[str, float], phase: str, work: Callable[[], Result]) -> Result:
    began = time.monotonic()
    try:
        return work()
    finally:
        seconds[phase] = time.monotonic() - began
