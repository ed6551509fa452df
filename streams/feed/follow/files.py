"""Files that grow and are rotated, followed line by line; a place is a file's device, inode and offset.

A file is known by what it is, not by its name: one that was renamed is read to its end (in its folder, where
it was closed), and the new one under its name from its beginning. What was read of its beginning is kept as a
digest, so that a file that was cut short and written anew, or that has the inode of one that is gone, is not
taken for it.

Only so many files are open at a time. One that was read to its end is closed when nothing came for an hour,
or when another needs its descriptor; it sleeps, known by its inode, size and digest, until its size or its
time changes. A file that cannot be opened is left out, and tried again at each look: the others go on.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import Any

from streams.feed.follow.guard import UNGUARDED, Guard, Held, source_number
from streams.feed.follow.records import RawRecord, suspected
from streams.text_files import MAX_LINE_BYTES

CHUNK_BYTES = 1 << 18
HEAD_BYTES = 256
"""So many first bytes tell a file from another with its inode."""
PACKED = (".gz", ".zst", ".bz2", ".xz")
"""What rotation packs was read before, under another name."""
AFTER_ROTATION_S = 60.0
"""For so long a file that lost its name, or is gone, is known: who writes to it may have it open, and a disk
may not be mounted yet."""
ASLEEP_AFTER_S = 3600.0
"""After so long without a new line a file is closed."""
MOST_OPEN = 256
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


PLACE = ("path", "offset", "head", "digest", "newest", "skipping", "size", "modified", "asleep")
"""What is kept of a file, to go on from; the first release had the first five."""


@dataclass(slots=True)
class FollowedFile:
    """What a file is, where it is read next, of how many of its first bytes the digest is, its size and time
    when it was seen last. `descriptor`: -1 where it is closed; `asleep`: closed, and read to its end, which
    a place has to say, as `ended_at` is a time of this process; `refused`: why it cannot be opened;
    `unnamed_at`: since when no name of it is known; `held`: where the lines are that were read last."""

    path: str
    identity: str
    descriptor: int = -1
    offset: int = 0
    head: int = 0
    digest: str = ""
    newest: int = 0
    size: int = 0
    modified: int = 0
    asleep: bool = False
    refused: str = ""
    read_at: float = -inf
    ended_at: float | None = None
    unnamed_at: float = inf
    skipping: bool = False
    held: Held | None = None

    def place(self) -> dict[str, Any]:
        """Plain data, to go on from."""
        return {name: getattr(self, name) for name in PLACE}

    @property
    def number(self) -> int:
        """What a guard knows it by."""
        return source_number(self.identity)

    @property
    def shown(self) -> str:
        """Its path for messages."""
        return shown(self.path)

    def wake(self, found: os.stat_result) -> None:
        """Have it read on where something was written to it since it fell asleep."""
        if self.asleep and (found.st_size, found.st_mtime_ns) != (self.size, self.modified):
            self.asleep, self.ended_at = False, None


class FollowedFiles:
    """The files that a pattern names, at most `most_open` of those that have a name open at a time.

    `notes` are lines worth telling: a file was cut short, one is gone. `cut`, `missing_bytes`: files that
    were cut or vanished, and the bytes that were known to be there and were not read; whoever counts them
    sets them to 0. `newest`: the latest time that files said which are asleep, ms.
    """

    def __init__(
        self,
        pattern: str,
        places: Mapping[str, Mapping[str, Any]],
        most_open: int = MOST_OPEN,
        guard: Guard = UNGUARDED,
    ) -> None:
        self.pattern, self._guard = pattern, guard
        self.notes: list[str] = []
        self.cut = self.missing_bytes = self.newest = 0
        self._most_open = most_open
        self._open: dict[str, FollowedFile] = {}
        self._not_seen: dict[str, str] = {}
        self._files = {
            identity: FollowedFile(
                identity=identity, **{name: known[name] for name in PLACE if name in known}
            )
            for identity, known in places.items()
        }
        for one in self._files.values():
            one.ended_at = -inf if one.asleep else None
            self._close(one)
        self.look(inf)  # before the first one of whoever knows the time

    @property
    def left_out(self) -> dict[str, str]:
        """Files that cannot be opened now, by path, and why."""
        return self._not_seen | {one.path: one.refused for one in self._files.values() if one.refused}

    def look(self, now: float) -> None:
        """See which files there are now; `now` is monotonic, in seconds."""
        named, self._not_seen = set(), {}
        for path in sorted(glob.glob(self.pattern, recursive=True)):
            if path.endswith(PACKED):
                continue
            try:
                identity = self._seen(path)
            except OSError as error:
                self._not_seen[path] = error.strerror or str(error)
                continue
            if identity is not None:
                named.add(identity)
        nameless = [one for one in self._files.values() if one.identity not in named]
        gone = self._look_for(
            [one for one in nameless if one.descriptor < 0 and one.path not in self._not_seen]
        )
        for one in list(self._files.values()):
            if one.identity in named:
                one.unnamed_at = inf
                if one.ended_at is not None and now - one.ended_at >= ASLEEP_AFTER_S:
                    self._close(one)
                continue
            one.unnamed_at = min(one.unnamed_at, now)
            still_since = max(one.unnamed_at, -inf if one.ended_at is None else one.ended_at)
            is_gone = one.identity in gone
            if (is_gone or one.ended_at is not None) and now - still_since >= AFTER_ROTATION_S:
                if is_gone and not one.asleep:
                    self._lost(one, f"{one.shown} is gone")
                self._close(one)
                del self._files[one.identity]

    def files(self) -> Sequence[FollowedFile]:
        """Those of which there is something to read, or may be soon."""
        return [one for one in self._files.values() if not one.asleep]

    def positions(self) -> dict[int, int]:
        """Where each file is read next, by its number."""
        return {one.number: one.offset for one in self._files.values()}

    def places(self) -> dict[str, dict[str, Any]]:
        """Where each file is read next, as plain data."""
        return {identity: one.place() for identity, one in self._files.items()}

    def behind(self) -> int:
        """Bytes that wait."""
        return sum(max(0, one.size - one.offset) for one in self.files())

    def read(self, one: FollowedFile, most: int, now: float) -> list[RawRecord]:
        """Up to `most` next whole lines of a file, none at its end or where it cannot be opened. One that is
        still being written stays. Raises OSError for a file that cannot be read."""
        if one.asleep:
            return []
        one.refused, one.read_at = "", now
        try:
            if not self._is_open(one):
                return []
        except OSError as error:
            one.refused = error.strerror or str(error)
            return []
        self._measure(one)
        ended_at, one.ended_at = one.ended_at, None
        while one.ended_at is None:
            number, at = one.number, one.offset
            stop, alone, suspect = self._guard.stretch(number, at)
            records = self._next_lines(one, 1 if alone else most, stop)
            if records is None:
                one.ended_at = now if ended_at is None else ended_at
            elif records:
                one.held = Held(number, at, at + 1 if alone else one.offset, alone)
                return [RawRecord(records[0].place, suspected())] if suspect else records
        return []

    def _next_lines(self, one: FollowedFile, most: int, stop: int) -> list[RawRecord] | None:
        """Lines of one block that begin before `stop`, which may hold none that counts; None at the end."""
        wanted = CHUNK_BYTES
        while True:
            chunk = os.pread(one.descriptor, wanted, one.offset)
            end = chunk.rfind(b"\n") + 1
            if end or len(chunk) < wanted or wanted >= MAX_LINE_BYTES:
                break
            wanted *= 4
        if not end and len(chunk) >= MAX_LINE_BYTES:  # a line too long: told once, then left out to its end
            place, told = f"{one.shown}:byte {one.offset}", one.skipping
            one.offset, one.skipping = one.offset + len(chunk), True
            self._note_head(one)
            return [] if told else [RawRecord(place, None)]
        if not end:
            return None
        records = _lines(one, chunk[:end], most, stop)
        self._note_head(one)
        return records

    def close(self) -> None:
        """Close all files."""
        for one in list(self._open.values()):
            self._close(one)
        self._files = {}

    def _seen(self, path: str) -> str | None:
        """What a path names, followed from now on; None where that has gone or is no file. Raises OSError."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            if os.path.islink(path):
                raise
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        identity = _identity(found)
        one = self._files.get(identity)
        if one is None:
            self._files[identity] = FollowedFile(path, identity, size=found.st_size)
        else:
            one.path = path
            one.wake(found)
        return identity

    def _is_open(self, one: FollowedFile) -> bool:
        """Open a file, by what it is; false where it is gone, or its path is another one's now: the next look
        says where it is. Raises OSError."""
        if one.descriptor >= 0:
            return True
        closable = [one for one in self._open.values() if one.unnamed_at == inf]
        if closable and len(self._open) >= self._most_open:
            self._close(min(closable, key=lambda one: (one.ended_at is None, one.read_at)))
        try:
            descriptor = os.open(one.path, FLAGS)
        except FileNotFoundError:
            return False
        if _identity(os.fstat(descriptor)) != one.identity:
            os.close(descriptor)
            return False
        one.descriptor, self._open[one.identity] = descriptor, one
        return True

    def _close(self, one: FollowedFile) -> None:
        """Give the descriptor back; a file that was read to its end sleeps."""
        if self._open.pop(one.identity, None) is not None:
            os.close(one.descriptor)
        one.descriptor, one.asleep = -1, one.ended_at is not None
        if one.asleep:
            self.newest = max(self.newest, one.newest)

    def _look_for(self, closed: Sequence[FollowedFile]) -> set[str]:
        """Find closed files that lost their names, in their folders; which of them are gone."""
        gone = set()
        for one, path, found in _named(closed):
            if found is not None:
                one.path = path
                one.wake(found)
            else:
                gone.add(one.identity)
        return gone

    def _measure(self, one: FollowedFile) -> None:
        found = os.fstat(one.descriptor)
        size, is_same = found.st_size, (found.st_size, found.st_mtime_ns) == (one.size, one.modified)
        if not is_same and one.head and _digest(one.descriptor, one.head) != one.digest:
            self._lost(
                one,
                f"{one.shown} was emptied and is read from its beginning; rotate with `create`, not with"
                " `copytruncate`",
            )
            one.offset, one.head, one.digest, one.skipping = 0, 0, "", False
        elif size < one.offset:
            self._lost(one, f"{one.shown} was cut from {one.offset:,} to {size:,} bytes; going on from there")
            one.offset, one.skipping = size, False
        one.size, one.modified = size, found.st_mtime_ns

    def _note_head(self, one: FollowedFile) -> None:
        if one.head < HEAD_BYTES:
            one.head = min(HEAD_BYTES, one.offset)
            one.digest = _digest(one.descriptor, one.head)

    def _lost(self, one: FollowedFile, what: str) -> None:
        missing = max(0, one.size - one.offset)
        self.cut += 1
        self.missing_bytes += missing
        self.notes.append(
            f"{what}: {missing:,} bytes that were seen are not read, and what came after them may be"
            " missing too"
        )


