"""A second opinion on gaps in offsets, by the other client.

Offsets have gaps where transactions ended or were aborted and where a compacted topic dropped records; a
reader that lost records leaves the same gap. To tell them apart the gap is read again with kafka-python: it
is empty when the first record found from its beginning lies behind its end. That is a request for each gap.
"""

from __future__ import annotations

import time

from streams.address import Address
from streams.errors import StreamUnavailable
from streams.kafka.clients.python_client import PythonConsumer
from streams.kafka.connect import settings_of

_SLICE_SECONDS = 0.02


class GapCheck:
    """Reads gaps of one topic again; connects when the first one is asked about."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._client: PythonConsumer | None = None

    def empty(self, partition: int, begin: int, end: int) -> bool:
        """Whether no committed record lies at `begin` <= offset < `end`.

        Raises what reading raises (CorruptBatch, OutOfRange, ...), and StreamUnavailable without an answer.
        """
        client = self._client
        if client is None:
            client = self._client = PythonConsumer(self._address)
        client.assign({partition: begin})
        deadline = time.monotonic() + settings_of(self._address).timeout_s
        while time.monotonic() < deadline:
            fetched = client.poll(1, _SLICE_SECONDS)
            if fetched:
                return fetched[0].offsets[0] >= end
            if client.positions()[partition] >= end:
                return True
        raise StreamUnavailable(
            f"{self._address}, partition {partition}: no answer whether offsets {begin} to {end - 1} "
            f"hold records"
        )

    def close(self) -> None:
        """Release the second client."""
        if self._client is not None:
            self._client.close()
            self._client = None
