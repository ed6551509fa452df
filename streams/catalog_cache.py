"""A catalog's source is read once: what was read is kept as one binary file, which every process maps.

A binary is named by the digest of its source's bytes and of how they are read, so that it is never another's.
A note of the source's path says which binary was made of it, and what the source's files looked like then
(size, inode, times): while they look the same, opening costs neither a pass over the source nor one over the
binary. Where they do not, the source's digest decides, and only other bytes are read again.

Objects that live in a database or a topic (`LivePlace`) have no bytes of their own to look at: their place
names the state that they are in, and the binary is named by that.

Binaries and notes are whole or not there: they are written to a temporary file, brought to the disk and
renamed. One process makes a binary under a lock, others wait for it; where there are no locks, each makes the
same bytes. Where no folder can be written, the objects are kept in the memory of the process that reads them.

What was computed of all objects (`derived_arrays`) is kept next to their binary in the same way and removed
with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from streams.catalog import Catalog, in_memory, load_catalog, open_objects, source_files
from streams.durable import remove_temporary, replacing
from streams.event import SpaceSpec
from streams.objects.catalog_file import (
    Arrays,
    CatalogWriter,
    is_whole,
    map_arrays,
    map_catalog,
    write_arrays,
)
from streams.objects.columns import ObjectColumns
from streams.objects.rows import CatalogError, LivePlace, ObjectReader, Tell, unreadable

KEPT = 4
"""Binaries of a folder; of more, those go whose source was opened longest ago."""

TELL_SECONDS = 3.0
RACY_SECONDS = 2.0
"""A file written so short a time before it was read may be written again without looking any different."""

_READING = 1
"""Grows when a source's bytes come to mean other objects."""
_WAIT_SECONDS = 0.05
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class CatalogSource:
    """Where objects are, and how they are read.

    ids: the file of the ids of arrays, None where the source has them. columns: what is what. space: of what
    the objects have to be; None takes it from them. pinned: where objects live, those that were read first
    under this name are taken ever after, whatever became of them since; "" takes them as they are now.
    """

    path: Path | LivePlace
    ids: Path | None = None
    columns: ObjectColumns = field(default_factory=ObjectColumns)
    space: SpaceSpec | None = None
    pinned: str = ""

    def reading(self) -> str:
        """How the bytes are read, as a text."""
        files = [one for one in (self.path, self.ids) if isinstance(one, Path)]
        endings = [one.name.lower().rpartition(".")[2] for one in files]
        return json.dumps([_READING, endings, asdict(self.columns), self.space and asdict(self.space)])

    def note_name(self) -> str:
        """The note's file: the same for the same path, read the same way."""
        place = self.path.absolute() if isinstance(self.path, Path) else f"{self.path!r}\n{self.pinned}"
        places = f"{place}\n{self.ids and self.ids.absolute()}\n{self.reading()}"
        return f"source-{sha256(places.encode()).hexdigest()[:16]}.json"


Looks = list[list[Any]]
"""Per file of a source its path within it, size, inode, and the times (ns) of its content and its inode."""


def open_catalog(
    source: CatalogSource, folders: Sequence[Path], tell: Tell, *, whole: bool = False
) -> Catalog:
    """The objects of a source: mapped from the binary in the first of `folders` that has one or takes one.

    A pinned source whose binary exists is not opened at all. tell: called with the progress of reading every
    few seconds, and when no folder could be written. whole: look at every byte of the binary too, and make it
    again where one changed; what was computed of its objects and changed since is removed. Raises
    CatalogError, and what else opening a `LivePlace` does.
    """
    looks = _looks(source)
    noted = (_noted(source, folder, looks, whole=whole) for folder in folders)
    catalog = next((one for one in noted if one is not None), None)
    for folder in folders if catalog is None else ():
        try:
            catalog = _kept(source, folder, tell, whole=whole)
            break
        except OSError as error:
            tell(f"{folder}: {error.strerror or error}: objects cannot be kept there")
    if catalog is not None:
        if whole and catalog.binary is not None:
            # processes that have one mapped keep it, and the next one computes it again
            for path in sorted(catalog.binary.parent.glob(f"{catalog.binary.stem}-*.safetensors")):
                if _damaged(path):
                    tell(f"{path}: not as it was written; removed, and computed again when it is needed")
                    with suppress(OSError):
                        path.unlink()
        return catalog
    if folders:
        tell("the objects stay in the memory of this process alone, and are read again at every start")
    progress = ReadingProgress(tell, None)
    if isinstance(source.path, Path):
        return load_catalog(
            source.path, source.space, ids=source.ids, columns=source.columns, each=progress.have
        )
    with source.path.opened(source.columns, source.space, None, tell) as (_, reader):
        return in_memory(reader, source.space, progress.have)


