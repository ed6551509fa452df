"""What versions of a learner are served as: one kind of form per family of learners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from daemon.config.model import ServingConfig
from learners.forms.quadratic import ServedForm
from learners.protocol import Learner

CARRIED, ANEW, HELD, VERSIONS = "carried", "anew", "held", "versions"


class FormKind(Protocol):
    """Makes forms of learners."""

    @property
    def kept(self) -> bool:
        """Whether forms are stored beside their versions."""

    @property
    def follows(self) -> str:
        """How a form keeps up with steps: `CARRIED` on to first order, made `ANEW` with each, `HELD` as it is
        until another one is made, or only by `VERSIONS`. A form that is held refers to none of the learner's
        arrays."""

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """Whether a form of this dimension is a matrix [dim, dim] of its own."""

    def make(self, learner: Learner, number: int, config: ServingConfig) -> ServedForm:
        """The form of a learner at version `number`, 0 untrained; it may read the learner's arrays in place.
        Raises UserError for settings that do not suit it.
        """

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> ServedForm:
        """The form of a learner from what `arrays` gave of it. Raises StateError."""

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """What is stored of a form."""

    def account(self, form: ServedForm) -> dict[str, Any]:
        """How a form was made, for people."""


@dataclass(frozen=True, slots=True)
class MadeAnew:
    """Forms that are made from the state in no time, and stored nowhere; `form_of` makes one."""

    form_of: Callable[[Any, ServingConfig], ServedForm]
    follows: str = ANEW
    kept: bool = False

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """Never."""
        return False

    def make(self, learner: Learner, number: int, config: ServingConfig) -> ServedForm:
        """As `form_of`."""
        return self.form_of(learner, config)

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> ServedForm:
        """Never asked for: nothing is stored."""
        raise LookupError("no form of this kind is stored")

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def account(self, form: ServedForm) -> dict[str, Any]:
        """Nothing."""
        return {}
