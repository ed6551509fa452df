"""Where ratings are kept: one file of JSON lines that is only appended to, whoever writes.

Several servers may write to it, and a command may read it meanwhile: whoever writes locks the file, reads
what others added, and only then decides whether a record is new. A record is on the disk before it counts.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from daemon.config.objects import is_object_address
from daemon.config.schema import Config
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_UNAVAILABLE, UserError
from daemon.ratings.study import MOST_RATERS, Rating, Study, same_rater
from daemon.schema_errors import sentence
from streams.durable import sync, write_whole

FILE = "ratings.jsonl"
"""In the folder of checkpoints, where serve.ratings.file names no other."""

RatingRecord: TypeAlias = Annotated[Study | Rating, Field(discriminator="record")]
_RECORD: TypeAdapter[Study | Rating] = TypeAdapter(RatingRecord)


class RatingsRefused(Exception):
    """A rating that is not taken; `code`: a short name for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class KnownRatings:
    """What records say. The first rating of a query by a rater counts, and the first study of a name."""

    def __init__(self) -> None:
        self.studies: dict[str, Study] = {}
        self._ratings: dict[tuple[str, str, str], Rating] = {}

    def copy(self) -> KnownRatings:
        """The same, for somebody who reads while more is taken in."""
        other = KnownRatings()
        other.studies, other._ratings = dict(self.studies), dict(self._ratings)
        return other

    def take(self, record: Study | Rating) -> None:
        """Add a record, unless it is known."""
        if isinstance(record, Study):
            self.studies.setdefault(record.name, record)
        else:
            self._ratings.setdefault((record.study, same_rater(record.rater), record.query), record)

    def rating(self, study: str, query: str, rater: str) -> Rating | None:
        """What this rater said of this query, None for nothing."""
        return self._ratings.get((study, same_rater(rater), query))

    def of(self, study: str | None = None) -> list[Rating]:
        """The ratings of a study, in the order in which they came; of all without one."""
        return [one for one in self._ratings.values() if study is None or one.study == study]

    def done(self, study: str, rater: str) -> list[str]:
        """The queries that this rater has rated."""
        known = same_rater(rater)
        return [query for name, who, query in self._ratings if (name, who) == (study, known)]

    def raters(self, study: str) -> set[str]:
        """Under which raters are known, see `same_rater`."""
        return {rater for name, rater, _ in self._ratings if name == study}


class RatingsFile:
    """The file, for those who write. Any thread.

    most_bytes: how large it may become. Whatever it cannot do is a UserError or an OSError, and then what was
    to be written does not count.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most = path, most_bytes
        self._lock = threading.Lock()
        self._known, self._read, self._lines = KnownRatings(), 0, 0
        self._inode: int | None = None

    def known(self) -> KnownRatings:
        """What the file says now, with what other processes have added."""
        with self._lock:
            if not self._path.exists():
                self._forget()
            else:
                with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
                    self._catch_up(descriptor)
            return self._known.copy()

    def begin(self, study: Study) -> Study:
        """Keep the study unless there is one of its name; the one that counts."""
        with self._writing() as descriptor:
            if study.name not in self._known.studies:
                self._append(descriptor, study)
            return self._known.studies[study.name]

    def add(self, rating: Rating) -> bool:
        """Keep a rating; False where this rater has rated this query with the same marks before.

        Raises RatingsRefused: with other marks (`rated_before`), or beyond MOST_RATERS (`too_many_raters`).
        """
        with self._writing() as descriptor:
            before = self._known.rating(rating.study, rating.query, rating.rater)
            if before is not None:
                if before.relevant != rating.relevant:
                    message = "this query was rated before under this name, and the first rating counts"
                    raise RatingsRefused("rated_before", message)
                return False
            raters = self._known.raters(rating.study)
            if same_rater(rating.rater) not in raters and len(raters) >= MOST_RATERS:
                raise RatingsRefused("too_many_raters", f"{MOST_RATERS} people have rated, which is the most")
            self._append(descriptor, rating)
            return True

    @contextmanager
    def _writing(self) -> Iterator[int]:
        with self._lock:
            if not self._path.exists():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640))
                sync(self._path.parent)  # so that its name lasts
            with self._opened(os.O_RDWR | os.O_APPEND, fcntl.LOCK_EX) as descriptor:
                self._catch_up(descriptor)
                yield descriptor

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        descriptor = os.open(self._path, flags | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, lock)
            yield descriptor
        finally:
            os.close(descriptor)  # which gives the lock back

    def _forget(self) -> None:
        self._known, self._read, self._lines, self._inode = KnownRatings(), 0, 0, None

    def _catch_up(self, descriptor: int) -> None:
        """Read the whole lines that are new; everything where the file is another one, or shorter."""
        found = os.fstat(descriptor)
        if found.st_ino != self._inode or found.st_size < self._read:
            self._forget()
            self._inode = found.st_ino
        while block := os.pread(descriptor, found.st_size - self._read, self._read):
            whole = block[: block.rfind(b"\n") + 1]
            if not whole:
                return  # a line without an end: a crash cut it off before it counted
            for record in _records(self._path, whole, self._lines + 1):
                self._known.take(record)
            self._read += len(whole)
            self._lines += whole.count(b"\n")

    def _append(self, descriptor: int, record: Study | Rating) -> None:
        """Write one line and see that it lasts; the end of a line that was cut off gives way to it."""
        line = _RECORD.dump_json(record) + b"\n"
        if self._read + len(line) > self._most:
            message = f"{self._path} holds {self._read:,} bytes; serve.ratings.size allows {self._most:,}"
            raise UserError(message, "begin another file (serve.ratings.file), or raise it", EX_CANTCREAT)
        os.ftruncate(descriptor, self._read)
        write_whole(descriptor, line, self._read, os.fsync)
        self._read += len(line)
        self._lines += 1
        self._known.take(record)


def ratings_path(config: Config) -> Path:
    """Where the ratings of this configuration are kept. Raises UserError where that is in no folder."""
    if not config.serve.ratings.file and is_object_address(config.checkpoints.path):
        message = "serve.ratings.file: ratings are kept in a local file, and checkpoints.path is no folder"
        raise UserError(message, "set serve.ratings.file")
    return Path(config.serve.ratings.file or Path(config.checkpoints.path, FILE))


def read_ratings(path: Path) -> KnownRatings:
    """What a file says, for those who only read. UserError: it is not there, or holds something else."""
    known = KnownRatings()
    try:
        body = path.read_bytes()
    except FileNotFoundError:
        remedy = "set serve.ratings.enabled, start `tripletd serve`, and let people rate at /rate"
        raise UserError(f"{path}: there are no ratings yet", remedy, EX_UNAVAILABLE) from None
    for record in _records(path, body[: body.rfind(b"\n") + 1], 1):
        known.take(record)
    return known


def _records(path: Path, block: bytes, first: int) -> Sequence[Study | Rating]:
    found = []
    for number, line in enumerate(block.splitlines(), start=first):
        try:
            found.append(_RECORD.validate_json(line))
        except ValidationError as error:
            told = sentence(error.errors(include_url=False, include_input=False)[0])
            message = f"{path}, line {number}: no record of ratings: {told}"
            remedy = "put the file back as it was, or move it away"
            raise UserError(message, remedy, EX_DATAERR) from None
    return found