def _kept(source: CatalogSource, folder: Path, tell: Tell, *, whole: bool) -> Catalog:
    """The binary of a source in a folder, made where it is not there. Raises OSError of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, tell):
        remove_temporary(folder)
        for _ in range(2):
            looks, began_ns = _looks(source), time.time_ns()
            catalog = _noted(source, folder, looks, whole=whole)
            if catalog is not None:
                return catalog  # another process was first
            with _opened(source, folder, tell) as (state, opening, lines):
                made_of = sha256("\n".join((state, source.reading())).encode()).hexdigest()
                binary = folder / f"{made_of[:32]}.safetensors"
                if not (whole and _damaged(binary)):
                    catalog = _mapped(binary, source, folder)
                if catalog is None:
                    _make(source, opening(), binary, lines, tell)
                    catalog = _mapped(binary, source, folder)
            if _looks(source) == looks and catalog is not None:
                _write_note(source, folder, looks, binary, began_ns)
                _remove_old(folder, keep=binary)
                return catalog
        raise CatalogError(f"{source.path}: changes while it is read; write it elsewhere and rename it")


@contextmanager
def _opened(
    source: CatalogSource, folder: Path, tell: Tell
) -> Iterator[tuple[str, Callable[[], ObjectReader], int | None]]:
    """What names the state of a source, what opens its reader, and how many lines it has where they are
    objects and were counted."""
    path = source.path
    if isinstance(path, Path):
        digest, lines = _source_digest(source)
        yield digest, lambda: open_objects(path, source.ids, source.columns, source.space), lines
        return
    with path.opened(source.columns, source.space, folder, tell) as (state, reader):
        yield state, lambda: reader, None


def _make(source: CatalogSource, reader: ObjectReader, binary: Path, lines: int | None, tell: Tell) -> None:
    progress = ReadingProgress(tell, reader.rows() or lines)
    batches = _source_errors(source, reader.batches())
    with CatalogWriter(binary.parent, source.space, reader.space) as writer:
        for rows in batches:
            writer.add(rows)
            progress.have(writer.rows)
        if not writer.rows:
            raise CatalogError(f"{source.path}: no objects; there must be one at least")
        try:
            writer.settled_space()
        except CatalogError as error:
            raise CatalogError(f"{source.path}: {error}") from None
        stamp = _stamp(binary)
        with replacing(binary, stamp=stamp) as out:
            writer.write(out, {"stamp": str(stamp)})
    progress.done(writer.rows)


def _mapped(binary: Path, source: CatalogSource, folder: Path) -> Catalog | None:
    """The catalog of a binary; None where it is not there, or not as it was written."""
    try:
        touched = binary.stat().st_mtime_ns
        file = map_catalog(binary)
        if touched != int(file.metadata["stamp"]) * 10**9:
            return None
        catalog = Catalog.mapped(file, source.space or file.space, file.metadata["digest"])
        catalog.binary = binary
    except (OSError, CatalogError, KeyError, ValueError):
        return None
    with suppress(OSError):  # the note's time says when its source was opened last
        os.utime(folder / source.note_name())
    return catalog


def derived_arrays(catalog: Catalog, name: str, make: Callable[[], Arrays], tell: Tell) -> Arrays:
    """Arrays that `make` computes of every object: mapped from a file next to the catalog's binary, which is
    written if it is missing. In memory where the catalog has no binary, or its folder has no room.

    name: of all that they depend on besides the objects, such as a map's id: letters and digits.
    """
    if catalog.binary is None:
        return make()
    path = catalog.binary.with_name(f"{catalog.binary.stem}-{name}.safetensors")
    found = _mapped_arrays(path)
    if found is not None:
        return found
    try:
        with _locked(path.parent, tell):
            found = _mapped_arrays(path)  # another process was first
            if found is None:
                made = make()
                with replacing(path, stamp=_stamp(path)) as out:
                    write_arrays(out, made)
                _remove_derived(path)
                found = _mapped_arrays(path)
                if found is None:
                    return made
            return found
    except OSError as error:
        tell(f"{path.parent}: {error.strerror or error}: what was computed of the objects is not kept there")
        return make()


def _mapped_arrays(path: Path) -> Arrays | None:
    try:
        touched = path.stat().st_mtime_ns
        arrays, _ = map_arrays(path)
    except (OSError, CatalogError):
        return None
    return arrays if touched == _stamp(path) * 10**9 else None


def _stamp(path: Path) -> int:
    """The modification time of a binary, in seconds, some day between 2001 and 2010: a later change to the
    file changes the time too. It is derived from the name, so that the same objects give the same bytes."""
    return 10**9 + int(sha256(path.stem.encode()).hexdigest()[:7], 16)


def _remove_derived(keep: Path) -> None:
    """Of what was computed of the same objects, leave this and what was made before it; under the lock."""
    found: list[tuple[int, Path]] = []
    for path in keep.parent.glob(f"{keep.stem.partition('-')[0]}-*.safetensors"):
        with suppress(OSError):
            found.append((path.stat().st_ctime_ns, path))
    for _, path in sorted(found, reverse=True)[2:]:
        with suppress(OSError):
            path.unlink()


def _damaged(path: Path) -> bool:
    try:
        return path.exists() and not is_whole(path)
    except (OSError, ValueError):
        return True


def _noted(source: CatalogSource, folder: Path, looks: Looks, *, whole: bool) -> Catalog | None:
    """The objects of a source that looks as it did when the note was written; None where they cannot be
    mapped, with `whole` also where a byte of them changed."""
    note = _read_note(folder / source.note_name())
    if note is None or not looks or note["looks"] != looks:
        return None
    binary = folder / note["binary"]
    if whole and _damaged(binary):
        return None
    found = _mapped(binary, source, folder)
    if found is None and source.pinned and binary.exists() and not _damaged(binary):
        with suppress(OSError):  # a copy, put back without its times
            os.utime(binary, (_stamp(binary), _stamp(binary)))
        found = _mapped(binary, source, folder)
    return found


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    plain = isinstance(note, dict) and isinstance(note.get("binary"), str) and "looks" in note
    return note if plain and "/" not in note["binary"] else None


def _write_note(source: CatalogSource, folder: Path, looks: Looks, binary: Path, began_ns: int) -> None:
    newest = max((time_ns for one in looks for time_ns in one[3:]), default=0)
    if newest > began_ns - RACY_SECONDS * 1e9:
        looks = []  # may change without looking any different: next time its bytes decide
    note = {"source": str(source.path), "binary": binary.name, "looks": looks, "pinned": source.pinned}
    with replacing(folder / source.note_name()) as out:
        out.write(json.dumps(note).encode())


def _looks(source: CatalogSource) -> Looks:
    looks: Looks = []
    if not isinstance(source.path, Path):
        return [["as it was first read"]] if source.pinned else looks
    for file in source_files(source.path, source.ids):
        try:
            seen = file.stat()
        except OSError as error:
            raise unreadable(file, error) from None
        looks.append([str(file), seen.st_size, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns])
    return looks


def _source_digest(source: CatalogSource) -> tuple[str, int | None]:
    """SHA-256 over the source's files, and how many lines it has where objects are lines. CatalogError."""
    assert isinstance(source.path, Path)
    digest, lines = sha256(), 0
    counted = source.path.name.lower().endswith((".jsonl", ".csv", ".tsv"))
    for file in source_files(source.path, source.ids):
        try:
            digest.update(f"{file.name}\n{file.stat().st_size}\n".encode())
            with file.open("rb") as opened:
                while piece := opened.read(_CHUNK):
                    digest.update(piece)
                    lines += piece.count(b"\n") if counted else 0
        except OSError as error:
            raise unreadable(file, error) from None
    return digest.hexdigest(), lines or None


