"""Reads the holdout topic into a window of the newest impressions, on which versions are judged. What cannot
be judged is counted, what cannot be decoded becomes a dead letter.

The window is a pure function of the holdout positions, whatever restarts, polls and rewinds lie between, as
long as the log still holds the records. Of every partition it holds the last `share = ceil(size /
partitions)` records before its position, and of these the usable ones (at least one clicked and one unclicked
object). Lists of kinds of queries that are held out as a whole stand in it apart (`Window.of_kinds`). Lists
that are learned from (`Impression.trained`) take no room from the others: as many of them are kept
separately (`Window.trained`), found by looking back `spread` times as far. Memory: at most `2 (size +
partitions)` impressions, and as many read ahead. An impression that was written twice counts once: it is
known by its id, and where one model per key is learned by its key too.

Where every version is judged, lists enter the window as versions get there (`Holdout.take`): what is newer is
read ahead, up to `most_ahead` records of a partition. A record counts as read up to when one of the
`most_ahead` records after it is as old as is asked for, so that lists in another order than that of their
times, or one with a wrong time, hold nothing up.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from daemon.dead_letters import send_durably
from daemon.exits import EX_UNAVAILABLE, UserError
from daemon.retries import RETRY_SECONDS
from daemon.runtime.in_hand import DECODE, InHand
from daemon.validate.scorer import check_impression
from streams.catalog import Catalog
from streams.codec import decode_impression
from streams.errors import OffsetExpired, StreamUnavailable
from streams.event import Impression, SpaceSpec
from streams.partitions import OpenTransactions
from streams.poison import KEY_MISSING, DeadLetter, Poison, refuse_unread
from streams.queries import VectorMaps, query_in_views
from streams.source import HeldBack, RecordBatch, Sink, Source


def is_usable(impression: Impression) -> bool:
    """At least one shown object was clicked and at least one was not: else there is nothing to compare."""
    return 0 < len(impression.clicked) < len(impression.shown)


def share_of(size: int, partitions: int) -> int:
    """Records of one partition that the window looks back on."""
    return -(-size // partitions)


def rebuild_from(ends: Mapping[int, tuple[int, int]], size: int, spread: int = 1) -> dict[int, int]:
    """Where to start reading so that the window is full at the ends: `spread` shares of records back, or the
    earliest.

    ends: partition -> (earliest, end), or (earliest, any wanted position) to see an older window again.
    """
    share = share_of(size, len(ends)) * spread
    return {partition: max(earliest, end - share) for partition, (earliest, end) in ends.items()}


@dataclass(frozen=True, slots=True)
class HeldImpression:
    """A usable impression and where it stood in the holdout topic."""

    partition: int
    offset: int
    impression: Impression


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that was read; held: the usable impression in it, if it is one."""

    offset: int
    held: HeldImpression | None = None

    @property
    def is_trained(self) -> bool:
        """Whether it is a list that is learned from."""
        return self.held is not None and self.held.impression.trained

    def is_within(self, until_ms: int | None) -> bool:
        """Whether it is a list from before that time, or one of that very time that anybody learns: that may
        be what a version learned last. None: any record is.
        """
        if until_ms is None or self.held is None:
            return until_ms is None
        return self.held.impression.ts < until_ms + self.held.impression.is_learned


@dataclass(slots=True)
class TakenLists:
    """What `Holdout.take` did. fresh: lists that have entered the window. settled: nothing that is read later
    would change how far it got. full: there is more, but no room for it.
    """

    fresh: list[HeldImpression] = field(default_factory=list)
    settled: bool = True
    full: bool = False


Identity = tuple[str, str | None]


