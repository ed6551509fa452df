"""[caps]: how far one source, query or item may move the learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from daemon.config.section import Section

if TYPE_CHECKING:
    from learners.caps import CapsConfig

Cap = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class CapsKeys(Section):
    """[caps]: steps summed up over the newest events; what exceeds a cap is not learned but a dead letter."""

    window: int = Field(
        100_000, ge=1, le=10_000_000, description="newest events, of those let in, that a cap sums over"
    )
    source: Cap = Field(0.0, description="most full steps (tau = C) of the events of one src; 0 no cap")
    query: Cap = Field(0.0, description="most full steps of the events with one query; 0 no cap")
    item: Cap = Field(0.0, description="most full steps that click or skip one item; 0 no cap")

    @property
    def as_learned(self) -> CapsConfig:
        """What the learner goes by: without any cap, the window means nothing."""
        from learners.caps import CapsConfig  # brings numba in, which most commands do without

        caps = CapsConfig(self.window, self.source, self.query, self.item)
        return caps if caps.any else CapsConfig()
