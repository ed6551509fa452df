"""[keys]: one model per key of the events."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from daemon.config.section import Section


class KeysConfig(Section):
    """[keys]: with slots above 0, each event is learned by the model of its field `key`, and by no other."""

    slots: int = Field(0, ge=0, le=100_000, description="most models at once; 0: one model for all events")
    when_full: Literal["refuse", "evict"] = Field(
        "refuse", description="a new key when all slots are taken: refused, or the longest silent one goes"
    )
    evict_after: int = Field(
        100_000, ge=0, le=2**53, description="evict: least events of all keys since the last one of who goes"
    )
