"""Which record a process crashed at: the records being processed ("in hand") are noted, and a record that it
crashed at twice is left out.

The note is a few bytes of a small file, written without a sync: what a process wrote outlasts its death, and
a machine that loses its power was not ended by a record. It is written before records are touched and emptied
afterwards. What a start reads there is what the process before was working on when it died.

A death counts against these records only where the process ended itself: by a fatal signal, an exception that
nobody expected, or the watchdog, each of which leaves a crash message, its last words. The records of such a
batch are processed one at a time at the next start, and one that was alone in hand at two such deaths is
`suspect`. A death without a message (SIGKILL, by a person or by the system) is no record's fault: any number
of these never leaves out a record. After two of them in the same batch the records are processed one at a
time all the same, each under an alarm that works also while a call holds the interpreter: a hang then leaves
its message.
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
from streams.feed.follow.guard import Guard, Held
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
"""A range. A third one in the note holds the number of the start that emptied it last."""

Range = tuple[int, int, int]
"""Partition (of what is followed the number of a file or partition), first offset, one past the last."""

log = structlog.get_logger("tripletd.in_hand")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known from earlier deaths. seen: in hand at the last one, where that left no message. careful:
    to be processed one at a time. deaths: by (partition, offset) of records that were alone."""

    seen: tuple[Range, ...] = ()
    careful: tuple[Range, ...] = ()
    deaths: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def suspects(self) -> set[tuple[int, int]]:
        """(partition, offset) of the records to leave out."""
        return {at for at, count in self.deaths.items() if count >= DEATHS}

    def after(self, died: tuple[Range, ...], with_words: bool) -> Known:
        """What is known after a death with this in hand."""
        if not died:
            return Known((), self.careful, self.deaths)
        if not with_words:
            again = tuple(
                one for one in died if any(one[0] == p and one[1] < b and a < one[2] for p, a, b in self.seen)
            )
            return Known(died, tuple(dict.fromkeys(self.careful + again)), self.deaths)
        deaths = dict(self.deaths)
        if len(set(died)) == 1 and died[0][2] - died[0][1] == 1:
            at = died[0][:2]
            deaths[at] = deaths.get(at, 0) + 1
        return Known((), tuple(dict.fromkeys(self.careful + died)), deaths)

    def from_positions(self, positions: Mapping[int, int]) -> Known:
        """What still matters to a process that begins at these offsets."""

        def ahead(noted: Range) -> bool:
            return noted[2] > positions.get(noted[0], 0)

        deaths = {at: count for at, count in self.deaths.items() if at[1] >= positions.get(at[0], 0)}
        return Known(tuple(filter(ahead, self.seen)), tuple(filter(ahead, self.careful)), deaths)

    def stretch(self, source: int, at: int) -> tuple[int, bool, bool]:
        """The end of the next piece from `at` on, whether it is one record on its own, and whether that is to
        be left out."""
        ahead = [first for partition, first, stop in self.careful if partition == source and stop > at]
        if any(first <= at for first in ahead):
            return at + 1, True, self.deaths.get((source, at), 0) >= DEATHS
        return min(ahead, default=sys.maxsize), False, False

    def pieces(self, batch: RecordBatch) -> list[tuple[RecordBatch, bool]]:
        """The batch in pieces, and whether each is to be alone in hand; suspects are `left_out`.

        A single one where nothing is known of its records, none of an empty batch.
        """
        if batch.damaged is not None:
            return [(batch, False)]
        pieces, begin = list[tuple[RecordBatch, bool]](), 0
        while begin < len(batch):
            stop, alone, suspect = self.stretch(batch.partition, batch.offsets[begin])
            end = bisect_left(batch.offsets, stop, begin + 1)
            piece = cut(batch, begin, end)
            pieces.append((left_out(piece), False) if suspect else (piece, alone))
            begin = end
        return pieces


def left_out(alone: RecordBatch) -> RecordBatch:
    """A one-record batch marked as unreadable, keeping the bytes for the dead letter."""
    return replace(alone, values=[None], damaged=REASONS[SUSPECT], kept=alone.values[0] or b"")


