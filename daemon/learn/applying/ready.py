"""One batch that is ready to be applied."""

from __future__ import annotations

from dataclasses import dataclass

from learners.block import TripletBatch
from streams.decode import DecodedBatch
from streams.source import RecordBatch


@dataclass(frozen=True, slots=True)
class Ready:
    """One decoded batch of one partition; `triplets` is None when every record of it is poison."""

    polled: RecordBatch
    decoded: DecodedBatch
    triplets: TripletBatch | None
    poll_seconds: float
    decode_seconds: float

    @property
    def records(self) -> int:
        """Records of the batch, poison included."""
        return len(self.polled.offsets)
