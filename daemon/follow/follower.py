"""What the role does: read, join, decide, and at times make a checkpoint and write what was decided.

The order makes the effect happen once. A checkpoint holds the state of the join, the places in the sources
and the records that are to be written, together; only then are they written. A death before it changes
nothing: the same lines are read again. A death after it finds the records in the checkpoint, and writes those
that are not in the log yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import structlog
from prometheus_client import Counter

from daemon.exits import EX_CONFIG, EX_DATAERR, UserError
from daemon.follow.metrics import FollowMetrics
from daemon.follow.outlet import HOLDOUT, TRAINING, FeedOutlet, Retry, Waiting, digest, packed, unpacked
from daemon.runtime.in_hand import InHand
from streams.event import Impression
from streams.feed.decide import Decider, Decision
from streams.feed.follow.checkpoint import FeedCheckpoints
from streams.feed.follow.examined import RecentExamination
from streams.feed.follow.intake import Intake
from streams.feed.follow.join import EventTimeJoin, JoinSettings
from streams.feed.follow.records import RecordReader
from streams.feed.items import SUSPECT, Item, LateClick, UnclickedList
from streams.feed.mapping.mapping import ClickLogMapping
from streams.feed.options import ReaderOptions
from streams.source import OutRecord

READ_AT_ONCE = 1_000
"""Records of one source that are read together."""
DAY_MS = 86_400_000
MOST_WAITING = 20_000
"""Decided records that wait for a checkpoint."""
LEAST_SECONDS, MOST_SHARE = 0.2, 0.1
"""Between two checkpoints: so long, and so long that writing them takes no larger share of the time."""

EXAMINE_SECONDS, MOST_EXAMINING = 60.0, 0.01
"""Between two estimates of how likely ranks are examined: so long, and so long that they take no larger share
of the time."""
ALL_AHEAD = 100
"""Records in a row that lie too far ahead: then it is this clock that is wrong, not theirs."""

SLOW_CLOCK = "all recent records are dropped, their times are in the future: check this machine's clock"

Given = ParamSpec("Given")

log = structlog.get_logger("tripletd.feed")


@dataclass(frozen=True, slots=True)
class FollowPlan:
    """What is followed and how: the sources, the join, what rows mean, how far ahead times may be."""

    sources: Sequence[str]
    join: JoinSettings
    lateness_ms: int
    max_future_ms: int
    mapping: ClickLogMapping | None = None
    bot_clicks: int = 30


class SidePaths:
    """Calls metrics, estimates and messages: these may fail, and nothing else does.

    What a call raises is counted under its name, and logged once for each.
    """

    def __init__(self, errors: Counter) -> None:
        self._errors = errors
        self._logged: set[str] = set()

    def __call__(
        self, name: str, call: Callable[Given, object], *given: Given.args, **named: Given.kwargs
    ) -> None:
        """Call it with the rest, whatever comes of it."""
        try:
            call(*given, **named)
        except Exception:
            self._errors.labels(name).inc()
            if name not in self._logged:
                self._logged.add(name)
                log.exception("a bug in metrics or estimates; feeding goes on", part=name)


class ClickFollower:
    """Continues from the newest checkpoint, or starts without one; each call gets the monotonic time.

    open_intake: the sources, from the places of a checkpoint. now_ms: the clock. in_hand: what the process
    before died with. Raises UserError for a checkpoint of another stream.
    """

    def __init__(
        self,
        plan: FollowPlan,
        *,
        open_intake: Callable[[Any], Intake],
        decider: Decider,
        outlet: FeedOutlet,
        checkpoints: FeedCheckpoints,
        metrics: FollowMetrics,
        retry: Retry,
        examination: RecentExamination,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        in_hand: InHand | None = None,
    ) -> None:
        self._in_hand = in_hand or InHand()
        self._plan, self._decider, self._outlet, self._checkpoints = plan, decider, outlet, checkpoints
        self._metrics, self._retry, self._now_ms = metrics, retry, now_ms
        self._aside = SidePaths(metrics.side_path_errors)
        self._examination, self._examined_next = examination, float("-inf")
        self._waiting: Waiting = []
        self._there: set[bytes] = set()
        self._saved_at, self._pause_s = float("-inf"), LEAST_SECONDS
        self._changed, self._day, self._slow_clock = False, 0, False
        said, notes = checkpoints.load()
        for note in notes:
            log.warning(note)
        self._join = EventTimeJoin(plan.join) if said is None else self._restored(said)
        self._reader = RecordReader(self._join, ReaderOptions(now_ms()), plan.mapping, plan.bot_clicks)
        metrics.begins_with(self._join)
        self.intake = open_intake({} if said is None else said["places"])
        self._in_hand.open("followed", self.intake.positions())
        self._tell()

    def step(self, now: float) -> bool:
        """Read and join what is next, and decide what that closes; whether there was anything."""
        found = self.intake.next(READ_AT_ONCE, now)
        if found is not None:
            lane, records = found
            self._reader.latest_ms = self._now_ms() + self._plan.max_future_ms
            self._reader.newest = 0
            with self._in_hand.hold_range(lane.held, f"{len(records)} records from {records[0].place} on"):
                self._reader.take(records)
            lane.saw(min(self._reader.newest, self._now_ms()))
            was, self._slow_clock = self._slow_clock, self._reader.ahead >= ALL_AHEAD
            if self._slow_clock and not was:
                log.error(SLOW_CLOCK, records=self._reader.ahead, now_ms=self._now_ms())
            self._metrics.records.inc(len(records))
            self._changed = True
        self._join.advance(min(self.intake.watermark(now), self._latest_watermark()))
        self._decide()
        self._tell()
        self._aside("examination", self._examine, now)
        return found is not None

    def _latest_watermark(self) -> int:
        """No event is from later than now, whatever the fastest of many clocks says."""
        return self._now_ms() - self._plan.lateness_ms

    def is_due(self, now: float) -> bool:
        """Whether it is time for a checkpoint: something changed, and the last one was long enough ago."""
        if len(self._waiting) >= MOST_WAITING:
            return True
        return (self._changed or bool(self._waiting)) and now - self._saved_at >= self._pause_s

    def commit(self) -> None:
        """Make a checkpoint, then write what was decided. OSError: the checkpoint cannot be written."""
        began = time.monotonic()
        waiting, self._waiting = self._waiting, []
        ends = self._retry(self._outlet.ends) if waiting else {}
        size = self._checkpoints.save(
            {
                "stream": self._outlet.identity(),
                "join": self._join.snapshot(),
                "places": self.intake.places(),
                "decided": self._decider.snapshot(),
                "waiting": packed(waiting),
                "ends": ends,
            }
        )
        took = time.monotonic() - began
        self._saved_at, self._pause_s = time.monotonic(), max(LEAST_SECONDS, took / MOST_SHARE)
        self._changed = bool(waiting)  # the next one says that these were written
        self._metrics.saved(size, took)
        self._in_hand.passed(self.intake.positions)
        self._send(waiting)

    def not_ready(self) -> str | None:
        """Why records of a source are not read or dropped, None where all is well."""
        if self._slow_clock:
            return f"{SLOW_CLOCK} (the last {self._reader.ahead:,})"
        trouble = self.intake.trouble()
        more = f" (and {len(trouble) - 1:,} more)" if len(trouble) > 1 else ""
        return f"a source cannot be read: {trouble[0]}{more}" if trouble else None

    def _send(self, waiting: Waiting) -> None:
        there = self._there
        fresh = [one for one in waiting if digest(one[1].value) not in there] if there else waiting
        self._outlet.send(fresh, self._retry)
        self._metrics.repeats.inc(len(waiting) - len(fresh))

    def _restored(self, said: Any) -> EventTimeJoin:
        """The join of a checkpoint, after what waits in it was written."""
        try:
            join = EventTimeJoin.restored(self._plan.join, said["join"])
            waiting = unpacked(said["waiting"])
            stream, ends = said["stream"], said["ends"]
            # older checkpoints hold the number of events alone, or not even that
            self._decider.restore(said.get("decided", said))
            join.watermark = min(join.watermark, self._latest_watermark())
            self._day = join.watermark // DAY_MS
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self._checkpoints.folder}: its newest checkpoint does not say what it should ({error})",
                "move the folder away to start again at the beginning of every source",
                EX_DATAERR,
            ) from None
        if list(stream) != self._outlet.identity():
            raise UserError(
                f"{self._checkpoints.folder} is of a feed into another stream, topic {stream[1]}",
                "set the stream that it was written for, or move the folder away to feed all sources again",
                EX_CONFIG,
            )
        if ends:
            self._there = self._retry(lambda: self._outlet.written(ends, self._retry))
        self._send(waiting)
        for one in join.lists():
            self._decider.see(one.objects)
        log.info(
            "continuing",
            lists=join.open_lists,
            remembered=join.remembered_lists,
            waiting=len(waiting),
            already_there=len(self._there),
        )
        return join

    def _decide(self) -> None:
        day = self._join.watermark // DAY_MS
        if day != self._day:
            self._day = day
            self._decider.begin_day()
        for place, item in self._join.drained():
            decision = self._decider.decide(item)
            self._changed = True
            self._queue(place, decision)
            self._aside("decisions", self._tell_of, place, item, decision)

    def _tell_of(self, place: str, item: Item | LateClick | UnclickedList, decision: Decision) -> None:
        """What counts and estimates gets a list once it was decided; estimates, where it was accepted."""
        self._metrics.decided(decision)
        if decision.reason and decision.fate != "ignored":
            say = log.error if decision.reason == SUSPECT else log.debug
            say(decision.reason, place=place, detail=decision.detail)
        if decision.accepted and isinstance(item, Impression | UnclickedList):
            self._examination.add(item)
            if isinstance(item, Impression):
                self._reader.bots.closed(len(item.shown), len(item.clicked))

    def _queue(self, place: str, decision: Decision) -> None:
        most, is_held = self._outlet.max_record_bytes, decision.fate == "holdout"
        records = [(HOLDOUT, record) for record in decision.holdout if is_held or _size(record) <= most]
        for topic, record in [*records, *((TRAINING, record) for record in decision.training)]:
            if _size(record) > most:
                log.warning(
                    "left out: the stream takes no record of this size", place=place, bytes=_size(record)
                )
                self._metrics.dropped("too_large")
            else:
                self._waiting.append((topic, record))

    def _examine(self, now: float) -> None:
        if now < self._examined_next or not self._examination.is_due:
            return
        began, self._examined_next = time.monotonic(), now + EXAMINE_SECONDS
        self._metrics.examined(self._examination.estimate())
        spent = time.monotonic() - began
        self._examined_next = now + max(EXAMINE_SECONDS, spent / MOST_EXAMINING)

    def _tell(self) -> None:
        for note in self.intake.notes():
            log.warning(note)
        self._aside("metrics", self._metrics.stands, self._join, self._reader.bots, self.intake)


def _size(record: OutRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")
