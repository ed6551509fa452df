"""[stream] of the configuration."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from daemon.config.kafka import KafkaConfig
from daemon.config.retained import Retained
from daemon.config.section import Section
from daemon.config.types import (
    OptionalDuration,
    OptionalSize,
    PositiveDuration,
    RecordSize,
    StreamAddress,
)
from daemon.config.units import parse_duration, parse_size
from streams.address import Address, parse_address

CALLS_WITHIN_A_CALL = 6
"""How many answers of a broker one call to the stream may wait for, twice over."""


class StreamConfig(Retained, Section):
    """[stream]: where events come from."""

    address: StreamAddress = Field(
        "log:clicks.log", description="log:PATH, log:PATH#TOPIC or kafka://HOST:PORT/TOPIC"
    )
    partitions: int = Field(1, ge=1, le=4096, description="partitions of a topic that is created")
    poll_records: int = Field(4096, ge=1, le=1_000_000, description="most records per poll and kernel call")
    max_record_bytes: RecordSize = Field(
        "1MiB", description="a larger training record is a dead letter; at most 1MiB"
    )
    retention: OptionalDuration = Field(
        "", description="drop learned records older than this; empty keeps all"
    )
    retention_bytes: OptionalSize = Field(
        "", description="drop the oldest learned records above this size per topic; empty keeps all"
    )
    pause_poison_share: float = Field(
        0.5, gt=0, le=1, allow_inf_nan=False, description="pause above this share of dead letters; 1 never"
    )
    pause_poison_window: int = Field(
        10_000, ge=1, description="newest records whose share of dead letters counts"
    )
    stuck_after: PositiveDuration = Field(
        "60s", description="a stream call or loop turn this long is a bug: stacks to stderr, exit 70"
    )
    kafka: KafkaConfig = Field(
        default_factory=lambda: KafkaConfig.model_validate({}),
        description="how a kafka:// address is reached",
    )

    def problems(self) -> list[str]:
        """What does not fit together where a broker is reached; empty when all does."""
        problems = self.kafka.problems()
        needed = CALLS_WITHIN_A_CALL * self.kafka.timeout_s
        if self.stuck_after_s < needed:
            problems.append(
                f"timeout_s = {self.kafka.timeout_s:g} needs stream.stuck_after of at least {needed:g}s: "
                "else a slow broker is taken for a bug"
            )
        return problems

    def to_address(self) -> Address:
        """The stream to open, with how to reach it; raises AddressError where it cannot be read."""
        address = parse_address(self.address)
        return replace(address, kafka=self.kafka.to_settings()) if address.scheme == "kafka" else address

    @property
    def max_record_size(self) -> int:
        """`max_record_bytes` in bytes."""
        return parse_size(self.max_record_bytes)

    @property
    def stuck_after_s(self) -> float:
        """`stuck_after` in seconds."""
        return parse_duration(self.stuck_after)
