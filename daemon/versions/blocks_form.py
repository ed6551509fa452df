"""The form of OMKS over maps: block-diagonal, PSD, sharpened, its weights folded in, as [serving] says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from numpy.typing import NDArray

from daemon.config.model import ServingConfig
from daemon.exits import UserError
from daemon.versions.forms import HELD
from learners.forms.blocks import BlocksForm
from learners.forms.quadratic import ServedForm
from learners.omks_maps import OmksMaps
from learners.protocol import Learner
from learners.psd import MAX_FULL_DIM
from learners.tether import untethered


@dataclass(frozen=True, slots=True)
class BlocksForms:
    """Forms of learners with a matrix for each block; kept beside their version, since each takes an
    eigendecomposition of every block.
    """

    follows: str = HELD
    kept: bool = True

    def has_matrix(self, config: ServingConfig, dim: int) -> bool:
        """Never: its matrices are those of the blocks."""
        return False

    def make(self, learner: Learner, number: int, config: ServingConfig) -> ServedForm:
        """The form by `score`, `psd` and `power`; blocks are decomposed whole. Raises UserError where they
        cannot be.
        """
        made = cast(OmksMaps, untethered(learner))
        if config.psd == "lanczos":
            raise UserError(
                'serving.psd: "lanczos" is no form of omks-maps, whose blocks are decomposed whole',
                'set serving.psd to "auto"',
            )
        psd = config.psd != "off"
        if psd and max(made.config.widths) > MAX_FULL_DIM:
            raise UserError(
                f"a block of {max(made.config.widths)} columns takes too long to decompose "
                f"(at most {MAX_FULL_DIM})",
                "give the view's kernels fewer components, or whiten the view",
            )
        return made.form(config.score == "normalised", config.power if psd else None)

    def read(self, arrays: Mapping[str, NDArray[Any]], learner: Learner) -> ServedForm:
        """From the arrays kept beside the version. Raises StateError."""
        return BlocksForm.from_arrays(arrays)

    def arrays(self, form: ServedForm) -> dict[str, NDArray[Any]]:
        """What is kept of it."""
        return cast(BlocksForm, form).arrays()

    def account(self, form: ServedForm) -> dict[str, Any]:
        """How many blocks there are."""
        return {"psd": "full", "blocks": len(cast(BlocksForm, form).widths)}
