"""Which record a process died at: what is in hand is noted, and a record that it died at twice is left out.

The note is a few bytes of a small file, written without a sync: what a process wrote outlasts its death, and
a machine that loses its power was not ended by a record. It is written before records are touched and emptied
afterwards. What a start finds in it is what the process before died with.

A death says something of the records in hand only where the process ended itself: by a fatal signal, an
exception that nobody expected, or the watchdog, each of which leaves its last words. The records of such a
batch are taken one at a time at the next start, and one that is alone in hand at two such deaths is
`suspect`. A death without a word (SIGKILL, by a person or by the system) is no record's fault: any number of
these never leaves out a record. After two of them in the same batch the records are taken one at a time all
the same, each under an alarm that works also while a call holds the interpreter: a hang then has its words.
"""

from __future__ import annotations

import faulthandler
import json
import os
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import structlog

from daemon.config.objects import is_object_address
from daemon.exits import EX_TEMPFAIL, UserError, as_user_error
from streams.feed.follow.guard import Held
from streams.poison import REASONS, SUSPECT
from streams.source import RecordBatch, cut

FOLDER = "in-hand"
DEATHS = 2
"""Deaths with a record alone in hand, after which it is left out."""
ALARM_TIMES = 5
"""After so many times `stuck_after` a record alone in hand is a hang; most steps take a millisecond."""
MOST_WORDS = 20_000
RANGES = ("seen", "careful")
DECODE, STEP = 0, 1
"""Threads of a role that may have a batch in hand at once, each with its place in the note."""
PLACE = struct.Struct("<qqq")

Range = tuple[int, int, int]
"""Partition (of what is followed the number of a file or partition), first offset, one past the last."""

log = structlog.get_logger("tripletd.in_hand")


@dataclass(frozen=True, slots=True)
class Known:
    """What deaths have said. seen: in hand at the last death, where that was without a word. careful: to be
    taken one at a time. deaths: by (partition, offset) of records that were alone."""

    seen: tuple[Range, ...] = ()
    careful: tuple[Range, ...] = ()
    deaths: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def suspects(self) -> set[tuple[int, int]]:
        """(partition, offset) of the records at which the process died twice."""
        return {at for at, count in self.deaths.items() if count >= DEATHS}

    def after(self, died: tuple[Range, ...], with_words: bool) -> Known:
        """What is known after a death with this in hand."""
        if not died:
            return Known((), self.careful, self.deaths)
        if not with_words:
            again = tuple(one for one in died if any(_meet(one, before) for before in self.seen))
            return Known(died, tuple(dict.fromkeys(self.careful + again)), self.deaths)
        deaths = dict(self.deaths)
        if len(set(died)) == 1 and died[0][2] - died[0][1] == 1:
            at = died[0][:2]
            deaths[at] = deaths.get(at, 0) + 1
        return Known((), tuple(dict.fromkeys(self.careful + died)), deaths)

    def from_positions(self, positions: Mapping[int, int]) -> Known:
        """What still matters to a process that begins at these offsets."""

        def ahead(one: Range) -> bool:
            return one[2] > positions.get(one[0], 0)

        deaths = {at: count for at, count in self.deaths.items() if at[1] >= positions.get(at[0], 0)}
        return Known(tuple(filter(ahead, self.seen)), tuple(filter(ahead, self.careful)), deaths)

    def stretch(self, source: int, at: int) -> tuple[int, bool, bool]:
        """Up to where records from `at` on are taken alike, whether that is the next one alone, and whether
        it is left out."""
        mine = [one for one in self.careful if one[0] == source and one[2] > at]
        if any(first <= at for _, first, _ in mine):
            return at + 1, True, self.deaths.get((source, at), 0) >= DEATHS
        return min((first for _, first, _ in mine), default=sys.maxsize), False, False

    def pieces(self, batch: RecordBatch) -> list[tuple[RecordBatch, bool]]:
        """The batch in pieces, and whether each is to be alone in hand; suspects are `left_out`.

        A single one where nothing is known of its records, none of an empty batch.
        """
        if batch.damaged is not None:
            return [(batch, False)]
        found, begin = list[tuple[RecordBatch, bool]](), 0
        while begin < len(batch):
            stop, alone, suspect = self.stretch(batch.partition, batch.offsets[begin])
            end = bisect_left(batch.offsets, stop, begin + 1)
            piece = cut(batch, begin, end)
            found.append((left_out(piece), False) if suspect else (piece, alone))
            begin = end
        return found


def left_out(alone: RecordBatch) -> RecordBatch:
    """A batch of one record that nobody is to touch, as one of a stretch that cannot be read."""
    return replace(alone, values=[None], damaged=REASONS[SUSPECT], kept=alone.values[0] or b"")


def _meet(one: Range, other: Range) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


