"""Keys of learners whose matrix can be pulled back towards its start."""

from __future__ import annotations

from pydantic import Field, model_validator

from daemon.config.learners.common import LearnerConfig


class PullKeys(LearnerConfig):
    """What [learner] has for learners of one matrix: see `learners.tether`."""

    pull_every: int = Field(0, ge=0, description="pull W towards I after this many accepted events; 0 never")
    decay: float = Field(0.0, ge=0, lt=1, description="share of W - I that a pull takes away; 0 none")
    radius: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="largest ||W - I||_F after a pull; 0 no ceiling"
    )

    @model_validator(mode="after")
    def _pulls_need_a_time(self) -> PullKeys:
        if (self.decay or self.radius) and not self.pull_every:
            raise ValueError("decay and radius do nothing without pull_every: set it, say to 10000")
        if self.pull_every and not (self.decay or self.radius):
            raise ValueError("pull_every does nothing without decay or radius: set one, or leave it out")
        return self