def shown(path: str) -> str:
    """A path for messages: bytes of a name that are no text are escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _identity(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}"


def _named(files: Sequence[FollowedFile]) -> Iterator[tuple[FollowedFile, str, os.stat_result | None]]:
    """Under which path each of them is in its folder now, and how it is; ("", None) where it is not there.
    Those of a folder that cannot be read are left out."""
    inside: dict[str, dict[str, tuple[str, os.stat_result]] | None] = {}
    for one in files:
        folder = os.path.dirname(one.path) or "."
        if folder not in inside:
            inside[folder] = _inside(folder)
        names = inside[folder]
        if names is not None:
            yield one, *names.get(one.identity, ("", None))


def _inside(folder: str) -> dict[str, tuple[str, os.stat_result]] | None:
    """Path and state of what a folder holds, by identity; None where it cannot be read."""
    names: dict[str, tuple[str, os.stat_result]] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    names[_identity(found)] = entry.path, found
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError:
        return None
    return names


def _digest(descriptor: int, size: int) -> str:
    return blake2b(os.pread(descriptor, size, 0), digest_size=8).hexdigest()


def _lines(one: FollowedFile, block: bytes, most: int, stop: int) -> list[RawRecord]:
    """Whole lines of a block that ends with one; the file's offset is behind the last one given."""
    before, offset = f"{one.shown}:byte ", one.offset
    end = min(offset + len(block), stop)
    found = []
    for line in block.split(b"\n", most)[:most]:
        if offset >= end:  # behind the last line
            break
        if one.skipping:
            one.skipping = False
        elif line and not line.isspace():
            found.append(RawRecord(f"{before}{offset}", line))
        offset += len(line) + 1
    one.offset = offset
    return found
