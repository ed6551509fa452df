"""The form of OKS and OMKS over a support set, which scores a few items for each query, as [serving] says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from numpy.typing import NDArray

from daemon.config.model import ServingConfig
from daemon.exits import UserError
from daemon.versions.forms import HELD
from learners.forms.quadratic import ServedForm
from learners.multikernel import Omks
from learners.multikernel.form import MOST_OBJECTS, AsLearned, SupportsForm
from learners.protocol import Learner


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
        power, kept = None if config.psd == "off" else config.power, cast(Omks, learner).support.objects
        if power is not None and kept > MOST_OBJECTS:
            raise UserError(
                f"serving.psd: a form of {kept} kept objects takes too long (at most {MOST_OBJECTS})",
                'lower learner.objects, or set serving.psd to "off"',
            )
        return cast(Omks, learner).form(config.score == "normalised", power)

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        kind = AsLearned if "triplets" in arrays else SupportsForm
        return kind.from_arrays(arrays, cast(Omks, learner).config)

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """What is kept of it."""
        return cast(SupportsForm | AsLearned, form).arrays()

    def account(self, form: ServedForm) -> dict[str, Any]:
        """Of how many objects, and how many eigenvectors each kernel has."""
        if isinstance(form, AsLearned):
            return {"psd": "off", "objects": form.support.objects}
        made = cast(SupportsForm, form)
        return {"psd": "ends", "objects": len(made.objects), "vectors": made.values.shape[1]}