class Window:
    """Newest usable impressions per partition, and the position up to which the topic was read. keyed: one
    model per key is learned. spread: how many shares of records are looked back on at most."""

    def __init__(self, size: int, starts: Mapping[int, int], keyed: bool = False, spread: int = 1) -> None:
        self._keyed = keyed
        self._share = share_of(size, len(starts))
        self._look_back = self._share * spread
        self._positions = dict(starts)
        self._held: dict[int, deque[tuple[int, HeldImpression]]] = {
            partition: deque() for partition in starts
        }
        """With its place among the records that are not learned from."""
        self._trained: dict[int, deque[HeldImpression]] = {partition: deque() for partition in starts}
        self._passed: Counter[int] = Counter()
        """Records that are learned from, by partition, since `starts`."""
        self._ids: Counter[Identity] = Counter()
        """Of the lists that are of no held-out kind."""

    @property
    def positions(self) -> dict[int, int]:
        """Next offset per partition: with the version's hash it determines every verdict."""
        return dict(sorted(self._positions.items()))

    def add(self, held: HeldImpression) -> bool:
        """Take a usable impression and move past it; whether it counts among the lists and was not here."""
        is_first = False
        if held.impression.trained:
            self._trained[held.partition].append(held)
            self._passed[held.partition] += 1
        else:
            self._held[held.partition].append((held.offset - self._passed[held.partition], held))
        if held.impression.kind is None and not held.impression.trained:
            identity = self._identity(held)
            self._ids[identity] += 1
            is_first = self._ids[identity] == 1
        self.move(held.partition, held.offset + 1)
        return is_first

    def move(self, partition: int, next_offset: int) -> None:
        """The partition was read up to `next_offset`; what fell out of the look-back is forgotten."""
        self._positions[partition] = position = max(next_offset, self._positions[partition])
        oldest, earliest = position - self._passed[partition] - self._share, position - self._look_back
        trained = self._trained[partition]
        while trained and (len(trained) > self._share or trained[0].offset < earliest):
            trained.popleft()
        queue = self._held[partition]
        while queue and (queue[0][0] < oldest or queue[0][1].offset < earliest):
            _, held = queue.popleft()
            if held.impression.kind is not None:
                continue
            gone = self._identity(held)
            self._ids[gone] -= 1
            if not self._ids[gone]:
                del self._ids[gone]

    def room(self, partition: int, ahead: Sequence[ReadRecord], since: int) -> int:
        """How many of the next records may come before a list at `since` or after it would fall out."""
        passed = self._passed[partition]
        kept = ((place, held.offset) for place, held in self._held[partition] if held.offset >= since)
        first = next(kept, None)
        for count, record in enumerate(ahead):
            passed += record.is_trained
            after = record.offset + 1
            if first and (first[0] < after - passed - self._share or first[1] < after - self._look_back):
                return count
            if first is None and record.held is not None and not record.is_trained:
                first = record.offset - passed, record.offset
        return len(ahead)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[HeldImpression]:
        """Each once, oldest first, by (time, partition, offset): an order that does not depend on how polls
        interleaved. Without those of kinds that are held out as a whole, and those that are learned from.
        """
        return self._in_order(held for held in self._held_out() if held.impression.kind is None)

    def of_kinds(self) -> list[HeldImpression]:
        """In the same order, the lists of kinds of queries of which nothing is learned."""
        return list(self._in_order(held for held in self._held_out() if held.impression.kind is not None))

    def trained(self) -> list[HeldImpression]:
        """In the same order, the lists that are learned from: versions from before may bet on them."""
        return list(self._in_order(held for queue in self._trained.values() for held in queue))

    def learned(self, after_ms: int, until_ms: int) -> list[HeldImpression]:
        """In the same order, these, and of that time those that arms alone learn."""
        for_arms = (
            held
            for held in self._held_out()
            if held.impression.for_arms and after_ms < held.impression.ts <= until_ms
        )
        return list(self._in_order([*self.trained(), *for_arms]))

    def _held_out(self) -> Iterator[HeldImpression]:
        return (held for queue in self._held.values() for _, held in queue)

    def _in_order(self, wanted: Iterable[HeldImpression]) -> Iterator[HeldImpression]:
        ordered = sorted(wanted, key=lambda h: (h.impression.ts, h.partition, h.offset))
        firsts: dict[Identity, HeldImpression] = {}
        for held in ordered:
            firsts.setdefault(self._identity(held), held)
        return iter(firsts.values())

    def _identity(self, held: HeldImpression) -> Identity:
        return held.impression.id, held.impression.key if self._keyed else None


NO_CLICK = "no_click"
ALL_CLICKED = "all_clicked"
POLL_RECORDS, POLL_SECONDS = 256, 0.2
LOOK_SECONDS = 1.0
"""How often it is asked what open transactions hold back."""
STALL_SECONDS = 10.0
"""For how long one may be seen open before it is trouble; most end within a second."""


