"""What [learner] has for every algorithm."""

from __future__ import annotations

from pydantic import Field

from daemon.config.section import Section


class LearnerConfig(Section):
    """[learner]: the algorithm and its constants; each algorithm narrows `algorithm` to its name and adds its
    own keys.
    """

    algorithm: str = Field("oasis", description="learning algorithm")
    dedupe_window: int = Field(
        100_000, ge=0, le=10_000_000, description="newest event ids known; one sent again is dropped; 0 off"
    )
