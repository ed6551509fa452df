"""Which records may go from the start of a partition: one decision for every log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What may go: older than `oldest` (ms), beyond `share` bytes per partition, and only below `before`.

    None sets no limit; a partition that `before` does not name keeps all it has.
    """

    oldest: int | None
    share: int | None
    before: Mapping[int, int] | None

    def cut(
        self,
        partition: int,
        held: range,
        fresh: Callable[[int], int],
        fitting: Callable[[int], int],
    ) -> int:
        """The first offset of `held` that stays, `held.stop` when all go.

        fresh(oldest): the first offset that is not too old, or that comes after one. fitting(share): the
        first offset from which on the records have at most that many bytes. Asked only where that is limited.
        """
        first = held.start
        if self.oldest is not None:
            first = max(first, fresh(self.oldest))
        if self.share is not None:
            first = max(first, fitting(self.share))
        if self.before is not None:
            first = max(held.start, min(first, self.before.get(partition, 0)))
        return first


def limits(
    max_age_s: float | None,
    max_bytes: int | None,
    now_ms: int | None,
    before: Mapping[int, int] | None,
    partitions: int,
) -> Limits:
    """The limits of `streams.open.retain` as they hold for each of so many partitions."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    oldest = None if max_age_s is None else now - int(max_age_s * 1000)
    share = None if max_bytes is None else max_bytes // partitions
    return Limits(oldest, share, before)
