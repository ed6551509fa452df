"""Keys of OMKS over explicit maps, and of every learner that weighs kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from daemon.config.learners.common import LearnerConfig
from daemon.config.learners.pull import PullKeys
from daemon.config.types import Numbers

if TYPE_CHECKING:
    from learners.hedge import HedgeConfig


class HedgeKeys(LearnerConfig):
    """How kernels are weighed."""

    combine: Literal["hedge", "share", "discount", "margins", "uniform", "given"] = Field(
        "share", description="weights of the kernels: hedge as printed, or a rule that never ends in a corner"
    )
    beta: float = Field(0.99, gt=0, lt=1, description="hedge, share, discount: factor of a mistake")
    share: float = Field(1e-3, ge=0, le=1, description="share: what every weight gives away each round")
    discount: float = Field(0.999, gt=0, le=1, description="discount: memory of mistakes per round")
    theta_C: float = Field(0.1, gt=0, allow_inf_nan=False, description="margins: largest step of the weights")
    weights: Numbers = Field(default_factory=list, description="given: one weight per kernel")

    @model_validator(mode="after")
    def _weights_belong_to_given(self) -> HedgeKeys:
        self.hedge()
        return self

    def hedge(self) -> HedgeConfig:
        """The learner's own settings. Raises ConfigError."""
        from learners.hedge import HedgeConfig  # brings numba in, which most commands do without

        return HedgeConfig(
            self.combine, self.beta, self.share, self.discount, self.theta_C, tuple(self.weights)
        )


class OmksMapsKeys(HedgeKeys, PullKeys):
    """[learner] with algorithm = "omks-maps"."""

    algorithm: Literal["omks-maps"] = Field("omks-maps", description="learning algorithm")
    C: float = Field(0.1, gt=0, allow_inf_nan=False, description="aggressiveness: largest step size tau")
