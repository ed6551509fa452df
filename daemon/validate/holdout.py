"""Reads the holdout topic into the window; what cannot be judged is counted, what cannot be read is a dead
letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from daemon.dead_letters import RETRY_SECONDS, send_durably
from daemon.validate.objects import check_impression
from daemon.validate.window import Held, Window, is_usable, rebuild_from
from streams.catalog import Catalog
from streams.codec import decode_impression
from streams.errors import OffsetExpired, StreamUnavailable
from streams.event import SpaceSpec
from streams.poison import CORRUPT_BATCH, KEY_MISSING, DeadLetter, Poison
from streams.source import RecordBatch, Sink, Source

NO_CLICK = "no_click"
ALL_CLICKED = "all_clicked"
POLL_RECORDS = 256


class Holdout:
    """The holdout stream of one topic.

    Starts `size` records before the end, or before `upto` (an older window again). A dead letter may be
    written again after a restart. keyed: an impression without a key can be judged by no model, and one is
    known by its id and its key.
    """

    def __init__(
        self,
        source: Source,
        dead: Sink,
        *,
        space: SpaceSpec,
        catalog: Catalog | None,
        size: int,
        keyed: bool = False,
        upto: Mapping[int, int] | None = None,
    ) -> None:
        self._source = source
        self._dead = dead
        self._space = space
        self._catalog = catalog
        self._size = size
        self._keyed = keyed
        self._topic = source.identity().topic
        self._upto = None if upto is None else dict(upto)
        self._counts: Counter[str] = Counter()
        self.window = self._rewind()

    def poll(self, timeout_s: float, give_up: Callable[[float, Exception], bool]) -> list[Held]:
        """Read one batch into the window; the usable impressions that came. Empty after `timeout_s` without
        any.

        `give_up(seconds, error)` waits while the holdout or its dead-letter topic is unavailable; True ends
        the attempt, and what was not taken in is read again later. When retention overtook the position,
        reading goes on from what is left.
        """
        try:
            batch = self._poll(timeout_s)
        except StreamUnavailable as error:
            give_up(RETRY_SECONDS, error)
            return []
        fresh, letters, left_out = self._decode(batch) if batch is not None else ([], [], Counter[str]())
        if letters and not send_durably(self._dead, letters, give_up):
            self._source.assign(self.window.positions)
            return []
        self._counts += left_out
        fresh = [held for held in fresh if self.window.add(held)]
        for partition, reached in self._source.reached().items():
            self.window.move(partition, min(reached, self._upto[partition]) if self._upto else reached)
        return fresh

    def take_counts(self) -> Counter[str]:
        """Impressions left out since the last call, by reason: a poison reason, `no_click` or
        `all_clicked`.
        """
        taken, self._counts = self._counts, Counter()
        return taken

    def caught_up(self) -> bool:
        """Every record in the topic now, or before `upto`, has been read. Raises StreamUnavailable."""
        positions = self.window.positions
        ends = self._upto or {partition: end for partition, (_, end) in self._source.bounds().items()}
        return all(positions[partition] >= end for partition, end in ends.items())

    def _poll(self, timeout_s: float) -> RecordBatch | None:
        try:
            return self._source.poll(POLL_RECORDS, timeout_s)
        except OffsetExpired:
            self.window = self._rewind()
            return None

    def _decode(self, batch: RecordBatch) -> tuple[list[Held], list[DeadLetter], Counter[str]]:
        fresh: list[Held] = []
        letters: list[DeadLetter] = []
        left_out: Counter[str] = Counter()
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            if self._upto is not None and offset >= self._upto[batch.partition]:
                break
            try:
                if batch.damaged is not None:
                    raise Poison(CORRUPT_BATCH, batch.damaged)
                impression = decode_impression(value)
                check_impression(impression, self._space, self._catalog)
                if self._keyed and impression.key is None:
                    raise Poison(KEY_MISSING)
            except Poison as error:
                left_out[error.reason] += 1
                letters.append(
                    DeadLetter(self._topic, batch.partition, offset, error.reason, error.detail, value)
                )
                continue
            if is_usable(impression):
                fresh.append(Held(batch.partition, offset, impression))
            else:
                left_out[ALL_CLICKED if impression.clicked else NO_CLICK] += 1
        return fresh, letters, left_out

    def _rewind(self) -> Window:
        bounds = self._source.bounds()
        if self._upto is not None:
            bounds = {partition: (bounds[partition][0], end) for partition, end in self._upto.items()}
        starts = rebuild_from(bounds, self._size)
        self._source.assign(starts)
        return Window(self._size, starts, self._keyed)
