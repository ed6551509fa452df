"""How a followed state's form keeps up with steps: to first order, by each step, or at refinements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from daemon.config.schema import ServingConfig
from daemon.replica.loading import BufferArrays
from daemon.replica.view import ModelSpace
from daemon.versions.algorithms import algorithm_of
from daemon.versions.forms import ANEW, CARRIED, HELD, VERSIONS, FormKind, power_of
from learners.base import Learner
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import ServedForm
from learners.forms.serving import ServingForm
from learners.tether import untethered


class FormUpdater:
    """Forms of a learner that steps in the arrays of `Buffers`, as they are between two that are made."""

    def __init__(self, kind: FormKind, serving: ServingConfig) -> None:
        self._kind, self._serving = kind, serving

    def follow(self, form: ServedForm, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """The form just made of the learner's state, now followed by steps. Raises what making it raises."""
        return form

    def like(self, form: ServedForm, number: int, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """Another side's form here, where the arrays hold the same numbers or those to carry it on to."""
        return form

    def bring(self, form: ServedForm, buffers: BufferArrays) -> None:
        """Copy what a form holds besides the state to this side's buffers."""

    def exact(self, learner: Learner, number: int) -> ServedForm:
        """The form of a state, computed from scratch."""
        return self._kind.make(learner, number, self._serving)

    def to_install(self, exact: ServedForm, learner: Learner) -> ServedForm | None:
        """What both sides take of a form computed from scratch; None where theirs are exact already."""
        return exact


class FirstOrderUpdate(FormUpdater):
    """Forms with a matrix: a change of W is carried on to first order (`learners.forms.carried`)."""

    def follow(self, form: ServedForm, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """The tangent at the form's W, in the buffers."""
        assert isinstance(form, ServingForm)
        power, pending = power_of(self._serving), untethered(learner).pending
        return CarriedForm.of(form, buffers.state["W"], power, buffers.tangent, pending)

    def like(self, form: ServedForm, number: int, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """The same, reading this side's W."""
        carried = cast(CarriedForm, form)
        tangent = None if carried.tangent is None else buffers.tangent
        pending = untethered(learner).pending
        return replace(carried, state_matrix=buffers.state["W"], tangent=tangent, pending=pending)

    def bring(self, form: ServedForm, buffers: BufferArrays) -> None:
        """Its two matrices."""
        tangent, mine = cast(CarriedForm, form).tangent, buffers.tangent
        if tangent is not None and mine is not None:
            np.copyto(mine.constant, tangent.constant)
            np.copyto(mine.P, tangent.P)

    def to_install(self, exact: ServedForm, learner: Learner) -> ServedForm | None:
        """The form with its tangent, in memory of its own."""
        assert isinstance(exact, ServingForm)
        power, pending = power_of(self._serving), untethered(learner).pending
        return CarriedForm.of(exact, learner.state()["W"], power, pending=pending)


class RecomputeAlways(FormUpdater):
    """Forms that are made from the state in no time: after every step there is a new one."""

    def like(self, form: ServedForm, number: int, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """Made of this side's state."""
        return self.exact(learner, number)

    def to_install(self, exact: ServedForm, learner: Learner) -> ServedForm | None:
        """Nothing."""
        return None


class KeepUntilRefined(FormUpdater):
    """Forms that take long to make and cannot be carried on: one stays, and refers to neither side."""


FORM_UPDATERS: Mapping[str, Callable[[FormKind, ServingConfig], FormUpdater]] = {
    CARRIED: FirstOrderUpdate,
    ANEW: RecomputeAlways,
    HELD: KeepUntilRefined,
    VERSIONS: KeepUntilRefined,
}
"""By what `follows` says of forms; those of whole versions are never carried anywhere."""


def form_updater_of(space: ModelSpace, serving: ServingConfig) -> FormUpdater:
    """How forms of versions of this space keep up."""
    kind = algorithm_of(space.algorithm, space.keys).forms
    return FORM_UPDATERS[kind.follows](kind, serving)
