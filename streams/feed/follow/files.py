"""Files that grow and are rotated, followed line by line; a place is a file's device, inode and offset.

A file is known by what it is, not by its name: one that was renamed is read to its end, and the new one under
its name from its beginning. What was read of its beginning is kept as a digest, so that a file that was cut
short and written anew, or that has the inode of one that is gone, is not taken for it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from streams.feed.follow.records import RawRecord
from streams.feed.inputs import MAX_LINE_BYTES

CHUNK_BYTES = 1 << 18
HEAD_BYTES = 256
"""So many first bytes tell a file from another with its inode."""
PACKED = (".gz", ".zst", ".bz2", ".xz")
"""What rotation packs was read before, under another name."""
AFTER_ROTATION_S = 60.0
"""For so long a file that lost its name is looked at: who writes to it may have it open."""


@dataclass(slots=True)
class FollowedFile:
    """An open file: what it is, where it is read next, how many of its first bytes the digest is of."""

    path: str
    descriptor: int
    identity: str
    offset: int = 0
    head: int = 0
    digest: str = ""
    newest: int = 0
    ended_at: float | None = None
    unnamed_at: float | None = None
    skipping: bool = False

    def place(self) -> dict[str, Any]:
        """Plain data, to go on from."""
        return {
            "path": self.path,
            "offset": self.offset,
            "head": self.head,
            "digest": self.digest,
            "newest": self.newest,
        }


class FollowedFiles:
    """The files that a pattern names. A method that reads raises OSError for a file that cannot be read.

    `notes` are lines worth telling: a file was cut short, one is gone.
    """

    def __init__(self, pattern: str, places: Mapping[str, Mapping[str, Any]]) -> None:
        self.pattern = pattern
        self.notes: list[str] = []
        self._files: dict[str, FollowedFile] = {}
        self._gone: set[str] = set()
        self._places = dict(places)
        self._find_renamed()

    def look(self, now: float) -> None:
        """See which files there are now; `now` is monotonic, in seconds."""
        named = set()
        for path in sorted(glob.glob(self.pattern, recursive=True)):
            if path.endswith(PACKED):
                continue
            opened = self._opened(path)
            if opened is not None:
                named.add(opened)
        for identity, one in list(self._files.items()):
            if identity in named:
                one.unnamed_at = None
            elif one.unnamed_at is None:
                one.unnamed_at = now
            elif one.ended_at is not None and now - max(one.ended_at, one.unnamed_at) >= AFTER_ROTATION_S:
                os.close(one.descriptor)
                del self._files[identity]

    def files(self) -> Sequence[FollowedFile]:
        """Those that are followed."""
        return list(self._files.values())

    def places(self) -> dict[str, dict[str, Any]]:
        """Where each file is read next, as plain data."""
        return {identity: one.place() for identity, one in self._files.items()}

    def read(self, one: FollowedFile, most: int, now: float) -> list[RawRecord]:
        """Up to `most` next whole lines of a file, none at its end. One that is still being written stays."""
        size = self.size(one)
        if size < one.offset:
            self._cut_short(one, size)
        ended_at, one.ended_at = one.ended_at, None
        while one.ended_at is None:
            records = self._next_lines(one, most)
            if records is None:
                one.ended_at = now if ended_at is None else ended_at
            elif records:
                return records
        return []

    def _next_lines(self, one: FollowedFile, most: int) -> list[RawRecord] | None:
        """Lines of one block, which may hold none that counts; None at the end."""
        wanted = CHUNK_BYTES
        while True:
            chunk = os.pread(one.descriptor, wanted, one.offset)
            end = chunk.rfind(b"\n") + 1
            if end or len(chunk) < wanted or wanted >= MAX_LINE_BYTES:
                break
            wanted *= 4
        if not end and len(chunk) >= MAX_LINE_BYTES:  # a line too long: told once, then left out to its end
            place, told = f"{one.path}:byte {one.offset}", one.skipping
            one.offset, one.skipping = one.offset + len(chunk), True
            return [] if told else [RawRecord(place, None)]
        if not end:
            return None
        records = _lines(one, chunk[:end], most)
        self._note_head(one)
        return records

    def size(self, one: FollowedFile) -> int:
        """Bytes of a file now."""
        return os.fstat(one.descriptor).st_size

    def close(self) -> None:
        """Close all files."""
        for one in self._files.values():
            os.close(one.descriptor)
        self._files = {}

    def _opened(self, path: str) -> str | None:
        """Open a file that is not followed yet; what it is, None where it has gone or is no file."""
        try:
            found = os.stat(path)
            identity = f"{found.st_dev}:{found.st_ino}"
            if identity in self._files:
                self._files[identity].path = path
                return identity
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if not os.path.isfile(path):
            os.close(descriptor)
            return None
        found = os.fstat(descriptor)
        identity = f"{found.st_dev}:{found.st_ino}"
        one = FollowedFile(path, descriptor, identity)
        known = self._places.pop(identity, None)
        if known is not None:
            one.head, one.digest = int(known["head"]), str(known["digest"])
            if _digest(descriptor, one.head) == one.digest:
                one.offset, one.newest = int(known["offset"]), int(known["newest"])
            else:
                one.head, one.digest = 0, ""
        self._files[identity] = one
        return identity

    def _find_renamed(self) -> None:
        """Files that were renamed while nobody followed are found by what they are, in their folder."""
        self.look(0.0)
        for identity, known in list(self._places.items()):
            folder = Path(str(known["path"])).parent
            names = folder.iterdir() if folder.is_dir() else iter(())
            for path in names:
                found = path.lstat()
                if f"{found.st_dev}:{found.st_ino}" == identity and self._opened(str(path)):
                    break
            else:
                self.notes.append(
                    f"{known['path']}, read up to byte {known['offset']:,}, is gone; what came after is lost"
                    " where there was something"
                )
            self._places.pop(identity, None)

    def _cut_short(self, one: FollowedFile, size: int) -> None:
        """The same beginning: only its end was taken back. Another: it was written anew."""
        if size >= one.head and _digest(one.descriptor, one.head) == one.digest and one.head:
            self.notes.append(
                f"{one.path} was cut from {one.offset:,} to {size:,} bytes; going on from there"
            )
            one.offset = size
        else:
            self.notes.append(f"{one.path} was emptied; reading it from its beginning")
            one.offset, one.head, one.digest = 0, 0, ""
        one.skipping = False

    def _note_head(self, one: FollowedFile) -> None:
        if one.head < HEAD_BYTES and one.head < one.offset:
            one.head = min(HEAD_BYTES, one.offset)
            one.digest = _digest(one.descriptor, one.head)


def _digest(descriptor: int, size: int) -> str:
    return blake2b(os.pread(descriptor, size, 0), digest_size=8).hexdigest()


def _lines(one: FollowedFile, block: bytes, most: int) -> list[RawRecord]:
    """Whole lines of a block that ends with one; the file's offset is behind the last one given."""
    before, offset = f"{one.path}:byte ", one.offset
    end = offset + len(block)
    found = []
    for line in block.split(b"\n", most)[:most]:
        if offset == end:  # behind the last line
            break
        if one.skipping:
            one.skipping = False
        elif line and not line.isspace():
            found.append(RawRecord(f"{before}{offset}", line))
        offset += len(line) + 1
    one.offset = offset
    return found
