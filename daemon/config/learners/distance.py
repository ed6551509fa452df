"""Keys of the learners of a distance."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from daemon.config.learners.pull import PullKeys


class DissimKeys(PullKeys):
    """[learner] with algorithm = "dissim-oasis"."""

    algorithm: Literal["dissim-oasis"] = Field("dissim-oasis", description="learning algorithm")
    C: float = Field(0.1, gt=0, allow_inf_nan=False, description="aggressiveness: largest step size tau")
    psd_every: int = Field(0, ge=0, description="project W to PSD every this many steps; 0 never")


class LegoKeys(PullKeys):
    """[learner] with algorithm = "lego"."""

    algorithm: Literal["lego"] = Field("lego", description="learning algorithm")
    eta: float = Field(0.01, gt=0, le=1e18, description="weight of the loss against the LogDet divergence")
