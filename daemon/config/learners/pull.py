"""Keys of learners that can be pulled back towards their start."""

from __future__ import annotations

from pydantic import Field, model_validator

from daemon.config.learners.common import LearnerConfig


class ForgetKeys(LearnerConfig):
    """What [learner] has for learners that forget: see `learners.tether`."""

    pull_every: int = Field(
        0, ge=0, description="pull what is learned to its start after this many accepted events; 0 never"
    )
    decay: float = Field(0.0, ge=0, lt=1, description="share of what is learned that a pull takes away")

    @model_validator(mode="after")
    def _pulls_need_a_time(self) -> ForgetKeys:
        pulls = [name for name in ("decay", "radius") if name in type(self).model_fields]
        if any(getattr(self, name) for name in pulls) and not self.pull_every:
            raise ValueError(f"{' and '.join(pulls)} without pull_every pull nothing: set it, say to 10000")
        if self.pull_every and not any(getattr(self, name) for name in pulls):
            raise ValueError(f"pull_every without {' or '.join(pulls)} does nothing: set one or leave it out")
        return self


class PullKeys(ForgetKeys):
    """What [learner] has for learners of matrices."""

    radius: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="largest ||W - I||_F after a pull; 0 no ceiling"
    )
