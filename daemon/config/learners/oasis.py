"""Keys of OASIS, and of its running average."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from daemon.config.learners.common import LearnerConfig
from daemon.config.learners.pull import PullKeys

MAX_AVERAGED_C = 1e6
"""That of `learners.averaged`, whose import brings numba in."""


class OasisKeys(PullKeys):
    """[learner] with algorithm = "oasis"."""

    algorithm: Literal["oasis"] = Field("oasis", description="learning algorithm")
    C: float = Field(0.1, gt=0, allow_inf_nan=False, description="aggressiveness: largest step size tau")
    symmetric: Literal["off", "online"] = Field("off", description="online keeps W symmetric after each step")
    psd_every: int = Field(0, ge=0, description="project W to PSD every this many steps; 0 never")


class AveragedKeys(LearnerConfig):
    """[learner] with algorithm = "oasis-averaged"."""

    algorithm: Literal["oasis-averaged"] = Field("oasis-averaged", description="learning algorithm")
    C: float = Field(0.1, gt=0, le=MAX_AVERAGED_C, description="aggressiveness: largest step size tau")
    symmetric: Literal["off", "online"] = Field("off", description="online keeps W symmetric after each step")
