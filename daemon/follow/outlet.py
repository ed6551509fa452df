"""Both topics that are fed, written so that a record that was written before a crash is not written again.

Before records are sent they are in the checkpoint, with the ends of both topics at that time. After a crash
the records behind these ends are read, and those already there are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from hashlib import blake2b
from typing import Any

from streams.errors import OffsetExpired, StreamUnavailable
from streams.open import open_sink, open_source
from streams.source import Address, GrowingSource, OutRecord, Source

TRAINING, HOLDOUT = "training", "holdout"
READ_AT_ONCE = 5_000
POLL_SECONDS = 0.2

Waiting = list[tuple[str, OutRecord]]
"""Records, with the name of the topic that each goes to."""
Ends = dict[str, dict[str, int]]
"""Per topic and partition (as text), one past the newest record."""

Retry = Callable[[Callable[[], Any]], Any]
"""Repeats a call that raises StreamUnavailable until it succeeds or the role is stopped."""


class FeedOutlet:
    """The training and the holdout topic; closed with `stack`."""

    def __init__(self, address: Address, stack: ExitStack) -> None:
        topics = {TRAINING: address, HOLDOUT: address.holdout}
        self._sinks = {name: stack.enter_context(closing(open_sink(topic))) for name, topic in topics.items()}
        self._sources: dict[str, Source] = {
            name: stack.enter_context(closing(GrowingSource(partial(open_source, topic))))
            for name, topic in topics.items()
        }

    def identity(self) -> list[str]:
        """Which log and topic this is, as plain data."""
        found = self._sinks[TRAINING].identity()
        return [found.log_id, found.topic, found.topic_id]

    @property
    def max_record_bytes(self) -> int:
        """The most bytes of one record."""
        return min(sink.max_record_bytes for sink in self._sinks.values())

    def ends(self) -> Ends:
        """Where both topics end now. Raises StreamUnavailable."""
        return {
            name: {str(partition): end for partition, (_, end) in source.bounds().items()}
            for name, source in self._sources.items()
        }

    def send(self, waiting: Waiting, retry: Retry) -> None:
        """Write all, in their order; durable when it returns. Holdout first, as `SinkOutlet` does."""
        for name in (HOLDOUT, TRAINING):
            records = [record for topic, record in waiting if topic == name]
            if records:
                retry(partial(self._sinks[name].send, records))

    def written(self, since: Mapping[str, Mapping[str, int]], retry: Retry) -> set[bytes]:
        """What lies behind these ends, as digests."""
        found: set[bytes] = set()
        for name, source in self._sources.items():
            begins = {int(partition): end for partition, end in since.get(name, {}).items()}
            if begins:
                found |= retry(partial(_digests, source, begins))
        return found


def digest(record: bytes | None) -> bytes:
    """What identifies a record."""
    return blake2b(record or b"", digest_size=16).digest()


def _digests(source: Source, begins: Mapping[int, int]) -> set[bytes]:
    bounds = source.bounds()
    from_here = {n: max(begins.get(n, 0), earliest) for n, (earliest, _) in bounds.items()}
    source.assign({n: min(at, bounds[n][1]) for n, at in from_here.items()})
    found = set()
    while any(at < bounds[n][1] for n, at in source.reached().items()):
        try:
            batch = source.poll(READ_AT_ONCE, POLL_SECONDS)
        except OffsetExpired as error:
            raise StreamUnavailable(str(error)) from error  # looked at again from where the log begins then
        found |= {digest(value) for value in batch.values} if batch is not None else set()
    return found


def packed(waiting: Waiting) -> list[Sequence[Any]]:
    """Plain data, for the checkpoint."""
    return [(name, one.value, one.key, one.partition) for name, one in waiting]


def unpacked(said: Sequence[Sequence[Any]]) -> Waiting:
    """What `packed` was given."""
    return [(name, OutRecord(value, key, partition)) for name, value, key, partition in said]
