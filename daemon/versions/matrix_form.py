"""The form of a learned matrix W: symmetric, PSD, sharpened, normalised, as [serving] says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from daemon.config.model import ServingConfig
from daemon.exits import UserError
from daemon.versions.forms import CARRIED
from learners.block import Float32s
from learners.forms.quadratic import ServedForm
from learners.forms.serving import ServingForm
from learners.protocol import Learner
from learners.psd import MAX_FULL_DIM


class _HasMatrix(Protocol):
    W: Float32s


@dataclass(frozen=True, slots=True)
class MatrixForms:
    """Forms of learners with a matrix `W`; kept beside their version, since each takes an
    eigendecomposition.

    follows: CARRIED where W is the array `W` of the state, so that a form can follow it; HELD where W is made
    anew of several. distance: the learner's raw score is minus a distance; normalised, it is the cosine of
    the same S.
    """

    follows: str = CARRIED
    distance: bool = False
    kept: bool = True

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """As `has_matrix`."""
        return has_matrix(config, dim)

    def make(self, learner: Learner, number: int, config: ServingConfig) -> ServedForm:
        """As `make_form` of the learner's W."""
        return self._as_scored(make_form(cast(_HasMatrix, learner).W, number, config))

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        return self._as_scored(ServingForm.from_arrays(arrays, cast(_HasMatrix, learner).W))

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """What is kept of it."""
        assert isinstance(form, ServingForm)
        return form.arrays()

    def account(self, form: ServedForm) -> dict[str, Any]:
        """As `account`."""
        assert isinstance(form, ServingForm)
        return account(form)

    def _as_scored(self, form: ServingForm) -> ServingForm:
        return replace(form, distance=self.distance and not form.normalised)


def make_form(W: Float32s, number: int, config: ServingConfig) -> ServingForm:
    """The serving form of W, by `psd`: `full`, `lanczos`, `auto` (full up to `full_max_dim`) or `off`.

    Version 0 is untrained, W = I: its form is W itself. `power` applies where it has a meaning, to the
    normalised score with all eigenvalues at hand; score "raw", psd "off" and psd "lanczos" (also where `auto`
    falls back to it) have power 1, so that each key can be changed alone. Raises UserError when `full` is
    asked above MAX_FULL_DIM.
    """
    dim, normalised = W.shape[0], config.score == "normalised"
    if number == 0 or config.psd == "off" or dim == 1:
        return ServingForm(None, np.zeros((dim, 0), np.float32), np.zeros(0, np.float32), normalised, W)
    if config.psd == "full" and dim > MAX_FULL_DIM:
        raise UserError(
            f"serving.psd: a full eigendecomposition of {dim} dimensions takes too long "
            f"(at most {MAX_FULL_DIM})",
            'set serving.psd to "auto" or "lanczos"',
        )
    full_up_to = dim if has_matrix(config, dim) else 0
    pairs = min(config.lanczos_pairs, dim - 1)
    return ServingForm.from_matrix(W, normalised, full_up_to, pairs, config.power)


def has_matrix(config: ServingConfig, dim: int) -> bool:
    """Whether the form of a trained W of this dimension is a second matrix: by a full decomposition."""
    return dim > 1 and (config.psd == "full" or (config.psd == "auto" and dim <= config.full_max_dim))


def power_of(config: ServingConfig) -> float:
    """What the eigenvalues of a full decomposition are raised to."""
    return config.power if config.score == "normalised" else 1.0


def account(form: ServingForm) -> dict[str, Any]:
    """How a form was made, for people: psd {full, lanczos, off}, the power that applied, and what was removed
    ({negatives, share of the spectrum's absolute sum, null where unknown}).
    """
    removed = form.removed
    if removed is None:
        return {"psd": "off", "power": 1.0, "negatives": 0, "share": None}
    psd = "lanczos" if form.matrix is None else "full"
    return {"psd": psd, "power": form.power, "negatives": removed.negatives, "share": removed.share}
