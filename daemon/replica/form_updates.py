"""How a followed state's form keeps up with steps: to first order, by each step, or at refinements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from daemon.config.schema import ServingConfig
from daemon.replica.loading import BufferArrays
from daemon.replica.settings import VersionSource
from daemon.versions.forms import ANEW, CARRIED, HELD, VERSIONS, FormChoice, FormKind, as_scored, power_of
from learners.base import Learner
from learners.forms.carried import CarriedForm, Mixed
from learners.forms.quadratic import DiagonalForm, ServedForm
from learners.forms.serving import BackoffForm, ServingForm, learned_of, with_learned
from learners.maps.base import OwnRanking
from learners.oasis_softmax import OasisSoftmax
from learners.tether import untethered

ChoiceAt: TypeAlias = Callable[[int], FormChoice | None]
"""Number of a version -> what was chosen for its form, and for what was learned behind it."""


class FormUpdater:
    """Forms of a learner that steps in the arrays of `Buffers`, as they are between two that are made."""

    def __init__(
        self,
        kind: FormKind,
        serving: ServingConfig,
        own: OwnRanking | None = None,
        choice_at: ChoiceAt = lambda number: None,
    ) -> None:
        """own: the user's own ranking, which the untrained version answers with."""
        self._kind, self._serving, self._own = kind, as_scored(serving, own), own
        self._choice_at = choice_at

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
        return self._kind.make(learner, number, self._serving, self._own, self._choice_at(number))

    def to_install(self, exact: ServedForm, learner: Learner) -> ServedForm | None:
        """What both sides take of a form computed from scratch; None where theirs are exact already."""
        return exact


class FirstOrderUpdate(FormUpdater):
    """Forms with a matrix: a change of W is carried on to first order (`learners.forms.carried`)."""

    def follow(self, form: ServedForm, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """The tangent at the form's W, in the buffers. The user's own ranking, which is no function of W, is
        carried on by what changes in the form of W."""
        if isinstance(form, BackoffForm):
            return with_learned(form, self.follow(form.learned, learner, buffers))
        power, pending, mixed = self._power(form), untethered(learner).pending, mixed_in(learner)
        whole = not isinstance(form, ServingForm) or form.matrix is not None
        if mixed is not None and not (whole and buffers.tangent is not None):
            return form  # of W mixed with others: it follows no array
        if isinstance(form, ServingForm):
            return CarriedForm.of(form, buffers.state["W"], power, buffers.tangent, pending, mixed=mixed)
        assert isinstance(form, DiagonalForm)
        assert self._own is not None
        if buffers.tangent is None:  # exact where W is that ranking itself, else kept until it is recomputed
            begun = np.array_equal(buffers.state["W"].diagonal(), form.weights)
            return CarriedForm.of_diagonal(form, buffers.state["W"], pending=pending) if begun else form
        scale = self._own.self_score
        W, out = buffers.state["W"], buffers.tangent
        return CarriedForm.of_diagonal(form, W, power, scale, out=out, pending=pending, mixed=mixed)

    def like(self, form: ServedForm, number: int, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """The same, reading this side's W."""
        carried = learned_of(form)
        if not isinstance(carried, CarriedForm):
            return form
        tangent = None if carried.tangent is None else buffers.tangent
        pending = untethered(learner).pending
        here = replace(carried, state_matrix=buffers.state["W"], tangent=tangent, pending=pending)
        return with_learned(form, here)

    def bring(self, form: ServedForm, buffers: BufferArrays) -> None:
        """Bring both matrices of the form up to date."""
        carried, mine = learned_of(form), buffers.tangent
        tangent = carried.tangent if isinstance(carried, CarriedForm) else None
        if tangent is not None and mine is not None:
            np.copyto(mine.constant, tangent.constant)
            np.copyto(mine.P, tangent.P)

    def to_install(self, exact: ServedForm, learner: Learner) -> ServedForm | None:
        """The form with its tangent, in memory of its own; nothing before any step, when the own ranking is
        followed exactly."""
        if isinstance(exact, DiagonalForm):
            return None
        learned, pending, mixed = learned_of(exact), untethered(learner).pending, mixed_in(learner)
        assert isinstance(learned, ServingForm)
        if mixed is not None and learned.matrix is None:
            return exact
        W, power = learner.state()["W"], self._power(learned)
        carried = CarriedForm.of(learned, W, power, pending=pending, mixed=mixed)
        return with_learned(exact, carried)

    def _power(self, form: ServedForm) -> float:
        """What the eigenvalues of a form were raised to, as configured where the form does not say."""
        known = form.power if isinstance(form, ServingForm) else None
        return power_of(self._serving) if known is None else known


def mixed_in(learner: Learner) -> Mixed | None:
    """What the array W of a learner's state is a part of, where that is not what is scored with."""
    one = untethered(learner)
    return Mixed(one.W, one.SHARE) if isinstance(one, OasisSoftmax) else None


class RecomputeAlways(FormUpdater):
    """Forms that are made from the state in no time: after every step there is a new one."""

    def like(self, form: ServedForm, number: int, learner: Learner, buffers: BufferArrays) -> ServedForm:
        """Made of this side's state."""
        return self.exact(learner, number)

    def to_install(self, exact: ServedForm, learner: Learner) -> ServedForm | None:
        """Install nothing: this form is not recomputed."""
        return None


class KeepUntilRefined(FormUpdater):
    """Forms that take long to make and cannot be carried on: one stays, and refers to neither side."""


FORM_UPDATERS: Mapping[str, type[FormUpdater]] = {
    CARRIED: FirstOrderUpdate,
    ANEW: RecomputeAlways,
    HELD: KeepUntilRefined,
    VERSIONS: KeepUntilRefined,
}
"""By what `follows` says of forms; those of whole versions are never carried anywhere."""


def form_updater_of(source: VersionSource) -> FormUpdater:
    """How forms of versions of this source keep up."""
    kind = source.forms
    return FORM_UPDATERS[kind.follows](kind, source.serving, source.space.own, source.choice_at)