class InHand:
    """The note of one role. alarm_s: after which a record that is alone in hand is a hang.

    Without a folder that can be written nothing is noted, and deaths say nothing. `open` at the start of a
    process, once it is known where it begins; `close` at its orderly end.
    """

    def __init__(self, folder: Path | None = None, role: str = "", alarm_s: float = 0.0) -> None:
        self._folder, self._role, self._alarm_s = folder, role, alarm_s
        self._note: Any = None
        self._words: Any = None
        self._handles_faults = False
        self.known, self._topic_id = Known(), ""

    @classmethod
    def of(cls, place: str, role: str, alarm_s: float) -> InHand:
        """With its files in a checkpoint folder, or for one in a bucket in the user's cache."""
        if not is_object_address(place):
            return cls(Path(place, FOLDER), role, alarm_s)
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = sha256(place.encode()).hexdigest()[:16]
        return cls(Path(user, "tripletd", FOLDER, name) if Path(user).is_absolute() else None, role, alarm_s)

    def open(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """See what the process before died with. positions: where this one begins."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path("note").touch(0o600)
            note = open(self._path("note"), "r+b", buffering=0)  # noqa: SIM115
            noted = os.pread(note.fileno(), 2 * PLACE.size, 0).ljust(2 * PLACE.size, b"\0")
            died = tuple({(p, a, b): 0 for p, a, b in PLACE.iter_unpack(noted) if p >= 0 and 0 <= a < b})
            self._words = open(self._path("words"), "a+b", buffering=0)  # noqa: SIM115
            self._words.seek(0)
            words = self._words.read(MOST_WORDS)
            self._topic_id = topic_id
            before = self._read(topic_id)
            known = Known() if before is None else before.after(died, bool(words))
            self.known = known.from_positions(positions)
            os.pwrite(note.fileno(), bytes(2 * PLACE.size), 0)
            self._words.truncate(0)  # a death that comes now is never counted twice
            if self.known != before:
                self._write()
            self._note = note
        except (OSError, ValueError) as error:
            log.warning("deaths at a record will not be known", problem=str(error))
            self._release()
            return
        if words:
            log.error("the process before this one ended", words=words.decode("utf-8", "replace"), had=died)
        for partition, offset in sorted(self.known.suspects):
            log.error(f"left out: {REASONS[SUSPECT]}", source=partition, offset=offset)
        if not faulthandler.is_enabled():
            faulthandler.enable(self._words)
            self._handles_faults = True
        _ROLES.append(self)

    def hold(self, thread: int, batch: RecordBatch, alone: bool = False) -> AbstractContextManager[None]:
        """Around whatever touches the records of a batch in a thread, DECODE or STEP."""
        held = Held(batch.partition, batch.offsets[0], batch.offsets[-1] + 1, alone)
        what = f"{len(batch)} records of partition {batch.partition}, from offset {batch.offsets[0]:,} on"
        return self.hold_range(held, what, thread)

    @contextmanager
    def hold_range(self, held: Held, what: str, thread: int = DECODE) -> Iterator[None]:
        """The same for records of any source; `what` names them."""
        note, alarm = self._note, held.alone and self._alarm_s > 0
        if note is None:
            yield
            return
        _mark(note, thread, PLACE.pack(*held[:3]))
        if alarm:
            faulthandler.dump_traceback_later(self._alarm_s, exit=True, file=self._words)
        try:
            yield
        except MemoryError as error:  # another start may cure it: it takes the records one at a time
            self.say(f"MemoryError: {error}")
            raise UserError(f"memory ran out over {what}", "", EX_TEMPFAIL) from error
        except Exception as error:
            if as_user_error(error) is None:
                self.say(f"{type(error).__name__}: {error}")
                raise
            _mark(note, thread, bytes(PLACE.size))
            raise
        finally:
            if alarm:
                faulthandler.cancel_dump_traceback_later()
        _mark(note, thread, bytes(PLACE.size))

    def stretch(self, source: int, at: int) -> tuple[int, bool, bool]:
        """See `Known.stretch`."""
        return self.known.stretch(source, at)

    def passed(self, positions: Callable[[], Mapping[int, int]]) -> None:
        """Forget what durable positions are past; a source that they do not name was not looked at yet."""
        if self._note is not None and self.known != Known():
            known = self.known.from_positions(positions())
            if known != self.known:
                self.known = known
                with suppress(OSError):  # the next start forgets it, too
                    self._write()

    def say(self, words: str) -> None:
        """Leave last words."""
        if self._words is not None:
            with suppress(OSError, ValueError):
                self._words.write(words[:MOST_WORDS].encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        """The process ends; whatever it has in hand still, without last words it says nothing."""
        if self in _ROLES:
            _ROLES.remove(self)
        self._release()

    def _release(self) -> None:
        if self._handles_faults:
            faulthandler.disable()
            self._handles_faults = False
        self._note = self._words = None  # closed with the last thread that has them

    def _path(self, what: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._role}.{what}"

    def _read(self, topic_id: str) -> Known | None:
        """What earlier deaths said of this topic; None where that cannot be read, or is of another one: the
        note is not of this topic then either."""
        try:
            said = json.loads(self._path("known.json").read_text())
            if said["topic"] != topic_id:
                return None
            seen, careful = (tuple((int(p), int(a), int(b)) for p, a, b in said[k]) for k in RANGES)
            return Known(seen, careful, {(int(p), int(at)): int(count) for p, at, count in said["deaths"]})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self) -> None:
        known = self.known
        said = {"topic": self._topic_id, **dict(zip(RANGES, (known.seen, known.careful), strict=True))}
        deaths = [[*at, count] for at, count in known.deaths.items()]
        path = self._path("known.json")
        written = path.with_suffix(".tmp")
        written.write_text(json.dumps({**said, "deaths": deaths}))
        written.replace(path)  # without a sync, as the note


_ROLES: list[InHand] = []


def last_words(words: str) -> None:
    """The process is about to end itself, for this reason."""
    for one in _ROLES:
        one.say(words)


def _mark(note: Any, thread: int, place: bytes) -> None:
    with suppress(OSError):
        os.pwrite(note.fileno(), place, thread * PLACE.size)
