"""Writing through confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.address import Address
from streams.errors import StreamError, StreamUnavailable
from streams.kafka.clients.confluent_common import ends_within, make, writing_error
from streams.kafka.connect import milliseconds, settings_of
from streams.source import OutRecord

BATCH_BYTES = 256 << 10
Told = Callable[[KafkaError | None, Message], None]
_SLICE_SECONDS = 0.1  # between two of them Python hears signals


class ConfluentProducer:
    """`ProducerClient` by librdkafka: idempotent, acknowledged by every in-sync replica, in order."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._timeout_s = settings_of(address).timeout_s
        self._closed = False
        own: dict[str, object] = {
            "enable.idempotence": True,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": 1_000_000_000,  # the broker's limit is the topic's own
            "message.timeout.ms": max(1000, milliseconds(self._timeout_s)),
            "allow.auto.create.topics": False,
        }
        self._producer = make(Producer, address, own)

    def send(self, placed: Sequence[tuple[int, OutRecord]]) -> list[int]:
        """Write records, each with its partition; comes back with their offsets once they are durable."""
        deadline = time.monotonic() + self._timeout_s
        offsets: list[int] = [-1] * len(placed)
        errors: list[KafkaError] = []

        def told(index: int, error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                offsets[index] = offset
            elif error is not None:
                errors.append(error)

        for index, (number, record) in enumerate(placed):
            self._queue(number, record, partial(told, index), deadline)
        while self._producer.flush(_SLICE_SECONDS) and not errors:
            self._in_time(deadline)
        if errors:
            raise writing_error(errors[0], self._address)
        return offsets

    def close(self) -> None:
        """Drop what is still queued, so that it is not written after the caller has written it again."""
        if not self._closed:
            self._closed = True
            self._producer.purge(blocking=False)
            ends_within(self._producer.close)

    def _queue(
        self,
        number: int,
        record: OutRecord,
        told: Told,
        deadline: float,
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    self._address.topic,
                    record.value,
                    record.key,
                    number,
                    on_delivery=told,
                    timestamp=0 if record.timestamp is None else max(1, record.timestamp),  # 0 means now
                    headers=list(record.headers) or None,
                )
            except BufferError:
                self._producer.poll(_SLICE_SECONDS)
                self._in_time(deadline)
            except KafkaException as problem:
                raise _of(problem, self._address) from None
            else:
                return

    def _in_time(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise StreamUnavailable(
                f"{self._address}: not acknowledged within {self._timeout_s:g} s; "
                f"perhaps some records were written"
            )


def _of(problem: KafkaException, address: Address) -> StreamError:
    error = problem.args[0]
    assert isinstance(error, KafkaError)
    return writing_error(error, address)
