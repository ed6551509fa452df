"""Where photos are: in a folder, in a tar, or at paths of a list; found first, read one at a time."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from daemon.describe.pictures import MOST_BYTES, UnreadablePicture
from daemon.exits import EX_DATAERR, EX_USAGE, UserError

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".jp2", ".ppm", ".pgm", ".pbm")
"""Of the names that count as photos in a folder or a tar; a list may name any file."""
LISTS = (".txt", ".tsv")

IdRule = Literal["stem", "path"]


class PhotoRef(NamedTuple):
    """One photo: its object's id, the name that messages use, the file that it is in, from where (-1: all of
    it) and how many bytes; when the file changed last."""

    id: str
    name: str
    file: str
    offset: int
    size: int
    changed: int = 0

    @property
    def folders(self) -> tuple[str, ...]:
        """Those that it lies in, seen from the source."""
        return PurePosixPath(self.name).parent.parts


def find_photos(source: Path, ids: IdRule = "stem") -> list[PhotoRef]:
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
        elif source.suffix.lower() in LISTS:
            found = list(_in_list(source, ids))
        else:
            found = sorted(_in_tar(source, ids), key=lambda one: one.name)
    except OSError as error:
        remedy = "correct the path or its permissions"
        raise UserError(
            f"{error.filename or source}: {error.strerror or error}", remedy, EX_DATAERR
        ) from None
    if not found:
        raise UserError(f"{source}: no photos", f"their names end in {', '.join(ENDINGS)}", EX_DATAERR)
    _check_ids(found)
    return found


def read_photo(photo: PhotoRef) -> bytes:
    """The bytes of one. Raises UnreadablePicture: it is away, or too large."""
    if photo.size > MOST_BYTES:
        raise UnreadablePicture(f"{photo.size:,} bytes are more than {MOST_BYTES:,}")
    try:
        with open(photo.file, "rb") as file:
            if photo.offset >= 0:
                file.seek(photo.offset)
            return file.read(photo.size)
    except OSError as error:
        raise UnreadablePicture(error.strerror or str(error)) from None


def _in_folder(folder: Path, ids: IdRule) -> Iterator[PhotoRef]:
    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(".") or not name.lower().endswith(ENDINGS):
                continue
            path = Path(place, name)
            found = path.stat()
            if stat.S_ISREG(found.st_mode):
                relative = path.relative_to(folder).as_posix()
                yield _of_file(path, relative, _id(relative, ids), found)


def _in_list(path: Path, ids: IdRule) -> Iterator[PhotoRef]:
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\r\n")
            if not text:
                continue
            object_id, tab, name = text.partition("\t") if path.suffix.lower() == ".tsv" else ("", "", text)
            if path.suffix.lower() == ".tsv" and not (object_id and tab and name):
                raise UserError(
                    f"{path}, line {number}: not an id, a tab and a path", "correct it", EX_DATAERR
                )
            place = path.parent / name
            try:
                found = place.stat()
            except OSError as error:
                what = f"{path}, line {number}: {name}: {error.strerror}"
                raise UserError(what, "correct the path, or take it out", EX_DATAERR) from None
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{path}, line {number}: {name}: no regular file", "take it out", EX_DATAERR)
            yield _of_file(place, name, object_id or _id(name, ids), found)


def _of_file(path: Path, name: str, object_id: str, found: os.stat_result) -> PhotoRef:
    return PhotoRef(object_id, name, str(path), -1, found.st_size, found.st_mtime_ns)


def _in_tar(path: Path, ids: IdRule) -> Iterator[PhotoRef]:
    try:
        with tarfile.open(path, "r:") as tar:
            changed = path.stat().st_mtime_ns
            for member in tar:
                name = PurePosixPath(member.name)
                hidden = any(part.startswith(".") and part != "." for part in name.parts)
                if (
                    member.isreg()
                    and not member.issparse()
                    and not hidden
                    and name.name.lower().endswith(ENDINGS)
                ):
                    text = name.as_posix()
                    yield PhotoRef(_id(text, ids), text, str(path), member.offset_data, member.size, changed)
    except tarfile.TarError as error:
        raise UserError(
            f"{path}: not a folder, a list ({', '.join(LISTS)}) or an uncompressed tar ({error})",
            "unpack what is compressed: photos in a tar are read one by one, wherever they lie",
            EX_DATAERR,
        ) from None


def _id(name: str, ids: IdRule) -> str:
    return PurePosixPath(name).stem if ids == "stem" else name


def _check_ids(found: list[PhotoRef]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        try:
            one.id.encode()
        except UnicodeEncodeError:
            raise UserError(f"{one.name!a}: the name is not UTF-8", "rename it", EX_DATAERR) from None
        first = seen.setdefault(one.id, one.name)
        if first != one.name or len(seen) == 0:
            raise UserError(
                f"{first} and {one.name} would both be {one.id!r}",
                "give --ids path, or a list of ids and paths (.tsv)",
                EX_USAGE,
            )
    if len(seen) != len(found):
        raise UserError("a photo is named twice", "take one of them out of the list", EX_DATAERR)