def _source_errors(source: CatalogSource, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches; OSError of reading them as CatalogError, so that it is not taken for the folder's."""
    try:
        yield from batches
    except OSError as error:
        raise CatalogError(f"{source.path}: {error.strerror or error}; correct the file") from None


@contextmanager
def _locked(folder: Path, tell: Tell) -> Iterator[None]:
    """Alone among the processes that make binaries in a folder; where it has no locks, not alone."""
    with (folder / "lock").open("ab") as file:
        waited = 0.0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited % TELL_SECONDS < _WAIT_SECONDS and waited >= TELL_SECONDS:
                    tell("another process reads the objects; waiting for it")
                time.sleep(_WAIT_SECONDS)
                waited += _WAIT_SECONDS
            except OSError:
                break  # both make the same bytes
        yield


def _remove_old(folder: Path, keep: Path) -> None:
    """Remove all but the notes opened last, and every binary that no note names; under the lock.

    Those of pinned sources are counted separately: reading other sources never removes one of them. A process
    that has one mapped keeps it until it closes it.
    """
    notes: dict[bool, list[tuple[float, Path, str]]] = {True: [], False: []}
    for path in folder.glob("source-*.json"):
        with suppress(OSError):
            note = _read_note(path) or {"binary": ""}
            notes[bool(note.get("pinned"))].append((path.stat().st_mtime, path, note["binary"]))
    named, gone = {keep.name}, list[Path]()
    for group in notes.values():
        group.sort(reverse=True)
        named |= {binary for _, _, binary in group[:KEPT]}
        gone += [path for _, path, _ in group[KEPT:]]
    made = folder.glob("*.safetensors")
    gone += [one for one in made if f"{one.stem.partition('-')[0]}.safetensors" not in named]
    for path in gone:
        with suppress(OSError):
            path.unlink()


class ReadingProgress:
    """Tells how many objects were read, every few seconds; `what`: where they are no objects yet."""

    def __init__(self, tell: Tell, total: int | None, what: str = "objects") -> None:
        self._tell, self._what, self._of = tell, what, f" of {total:,}" if total else ""
        self._began = self._next = time.monotonic()
        self._next += TELL_SECONDS

    def have(self, count: int) -> None:
        """So many objects were read by now."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_SECONDS
            self._tell(f"reading {self._what} {count:,}{self._of}")

    def done(self, count: int) -> None:
        """All were read: reported if it took long enough that progress was reported before."""
        took = time.monotonic() - self._began
        if took >= TELL_SECONDS:
            self._tell(f"read {count:,} {self._what} in {took:.0f} s; the next start finds them as they are")