class InHand(Guard):
    """The note of one role. alarm_s: after which a record that is alone in hand is a hang.

    Without a folder that can be written nothing is noted, and deaths count for nothing. `open` at the start
    of a process, once it is known where it begins; `close` at its orderly end.
    """

    def __init__(self, folder: Path | None = None, role: str = "", alarm_s: float = 0.0) -> None:
        self._folder, self._role, self._alarm_s = folder, role, alarm_s
        self._note: Any = None
        self._words: Any = None
        self._faults_before: bool | None = None  # whether faults had a handler; None: that is not replaced
        self.known, self._topic_id, self._number = Known(), "", 0

    @classmethod
    def of(cls, place: str, role: str, alarm_s: float) -> InHand:
        """With its files in a checkpoint folder, or for one in a bucket in the user's cache."""
        if not is_object_address(place):
            return cls(Path(place, FOLDER), role, alarm_s)
        user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = sha256(place.encode()).hexdigest()[:16]
        return cls(Path(user, "tripletd", FOLDER, name) if Path(user).is_absolute() else None, role, alarm_s)

    def open(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """Read what the process before died with. positions: where this one begins.

        What that says is written before the note is emptied: where the disk is full it counts at a later
        start. The number in both keeps a death between the two from counting twice.
        """
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path("note").touch(0o600)
            note = open(self._path("note"), "r+b", buffering=0)  # noqa: SIM115
            noted = os.pread(note.fileno(), 3 * PLACE.size, 0).ljust(3 * PLACE.size, b"\0")
            *places, (self._number, *_) = PLACE.iter_unpack(noted)
            died = tuple({(p, a, b): 0 for p, a, b in places if p >= 0 and 0 <= a < b})
            self._words = open(self._path("words"), "a+b", buffering=0)  # noqa: SIM115
            self._words.seek(0)
            words = self._words.read(MOST_WORDS)
            self._topic_id = topic_id
            before, counted = self._read(topic_id)
            known = before or Known()
            if before is not None and counted != self._number:
                known = before.after(died, bool(words))
            self.known = known.from_positions(positions)
            if self.known != before:
                self._write()
            os.pwrite(note.fileno(), bytes(2 * PLACE.size) + PLACE.pack(self._number + 1, 0, 0), 0)
            self._words.truncate(0)
            self._note = note
        except (OSError, ValueError) as error:
            log.warning("records that crash this role will not be recognized", problem=str(error))
            self._release()
            return
        if words:
            log.error("the previous process crashed", words=words.decode("utf-8", "replace"), records=died)
        for partition, offset in sorted(self.known.suspects):
            log.error(f"left out: {REASONS[SUSPECT]}", source=partition, offset=offset)
        self._faults_before = faulthandler.is_enabled()
        faulthandler.enable(self._words)  # the next start logs them
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
            remedy = "start it again: it then takes these records one at a time; or give it more memory"
            raise UserError(f"memory ran out over {what}", remedy, EX_TEMPFAIL) from error
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
        """Forget what durable positions are past; a source that they do not name was not looked at yet. The
        follower alone calls it: `learn` and `validate` forget at their next start."""
        if self._note is not None and self.known != Known():
            known = self.known.from_positions(positions())
            if known != self.known:
                self.known = known
                with suppress(OSError):  # the next start forgets it, too
                    self._write()

    def say(self, words: str) -> None:
        """Leave a crash message."""
        if self._words is not None:
            with suppress(OSError, ValueError):
                self._words.write(words[:MOST_WORDS].encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        """The process ends; what it has in hand still counts for nothing without a crash message."""
        if self in _ROLES:
            _ROLES.remove(self)
        self._release()

    def _release(self) -> None:
        if self._faults_before:
            faulthandler.enable(2)
        elif self._faults_before is not None:
            faulthandler.disable()
        self._faults_before = None
        self._note = self._words = None  # closed with the last thread that has them

    def _path(self, what: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._role}.{what}"

    def _read(self, topic_id: str) -> tuple[Known | None, int]:
        """What is known of this topic, and the number of the last note that counts there; (None, -1) where
        that cannot be read, or is of another topic: the note is not of this one then either."""
        try:
            kept = json.loads(self._path("known.json").read_text())
            if kept["topic"] != topic_id:
                return None, -1
            seen, careful = (tuple((int(p), int(a), int(b)) for p, a, b in kept[k]) for k in RANGES)
            deaths = {(int(p), int(at)): int(count) for p, at, count in kept["deaths"]}
            return Known(seen, careful, deaths), int(kept.get("note", -1))
        except (OSError, ValueError, KeyError, TypeError):
            return None, -1

    def _write(self) -> None:
        known = self.known
        kept = {"topic": self._topic_id, **dict(zip(RANGES, (known.seen, known.careful), strict=True))}
        deaths = [[*at, count] for at, count in known.deaths.items()]
        path = self._path("known.json")
        written = path.with_suffix(".tmp")
        written.write_text(json.dumps({**kept, "deaths": deaths, "note": self._number}))
        written.replace(path)  # without a sync, as the note


_ROLES: list[InHand] = []


def last_words(words: str) -> None:
    """The crash message of every role of a process that is about to end itself."""
    for role in _ROLES:
        role.say(words)


def _mark(note: Any, thread: int, place: bytes) -> None:
    with suppress(OSError):
        os.pwrite(note.fileno(), place, thread * PLACE.size)
