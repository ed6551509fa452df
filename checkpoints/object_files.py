"""Files of an object store as local ones: fetched once, and again where the bucket has others."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from checkpoints.object_store import ObjectSettings, ObjectStore
from checkpoints.store import BadKey, KeyMissing, WriteFailed

NOTE = "fetched.json"
"""Which objects the local files are: path -> [size, ETag]."""
_TRIES = 3


def fetch_files(address: str, settings: ObjectSettings, folder: Path) -> Path:
    """The local copy of the object at `s3://bucket/path`, or of the folder of all objects below it.

    It lies below `folder` (made when missing) in a place of its own for each address, keeps the names, and a
    file whose size and ETag are the bucket's is not fetched again, nor touched. One process at a time.

    Raises KeyMissing where nothing is there, BadKey for a name that leads elsewhere, Unreachable; WriteFailed
    where the local disk refuses, or the objects change all the while.
    """
    parts = urlsplit(address)
    path = parts.path.strip("/")
    store = ObjectStore(f"{parts.scheme}://{parts.netloc}", "", settings)
    place = folder / hashlib.sha256(f"{settings.endpoint} {address}".encode()).hexdigest()[:16]
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(place):
            for _ in range(_TRIES):
                there = store.below(path)
                if not there:
                    raise KeyMissing(address, "there is no such object, and none below it")
                _take_over(store, path, there, place)
                if store.below(path) == there:
                    return place / PurePosixPath(path).name
    except OSError as error:
        raise WriteFailed(
            str(place), f"cannot be written: {error.strerror or error}", "free space"
        ) from error
    raise WriteFailed(address, "changes while it is fetched", "write it elsewhere, and copy it there at once")


def _take_over(store: ObjectStore, path: str, there: Mapping[str, tuple[int, str]], place: Path) -> None:
    note = place / NOTE
    known: dict[str, list[object]] = {}
    with suppress(OSError, ValueError):
        known = dict(json.loads(note.read_text(encoding="utf-8")))
    parent = str(PurePosixPath(path).parent)
    wanted = {one: place / _relative(one, parent) for one in there}
    for one, (size, tag) in there.items():
        target = wanted[one]
        if known.get(one) == [size, tag] and target.is_file() and target.stat().st_size == size:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        with part.open("wb") as file:
            for piece in store.pieces(one, size):
                file.write(piece)
        if part.stat().st_size != size:
            continue  # it has changed: looked at once more
        os.replace(part, target)
        known[one] = [size, tag]
    for gone in known.keys() - there.keys():
        with suppress(OSError):
            (place / _relative(gone, parent)).unlink()
    note.write_text(json.dumps({one: known[one] for one in there if one in known}), encoding="utf-8")


def _relative(path: str, parent: str) -> PurePosixPath:
    """Where an object lies below the folder of its address. Raises BadKey for `..` and the like."""
    found = PurePosixPath(path)
    if parent != ".":
        found = found.relative_to(parent)
    if found.is_absolute() or not found.parts or any(part in ("..", NOTE) for part in found.parts):
        raise BadKey(repr(path), "is not a path of plain names")
    return found


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
