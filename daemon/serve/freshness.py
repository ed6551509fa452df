"""How old a click is when the first answer that used it is given: the pure account, without clock or threads.

Of each event one thing is kept until it is answered, its time; of many events, how many fell into each
millisecond. The account is exact to the millisecond for events younger than `FINE_S` and to half a second
for older ones; those older than `horizon_s`, the last bound of the histogram, only need their number and
sum. So the memory has a bound whatever happens: nobody asks for days, or a backfill brings years.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

FINE_S = 60.0
MOST_GROUPS = 512
MOST_POINTS = 256
"""Distinct times of events that came in one whole version."""
MOST_TIMES = 200_000
"""Distinct times kept, about 3 MB; beyond it, and beyond MOST_GROUPS, the oldest neighbours become one."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages in seconds float64 [n], how many events had each int64 [n], of the events answered just now."""

    seconds: NDArray[np.float64]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventTimes:
    """A multiset of event times: ms since the epoch, ascending int64 [n]; counts int64 [n].

    old, old_ms: number and sum of the times of events that were past the horizon.
    """

    ms: NDArray[np.int64]
    counts: NDArray[np.int64]
    old: int = 0
    old_ms: float = 0.0

    @classmethod
    def of(cls, times: NDArray[np.int64], now_ms: int, horizon_s: float) -> Self:
        """These times. One that lies ahead of `now_ms` is the mistake of a clock and counts as now."""
        return cls._made(np.minimum(times, now_ms), np.ones(len(times), np.int64), now_ms, horizon_s)

    @classmethod
    def between(cls, first_ms: int, last_ms: int, count: int, now_ms: int, horizon_s: float) -> Self:
        """So many events of which only the ends are known: at equal distances, from the first on."""
        points = min(count, MOST_POINTS)
        ms = np.linspace(min(first_ms, last_ms), last_ms, points + 1)[1:].astype(np.int64)
        counts = np.full(points, count // points, np.int64)
        counts[: count % points] += 1
        return cls._made(np.minimum(ms, now_ms), counts, now_ms, horizon_s)

    def joined(self, other: EventTimes, now_ms: int, horizon_s: float) -> EventTimes:
        """Both, as coarse as their ages allow at `now_ms`."""
        ms, counts = (np.concatenate(pair) for pair in ((self.ms, other.ms), (self.counts, other.counts)))
        made = EventTimes._made(ms, counts, now_ms, horizon_s)
        old_ms = made.old_ms + self.old_ms + other.old_ms
        return EventTimes(made.ms, made.counts, made.old + self.old + other.old, old_ms)

    def since(self, ms: int) -> EventTimes:
        """Those from then on; the past of the horizon goes with what was before."""
        kept = self.ms >= ms
        return self if kept.all() and not self.old else EventTimes(self.ms[kept], self.counts[kept])

    def ages(self, now_ms: int) -> Ages:
        """Their ages at `now_ms`; those past the horizon all at their mean."""
        seconds = np.maximum(now_ms - self.ms, 0) / 1000.0
        if not self.old:
            return Ages(seconds, self.counts)
        mean = (now_ms - self.old_ms / self.old) / 1000.0
        return Ages(np.append(seconds, mean), np.append(self.counts, self.old))

    @classmethod
    def _made(cls, ms: NDArray[np.int64], counts: NDArray[np.int64], now_ms: int, horizon_s: float) -> Self:
        past = ms < now_ms - round(1000 * horizon_s)
        old, old_ms = int(counts[past].sum()), float(ms[past] @ counts[past].astype(np.float64))
        ms, counts = ms[~past], counts[~past]
        coarse = ms < now_ms - round(1000 * FINE_S)
        ms = np.where(coarse, ms // 1000 * 1000 + 500, ms)
        keys, places = np.unique(ms, return_inverse=True)
        return cls(keys, np.bincount(places, counts, len(keys)).astype(np.int64), old, old_ms)


class Freshness:
    """Of one alias: event times that no answer has used yet, in groups by the state that first holds them.

    A state is known by its number of records applied since version 0. Call `begin` when the alias can
    answer for the first time, `learned` for every piece of the step log in its order, `cut` where a version
    stands, and `answered` for every answer. Events from before `since_ms` waited for the server and not for
    learning: they are left out, until that is past the horizon, where no time is known.
    """

    def __init__(self, horizon_s: float, since_ms: int = 0) -> None:
        self._horizon_s, self._since_ms = horizon_s, since_ms
        self.groups: list[tuple[int, EventTimes]] = []
        """Events by the state that first holds them; empty once every learned event has been in an answer."""
        self._cuts: set[int] = set()
        self._begun_at = -1

    @property
    def waiting(self) -> int:
        """Events that no answer has used yet."""
        return sum(int(times.counts.sum()) + times.old for _, times in self.groups)

    def learned(self, total: int, times: NDArray[np.int64], now_ms: int) -> None:
        """The state at `total` records is the first that holds the events of these times (ms).

        A total that is not above the last one begins another line of states (a branch): what only the
        abandoned one holds is forgotten. What the alias began with is left out.
        """
        if len(times):
            self._add(total, EventTimes.of(times, now_ms, self._horizon_s), now_ms)

    def learned_between(self, total: int, first_ms: int, last_ms: int, count: int, now_ms: int) -> None:
        """The same of `count` events of which only the times of the ends are known; the first may be that of
        the version before, so where the last one came after `since_ms` all are taken to have."""
        if count > 0:
            first_ms = min(max(first_ms, self._since_ms), last_ms)
            self._add(total, EventTimes.between(first_ms, last_ms, count, now_ms, self._horizon_s), now_ms)

    def _add(self, total: int, times: EventTimes, now_ms: int) -> None:
        if total <= self._begun_at:
            return
        if self._since_ms > now_ms - round(1000 * self._horizon_s):
            times = times.since(self._since_ms)
        self.groups = [group for group in self.groups if group[0] < total]
        self.groups.append((total, times))
        self._keep_bounds(now_ms)

    def cut(self, total: int) -> None:
        """A version stands at `total` records: an alias may come to stand there."""
        if self.groups and total >= self.groups[0][0]:
            self._cuts.add(total)

    def begin(self, total: int) -> None:
        """What the state at `total` records holds was there before anybody could ask: it is not counted."""
        self._begun_at = total
        self.groups = [group for group in self.groups if group[0] > total]

    def another_line(self, total: int) -> None:
        """A line of states continues from `total` records: what it learns beyond was in no answer."""
        self._begun_at = min(self._begun_at, total)

    def answered(self, total: int, now_ms: int) -> Ages | None:
        """An answer of the state at `total` records; the ages of the events that no answer had used before.

        None where there are none.
        """
        if not self.groups or self.groups[0][0] > total:
            return None
        held = [times for at, times in self.groups if at <= total]
        self.groups = self.groups[len(held) :]
        self._cuts = {at for at in self._cuts if at > total}
        ages = [times.ages(now_ms) for times in held]
        return Ages(
            np.concatenate([one.seconds for one in ages]), np.concatenate([one.counts for one in ages])
        )

    def _keep_bounds(self, now_ms: int) -> None:
        """Join neighbours into the later state: the oldest that stand at no version, else the oldest."""
        while len(self.groups) > 1 and (
            len(self.groups) > MOST_GROUPS or sum(len(times.ms) for _, times in self.groups) > MOST_TIMES
        ):
            pairs = range(len(self.groups) - 1)
            first = next((place for place in pairs if self.groups[place][0] not in self._cuts), 0)
            (_, before), (total, after) = self.groups[first : first + 2]
            joined = before.joined(after, now_ms, self._horizon_s)
            self.groups[first : first + 2] = [(total, joined)]
        self._cuts = {at for at in self._cuts if at >= self.groups[0][0]}
