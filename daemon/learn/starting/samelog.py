"""Is this the log the version was learned from? Asked of the log, before anything is claimed or learned."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from checkpoints.manifest import Manifest
from daemon.exits import EX_TEMPFAIL, UserError
from daemon.learn.starting.continuing import refuse_altered_record, refuse_other_stream, refuse_past_the_end
from streams.source import Source

CHECK_SECONDS = 5.0
TURNS = 3  # polls per partition before those that were heard of are left out

Bounds = dict[int, tuple[int, int]]


class SameLog:
    """Asks the log once per version, however often a start looks at one. `stream`: see `check_same_log`."""

    def __init__(self, source: Source, stream: Mapping[str, Any]) -> None:
        self._source, self._stream = source, stream
        self._asked: tuple[Manifest, Bounds] | None = None

    def check(self, manifest: Manifest) -> Bounds:
        """See `check_same_log`."""
        if self._asked is None or self._asked[0] != manifest:
            self._asked = manifest, check_same_log(self._source, manifest, self._stream)
        return self._asked[1]


def check_same_log(source: Source, manifest: Manifest, stream: Mapping[str, Any]) -> Bounds:
    """The log's bounds; OtherLog unless it holds, right before each position, the record learned last.

    `stream`: the log's identity as manifests have it. The position is one past a record that was learned, so
    that record's offset is known, whatever offsets without records (transaction markers) follow it. A record
    that has expired cannot be compared; nor one in a stretch that was damaged when its turn came.
    """
    bounds = source.bounds()
    refuse_other_stream(manifest, stream, bounds)
    refuse_past_the_end(manifest, bounds)
    last = {
        partition: position.next_offset - 1
        for partition, position in manifest.positions.items()
        if position.last_digest is not None and position.next_offset > bounds[partition][0]
    }
    for partition, digest in sorted(digests_at(source, last).items()):
        refuse_altered_record(manifest, partition, digest)
    return bounds


def digests_at(source: Source, offsets: Mapping[int, int]) -> dict[int, str | None]:
    """sha256 of the record at one offset of each partition; None where the log keeps no record at it.

    Raises UserError (try again) when a partition keeps silent.
    """
    found: dict[int, str | None] = {}
    missing = dict(offsets)
    while missing:
        source.assign(missing)
        before = len(missing)
        for _ in range(TURNS * before):
            batch = source.poll(1, CHECK_SECONDS)
            if batch is None:
                break
            wanted = missing.pop(batch.partition, None)
            if wanted is not None:
                is_there = batch.offsets[0] == wanted
                found[batch.partition] = sha256(batch.values[0] or b"").hexdigest() if is_there else None
            if not missing:
                break
        reached = source.reached()
        passed = [partition for partition, offset in missing.items() if reached[partition] > offset]
        found |= dict.fromkeys(passed)
        missing = {partition: offset for partition, offset in missing.items() if partition not in passed}
        if len(missing) == before:
            place = f"offset {missing[min(missing)]:,} of partition {min(missing)}"
            raise UserError(
                f"{place} could not be read within {CHECK_SECONDS:.0f} s",
                "the stream is slow or unavailable: try again",
                EX_TEMPFAIL,
            )
    return found
