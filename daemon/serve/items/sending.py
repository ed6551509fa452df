"""Sending item records: in batches, through the stream's short absences, compacted where that is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing

from daemon.exits import EX_USAGE, UserError
from daemon.retries import RetryingSink
from streams.address import Address
from streams.errors import StreamError
from streams.open import compact, open_sink, prepare_topic
from streams.source import OutRecord

BATCH_RECORDS = 500
BATCH_BYTES = 4 << 20


def send_items(address: Address, records: Iterable[OutRecord], tell: Callable[[str], None]) -> int:
    """Write the records to the topic of items of a stream; how many.

    An embedded log gets the topic when it has none. Raises StreamError. A UserError of the records, and an
    interruption, pass on after what came before was written; then they name how many that was.
    """
    if address.scheme == "memory":
        message = f"{address} lives inside one process: nobody else would see the items"
        raise UserError(message, "give a log: or kafka:// address", EX_USAGE)
    topic, sent = address.items, 0
    prepare_topic(topic, 1, "write")
    with closing(RetryingSink(open_sink(topic), time.sleep, time.monotonic, tell)) as sink:
        batch: list[OutRecord] = []
        held = 0
        try:
            for record in records:
                batch.append(record)
                held += len(record.value or b"")
                if len(batch) == BATCH_RECORDS or held >= BATCH_BYTES:
                    sink.send(batch)
                    sent, batch, held = sent + len(batch), [], 0
        except UserError as error:
            sink.send(batch)
            raise UserError(
                f"{error.message} ({_written(sent + len(batch))})", error.remedy, error.code
            ) from None
        except (StreamError, KeyboardInterrupt):
            tell(_written(sent))
            raise
        sink.send(batch)
    compact(topic)
    return sent + len(batch)


def _written(count: int) -> str:
    if not count:
        return "nothing was written"
    return f"{count:,} items were written before; writing them again changes nothing"
