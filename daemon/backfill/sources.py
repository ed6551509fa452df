"""What is given to a backfill, as units: files, folders, patterns, object stores, and logs."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from xxhash import xxh3_128

from daemon.backfill.blocks import LocalFiles
from daemon.backfill.plan import Unit
from daemon.exits import EX_UNAVAILABLE, EX_USAGE, UserError
from streams.errors import AddressError
from streams.open import open_source
from streams.source import Address

CHUNK = 1 << 20
LOGS = ("log:", "kafka:")


Reach = Callable[[str], Address]
"""An address of a log with how it is reached, as [stream.kafka] says. Raises AddressError."""


def units_of(
    sources: Sequence[str], reach: Reach, tell: Callable[[str], None] = lambda _: None
) -> list[Unit]:
    """The units, in the order given, a pattern's sorted by name. tell: hears what is being read, for its
    digest. Raises UserError for what is not there, or given twice."""
    found = [unit for source in sources for unit in _of(source, reach, tell)]
    seen: set[str] = set()
    for unit in found:
        if unit.name in seen:
            raise UserError(f"{unit.name} is given twice", "name it once", EX_USAGE)
        seen.add(unit.name)
    return found


def units_to_learn(sources: Sequence[str], reach: Reach, note: Callable[[str], None]) -> list[Unit]:
    """At least one unit; note: hears in words what is being read. Raises UserError."""
    units = units_of(sources, reach, lambda name: note(f"reading {name} for its digest"))
    if not units:
        raise UserError("there is nothing to read", "name files, folders or a log with records", EX_USAGE)
    return units


def _of(source: str, reach: Reach, tell: Callable[[str], None]) -> Iterator[Unit]:
    if source.startswith(LOGS):
        yield from _of_log(source, reach)
    elif "://" in source:
        tell(source)
        yield _of_files(source, [source])
    else:
        for name in sorted(glob.glob(source)) or [source]:
            tell(name)
            yield _of_files(name, _files_in(name))


def _files_in(name: str) -> list[str]:
    path = Path(name)
    if not path.is_dir():
        return [name]
    files = sorted(
        str(one) for one in path.iterdir() if one.is_file() and not one.name.startswith((".", "_"))
    )
    if not files:
        raise UserError(f"{name}: the folder holds no file", "name a folder with click logs", EX_UNAVAILABLE)
    return files


def _of_files(name: str, paths: Sequence[str]) -> Unit:
    digest, size, local = xxh3_128(), 0, LocalFiles()
    try:
        for path in local.of(paths):
            for part in _parts(path):
                size += len(part)
                digest.update(part)
            digest.update(b"\0")
    finally:
        local.close()
    return Unit(name, tuple(paths), size, digest.hexdigest())


def _parts(path: str) -> Iterable[bytes]:
    try:
        with open(path, "rb") as file:
            while part := file.read(CHUNK):
                yield part
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror or error}", "correct the name, or look at the file", EX_UNAVAILABLE
        ) from None


def _of_log(source: str, reach: Reach) -> Iterator[Unit]:
    try:
        address = reach(source)
    except AddressError as error:
        raise UserError(str(error), "correct the address", EX_USAGE) from None
    with closing(open_source(address)) as log:
        topic = log.identity().topic_id
        for partition, (start, stop) in sorted(log.bounds().items()):
            if stop > start:
                yield Unit(f"{source}#{partition}", (), stop - start, topic, partition, start, stop)
