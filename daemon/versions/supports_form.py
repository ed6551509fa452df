"""The form of OKS and OMKS over a support set, which scores a few items for each query, as [serving] says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from numpy.typing import NDArray

from daemon.config.model import ServingConfig
from daemon.exits import UserError
from daemon.versions.forms import HELD
from learners.forms.supports import SupportsForm
from learners.multikernel import Omks
from learners.protocol import Learner
from learners.quadratic import ServedForm


@dataclass(frozen=True, slots=True)
class SupportsForms:
    """Forms of learners over a support set; kept beside their version, since making one takes a
    decomposition. None of them folds."""

    follows: str = HELD
    kept: bool = True

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """Never."""
        return False

    def make(self, learner: Learner, number: int, config: ServingConfig) -> ServedForm:
        """The form by `score`, `psd` and `power`; "off" serves the similarity as it was learned.
        Raises UserError."""
        if config.psd == "lanczos":
            raise UserError(
                'serving.psd: "lanczos" is no form of oks and omks, which have no matrix',
                'set serving.psd to "auto"',
            )
        power = None if config.psd == "off" else config.power
        return cast(Omks, learner).form(config.score == "normalised", power)

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        return SupportsForm.from_arrays(arrays, cast(Omks, learner).config)

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """What is kept of it."""
        return cast(SupportsForm, form).arrays()

    def account(self, form: ServedForm) -> dict[str, Any]:
        """How much is kept."""
        support = cast(SupportsForm, form).support
        return {"triplets": support.kept, "objects": support.objects}