class Holdout:
    """The holdout stream of one topic. dead: None where lists are only looked at.

    Starts `size` records before the end, or before `upto` (an older window again). stood: where the window
    stood last, {} for nowhere yet: it begins there again, and what comes after it waits for `take`; None: all
    that is read enters the window. A dead letter may be written again after a restart. keyed: an impression
    without a key can be judged by no model, and one is known by its id and its key. spread: see `Window`.
    clock: monotonic, in seconds. in_hand: what the process died with.
    """

    def __init__(
        self,
        source: Source,
        dead: Sink | None,
        *,
        space: SpaceSpec,
        catalog: Catalog | None,
        size: int,
        keyed: bool = False,
        spread: int = 1,
        upto: Mapping[int, int] | None = None,
        stood: Mapping[int, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        in_hand: InHand | None = None,
    ) -> None:
        self._source, self._dead = source, dead
        self._space, self._catalog = space, catalog
        self._size, self._keyed, self._spread = size, keyed, spread
        self._in_hand = in_hand or InHand()
        self.topic = source.identity().topic
        self._upto = None if upto is None else dict(upto)
        self._counts: Counter[str] = Counter()
        self.queries: VectorMaps = {}
        """What takes queries of other models to the space, as they are read."""
        self._clock, self.checked_at = clock, float("-inf")
        self.transactions = OpenTransactions()
        """What open transactions hold back, as it was asked for last."""
        self.window = self._rewind(stood)
        self._in_hand.open(source.identity().topic_id, self.window.positions)

    def poll(self, timeout_s: float, give_up: Callable[[float, Exception], bool]) -> list[HeldImpression]:
        """Read one batch into the window, or ahead of it; the usable impressions that came into it. Empty
        after `timeout_s` without any.

        `give_up(seconds, error)` waits while the holdout or its dead-letter topic is unavailable; True ends
        the attempt, and what was not taken in is read again later. When retention overtook the position,
        reading continues from what is left; when partitions were added, the window is read again.
        """
        try:
            self._look()
            batch = self._poll(timeout_s)
        except StreamUnavailable as error:
            give_up(RETRY_SECONDS, error)
            return []
        records: list[ReadRecord] = []
        letters: list[DeadLetter] = []
        left_out: Counter[str] = Counter()
        for piece, alone in [] if batch is None else self._in_hand.known.pieces(batch):
            with self._in_hand.hold(DECODE, piece, alone):
                records += self._decode(piece, letters, left_out)
        if letters and self._dead is not None and not send_durably(self._dead, letters, give_up):
            self._assign()
            return []
        self._counts += left_out
        if batch is not None:
            self._ahead[batch.partition] += records
        for partition, reached in self._source.reached().items():
            self.reached[partition] = min(reached, self._upto[partition]) if self._upto else reached
        return self._enter(self._stood)

    def take(
        self, until_ms: int | None, since: Mapping[int, int] | None, ends: Mapping[int, int] | None = None
    ) -> TakenLists:
        """Let what was read ahead enter the window, up to the last list of that time (None: all), but no more
        than leaves every held-out list from `since` on in it (None: whatever falls out).

        ends: up to where all there is has to be read for the result to be settled; by default nothing has.
        """
        taken = TakenLists()
        for partition, ahead in self._ahead.items():
            while True:
                seen, room = list(islice(ahead, self.most_ahead)), self.most_ahead
                if since is not None:
                    room = self.window.room(partition, seen, since.get(partition, 0))
                room = min(room, len(seen))
                count = next((n for n in range(room, 0, -1) if seen[n - 1].is_within(until_ms)), 0)
                if not count:
                    break
                taken.fresh += self._move(partition, seen[count - 1].offset + 1)
            is_whole = self.reached[partition] >= (0 if ends is None else ends.get(partition, 0))
            if until_ms is None and not ahead:
                self.window.move(partition, self.reached[partition])
            is_full = room < len(seen)
            taken.full |= is_full
            taken.settled &= is_full or is_whole or (until_ms is not None and len(seen) == self.most_ahead)
        return taken

    def leaves(self, until_ms: int) -> bool:
        """Whether a list up to that time was read that is not in the window yet: there is no room."""
        ahead = (record for records in self._ahead.values() for record in records)
        return any(record.is_within(until_ms) for record in ahead)

    @property
    def lists(self) -> int:
        """Held-out lists in the window and read ahead of it."""
        ahead = (record for records in self._ahead.values() for record in records)
        return len(self.window) + sum(one.held is not None and not one.is_trained for one in ahead)

    def ends(self) -> dict[int, int]:
        """Where the partitions end now. Raises StreamUnavailable."""
        return {partition: end for partition, (_, end) in self._source.bounds().items()}

    def take_counts(self) -> Counter[str]:
        """Impressions left out since the last call, by reason: of poison, `no_click`, `all_clicked`."""
        taken, self._counts = self._counts, Counter()
        return taken

    def caught_up(self) -> bool:
        """Every record in the topic now, or before `upto`, has been read. Raises StreamUnavailable."""
        ends = self._upto or self.ends()
        return all(self.reached.get(partition, -1) >= end for partition, end in ends.items())

    def held_back(self) -> list[tuple[int, HeldBack, float]]:
        """(partition, what a transaction holds back, for how many seconds that was seen), all else read."""
        return list(self.transactions.reached(self.reached, self._clock()))

    def trouble(self) -> str | None:
        """Why nothing comes where somebody's transaction stays open; None before it has for a while."""
        return self.transactions.trouble(self.topic, self.reached, self._clock(), STALL_SECONDS)

    def _look(self) -> None:
        now = self._clock()
        if self._upto is None and now >= self.checked_at + LOOK_SECONDS:
            self.checked_at = now
            self.transactions = self.transactions.next(self._source.held_back(), now)

    def _poll(self, timeout_s: float) -> RecordBatch | None:
        full = {partition for partition, ahead in self._ahead.items() if len(ahead) >= self.most_ahead}
        if full != self._waiting:
            self._assign()
        if full and len(full) == len(self._ahead):
            return None
        try:
            batch = self._source.poll(POLL_RECORDS, timeout_s)
        except OffsetExpired:
            self._rewind_here()
            return None
        if self._upto is None and self._source.identity().partitions > len(self.window.positions):
            # A larger number of partitions have smaller shares of the window: it is read again, for all.
            self._rewind_here()
            return None
        return batch

    def _decode(
        self, batch: RecordBatch, letters: list[DeadLetter], left_out: Counter[str]
    ) -> Iterator[ReadRecord]:
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            if self._upto is not None and offset >= self._upto[batch.partition]:
                break
            try:
                refuse_unread(batch)
                impression = decode_impression(value)
                query = query_in_views(impression.query, self._space, self.queries)
                impression = replace(impression, query=query)
                check_impression(impression, self._space, self._catalog)
                if self._keyed and impression.key is None:
                    raise Poison(KEY_MISSING)
            except Poison as error:
                left_out[error.reason] += 1
                where, kept = (self.topic, batch.partition, offset), value or batch.kept
                letters.append(DeadLetter(*where, error.reason, error.detail, kept))
                yield ReadRecord(offset)
                continue
            usable = is_usable(impression)
            if not usable:
                left_out[ALL_CLICKED if impression.clicked else NO_CLICK] += 1
            yield ReadRecord(offset, HeldImpression(batch.partition, offset, impression) if usable else None)

    def _enter(self, positions: Mapping[int, int] | None) -> list[HeldImpression]:
        """Let what was read up to these positions enter the window, or all."""
        fresh: list[HeldImpression] = []
        for partition, reached in self.reached.items():
            wanted = reached if positions is None else min(reached, positions[partition])
            fresh += self._move(partition, wanted)
        return fresh

    def _move(self, partition: int, position: int) -> list[HeldImpression]:
        """Let what lies before a position enter the window; the held-out lists that were not there."""
        fresh, ahead = list[HeldImpression](), self._ahead[partition]
        while ahead and ahead[0].offset < position:
            held = ahead.popleft().held
            if held is not None and self.window.add(held):
                fresh.append(held)
        self.window.move(partition, position)
        return fresh

    def _assign(self) -> None:
        """Read on from where was read to, but where so much was read ahead already."""
        self._waiting = {one for one, ahead in self._ahead.items() if len(ahead) >= self.most_ahead}
        self._source.assign({one: at for one, at in self.reached.items() if one not in self._waiting})

    def _rewind_here(self) -> None:
        self.window = self._rewind(None if self._stood is None else self.window.positions)

    def _rewind(self, stood: Mapping[int, int] | None) -> Window:
        bounds = self._source.bounds()
        if self._upto is not None:
            bounds = {partition: (bounds[partition][0], end) for partition, end in self._upto.items()}
        if stood is not None:
            bounds = {
                partition: (earliest, min(end, max(earliest, stood.get(partition, earliest))))
                for partition, (earliest, end) in bounds.items()
            }
            stood = {partition: position for partition, (_, position) in bounds.items()}
        self._stood = stood
        starts = rebuild_from(bounds, self._size, self._spread)
        self.most_ahead = max(POLL_RECORDS, share_of(self._size, len(starts)))
        self._ahead: dict[int, deque[ReadRecord]] = {partition: deque() for partition in starts}
        self.reached = dict(starts)
        self._assign()
        return Window(self._size, starts, self._keyed, self._spread)


def read_whole(holdout: Holdout) -> list[Impression]:
    """The usable impressions of the window, read to the end of the topic. Raises UserError."""

    def give_up(_seconds: float, error: Exception) -> bool:
        message = f"the holdout topic cannot be read: {error}"
        raise UserError(message, "see that the log answers", EX_UNAVAILABLE)

    while not holdout.caught_up():
        holdout.poll(POLL_SECONDS, give_up)
    return [held.impression for held in holdout.window]
