"""Where photos are: in a folder, in a tar, or at paths of a list; found first, read one at a time."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, Protocol

from daemon.describe.pictures import MOST_BYTES, UnusableObject
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from streams.text_files import numbered_lines

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".jp2", ".ppm", ".pgm", ".pbm")
"""Of the names that count as photos in a folder or a tar; a list may name any file."""
LIST = ".txt"

IdRule = Literal["stem", "path"]


class RawObject(NamedTuple):
    """What is known of an object before it is described: its id and the name that messages use; of its photo
    the file that it is in, from where (-1: all of it), how many bytes (-1: not known), and when it changed
    last; its text, and a title that people see; the folders that the photo lies in, seen from where all were
    found."""

    id: str
    name: str
    file: str = ""
    offset: int = -1
    size: int = -1
    changed: int = 0
    text: str = ""
    title: str = ""
    folders: tuple[str, ...] = ()


class RawSource(Protocol):
    """Objects that are gone through several times, in one order."""

    def count(self) -> int:
        """How many there are."""

    def state(self) -> str:
        """Another one where the objects are others, or may be."""

    def pieces(self, size: int) -> Iterator[list[RawObject]]:
        """All of them, so many at a time."""


class PhotoList:
    """Photos that were found."""

    def __init__(self, photos: list[RawObject]) -> None:
        self._photos = photos

    def count(self) -> int:
        """How many there are."""
        return len(self._photos)

    def state(self) -> str:
        """Of ids, names, sizes and times."""
        listing = sha256()
        for photo in self._photos:
            listing.update(repr((photo.id, photo.name, photo.size, photo.changed)).encode())
        return listing.hexdigest()

    def pieces(self, size: int) -> Iterator[list[RawObject]]:
        """All of them, so many at a time."""
        for at in range(0, len(self._photos), size):
            yield self._photos[at : at + size]


def find_photos(source: Path, ids: IdRule = "stem") -> list[RawObject]:
    """Every photo of a folder and those below it, of an uncompressed tar, or of a list: `.txt` with a path
    per line, `.tsv` with an id, a tab and a path; relative paths begin at the list.

    By name, in the order of code points; those of a list in its order. ids: the file's name without its
    ending, or its whole path seen from the source. What is hidden (.name), no regular file, or of another
    ending is passed over, in a list refused. Raises UserError, also where two photos would have one id.
    """
    try:
        kind = source.stat().st_mode
        if stat.S_ISDIR(kind):
            found = sorted(_in_folder(source, ids), key=lambda one: one.name)
        elif source.suffix.lower() == LIST:
            found = list(_in_list(source, ids))
        else:
            found = sorted(_in_tar(source, ids), key=lambda one: one.name)
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        raise UserError(f"{source}: {message}", remedy, EX_DATAERR) from None
    except OSError as error:
        remedy = "correct the path or its permissions"
        what = f"{error.filename or source}: {error.strerror or error}"
        raise UserError(what, remedy, EX_DATAERR) from None
    if not found:
        raise UserError(f"{source}: no photos", f"their names end in {', '.join(ENDINGS)}", EX_DATAERR)
    _check_ids(found)
    return found


def read_photo(photo: RawObject) -> bytes:
    """The bytes of one. Raises UnusableObject: it is away, no regular file, or too large."""
    if not photo.file:
        raise UnusableObject("it has no photo")
    try:
        # Without waiting for the other end of a pipe, should somebody have put one there.
        with open(photo.file, "rb", opener=lambda name, mode: os.open(name, mode | os.O_NONBLOCK)) as file:
            about = os.fstat(file.fileno())
            size = photo.size if photo.size >= 0 else about.st_size
            if not stat.S_ISREG(about.st_mode):
                raise UnusableObject("no regular file")
            if size > MOST_BYTES:
                raise UnusableObject(f"{size:,} bytes are more than {MOST_BYTES:,}")
            file.seek(max(photo.offset, 0))
            return file.read(size)
    except OSError as error:
        raise UnusableObject(error.strerror or str(error)) from None


def _in_folder(folder: Path, ids: IdRule) -> Iterator[RawObject]:
    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(".") or not name.lower().endswith(ENDINGS):
                continue
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            one = RawObject(_id(relative, ids), relative, str(path), folders=_folders(relative))
            try:
                found = path.stat()
            except OSError:
                yield one  # a link to nowhere: told with its name when it is read
                continue
            if stat.S_ISREG(found.st_mode):
                yield one._replace(size=found.st_size, changed=found.st_mtime_ns)


def _in_list(path: Path, ids: IdRule) -> Iterator[RawObject]:
    with path.open("rb") as file:
        for number, line in numbered_lines(file):
            object_id, _, name = line.decode(errors="surrogateescape").rstrip("\r\n").rpartition("\t")
            place = path.parent / name
            try:
                found = place.stat()
            except OSError as error:
                what = f"{path}, line {number}: {name}: {error.strerror}"
                raise UserError(what, "correct the path, or take it out", EX_DATAERR) from None
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{path}, line {number}: {name}: no regular file", "take it out", EX_DATAERR)
            about = found.st_size, found.st_mtime_ns
            yield RawObject(object_id or _id(name, ids), name, str(place), -1, *about)


def _in_tar(path: Path, ids: IdRule) -> Iterator[RawObject]:
    try:
        with tarfile.open(path, "r:") as tar:
            changed = path.stat().st_mtime_ns
            for member in tar:
                name = PurePosixPath(member.name)
                hidden = any(part.startswith(".") and part != "." for part in name.parts)
                is_plain = member.isreg() and not member.issparse()
                if is_plain and not hidden and name.name.lower().endswith(ENDINGS):
                    text = name.as_posix()
                    place = str(path), member.offset_data, member.size, changed
                    yield RawObject(_id(text, ids), text, *place, folders=_folders(text))
    except tarfile.TarError as error:
        message = f"{path}: not a folder, a list ({LIST}) or an uncompressed tar ({error})"
        remedy = "unpack what is compressed: photos in a tar are read one by one, wherever they lie"
        raise UserError(message, remedy, EX_DATAERR) from None


def _folders(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in PurePosixPath(name).parent.parts if part not in ("/", "..")))


def _id(name: str, ids: IdRule) -> str:
    return PurePosixPath(name).stem if ids == "stem" else name


def _check_ids(found: list[RawObject]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        try:
            one.id.encode()
        except UnicodeEncodeError:
            raise UserError(f"{one.name!a}: the name is not UTF-8", "rename it", EX_DATAERR) from None
        if one.id in seen:
            remedy = "give --ids path, or a list of ids and paths (.txt, with a tab between them)"
            raise UserError(f"{seen[one.id]} and {one.name} would both be {one.id!r}", remedy, EX_USAGE)
        seen[one.id] = one.name
