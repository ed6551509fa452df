"""Writing through kafka-python."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaProducer

from streams.address import Address
from streams.errors import StreamError, StreamUnavailable
from streams.kafka.connect import client_options, close_quietly, milliseconds, open_client, settings_of
from streams.kafka.faults import stream_error
from streams.source import OutRecord

_BATCH_BYTES = 256 * 1024
_LEAVE_S = 0.5

_WRITING: dict[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
    "compression_type": None,
}


class PythonProducer:
    """`ProducerClient` by kafka-python."""

    def __init__(self, address: Address, max_message_bytes: int) -> None:
        self._address = address
        self._timeout_s = settings_of(address).timeout_s
        limit = milliseconds(self._timeout_s)
        options = client_options(address) | _WRITING
        options |= {
            "batch_size": min(_BATCH_BYTES, max_message_bytes),
            "max_request_size": max_message_bytes,
            "max_block_ms": limit,
            # what is not acknowledged by then is given up, so that nothing is written after `send` has ended
            "delivery_timeout_ms": limit,
            "request_timeout_ms": max(1, limit // 2),
            # what is sent together goes out together: `send` flushes behind its last record
            "linger_ms": limit // 4,
        }
        try:
            self._producer, _ = open_client(KafkaProducer, options, self._timeout_s)
        except Exception as error:
            raise stream_error(error, address) from error

    def send(self, placed: Sequence[tuple[int, OutRecord]]) -> list[int]:
        """Write records, each with its partition; comes back with their offsets once they are durable."""
        deadline = time.monotonic() + self._timeout_s
        try:
            futures = [self._append(partition, record) for partition, record in placed]
            self._producer.flush(max(0.0, deadline - time.monotonic()))
            offsets = [future.get(max(0.0, deadline - time.monotonic())).offset for future in futures]
        except Exception as error:
            raise self._fault(error) from error
        if min(offsets) < 0:
            raise StreamUnavailable(f"{self._address}: written, but the broker does not tell where")
        return offsets

    def close(self) -> None:
        """Release threads and sockets; nothing is written any more."""
        # or what is unfinished keeps its thread, which goes on trying to write it
        self._producer._sender.force_close()
        close_quietly(self._producer, timeout=_LEAVE_S)

    def _append(self, partition: int, record: OutRecord) -> Any:
        return self._producer.send(
            self._address.topic,
            record.value,
            record.key,
            list(record.headers),
            partition,
            int(time.time() * 1000) if record.timestamp is None else record.timestamp,
        )

    def _fault(self, error: Exception) -> StreamError:
        fault = stream_error(error, self._address)
        if isinstance(fault, StreamUnavailable):
            return StreamUnavailable(f"in doubt whether all records were written: {fault}")
        return fault
