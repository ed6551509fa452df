"""Objects as people see them: texts and pictures from the serving catalog, and the search through texts."""

from __future__ import annotations

import heapq
import os
import random
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from daemon.serve.http.offload import LowPriorityExecutor
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from daemon.serve.live import Live
from streams.ids import Packed
from streams.items import Display

SLICE = 1024
"""Rows looked through in one go: some 50 microseconds, in which no other Python code runs."""
SLICE_BY_ROW = 64
"""The same where each row has to be unpacked."""


def matching(snapshot: IndexSnapshot, text: str) -> Iterator[str | None]:
    """Ids of living objects whose id, title or text contains `text`, some of them twice; and None after each
    slice, so that the caller can rest or stop.

    Any case: ASCII is looked for in the bytes as they are; another text has every object unpacked, which is
    a hundred times slower, and compared casefolded.
    """
    wanted = text.casefold()
    for number, part in enumerate(snapshot.parts):
        for rows in _candidates((part.ids.packed, part.texts), wanted):
            for row in rows:
                if _is_alive(part, row) and _says(part.ids[row], snapshot.display_at(number, row), wanted):
                    yield part.ids[row]
            yield None
    ids, packed = snapshot.shown.ids, snapshot.shown.packed
    for rows in _candidates((packed,), wanted):
        for row in rows:
            display = snapshot.display(ids[row])
            if display is not None and _says("", display, wanted):
                yield ids[row]
        yield None


def _candidates(columns: Sequence[Packed], wanted: str) -> Iterator[Sequence[int]]:
    """Rows that may contain the text, ascending, little by little; all where the bytes cannot tell."""
    rows = len(columns[0])
    if not (wanted and wanted.isascii()):
        for start in range(0, rows, SLICE_BY_ROW):
            yield range(start, min(start + SLICE_BY_ROW, rows))
        return
    for start in range(0, rows, SLICE):
        stop = min(start + SLICE, rows)
        found = sorted(
            {row for column in columns for row in _containing(column, start, stop, wanted.encode())}
        )
        for at in range(0, max(len(found), 1), SLICE_BY_ROW):
            yield found[at : at + SLICE_BY_ROW]


def _containing(column: Packed, start: int, stop: int, wanted: bytes) -> Iterator[int]:
    offset = int(column.bounds[start])
    text = column.data[offset : int(column.bounds[stop])].tobytes().lower()
    at = text.find(wanted)
    while at >= 0:
        row = int(np.searchsorted(column.bounds, offset + at, side="right")) - 1
        yield row
        at = text.find(wanted, max(at + 1, int(column.bounds[row + 1]) - offset))


def _is_alive(part: IndexPart, row: int) -> bool:
    return part.alive is None or bool(part.alive[row])


def _says(object_id: str, display: Display, wanted: str) -> bool:
    shown = (object_id, display.title or "", display.text or "")
    return any(wanted in one.casefold() for one in shown)


MOST_BYTES = 8 << 20

_KINDS = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def kind_of(body: bytes) -> str | None:
    """The content type that the first bytes tell; None for what is no plain picture (an SVG runs code)."""
    for head, kind in _KINDS:
        if body.startswith(head):
            return kind
    return "image/webp" if body[:4] == b"RIFF" and body[8:12] == b"WEBP" else None


@dataclass(frozen=True, slots=True)
class ShownObject:
    """What people see of an object: any of a title or text, a picture by `has_image`, tags."""

    id: str
    text: str = ""
    has_image: bool = False
    tags: tuple[str, ...] = ()


class ImageFolder:
    """Pictures below one folder, by paths relative to it (or absolute and inside it)."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def read(self, path: str) -> bytes | None:
        """The picture's bytes.

        None for a path that leaves the folder (also by a link), that is no regular file, is larger than
        `MOST_BYTES`, or holds no picture; and for one that is not there.
        """
        try:
            place = (self._root / path).resolve()
            if not place.is_relative_to(self._root):
                return None
            # Without waiting for the other end of a pipe, should somebody have put one there.
            flags = os.O_NONBLOCK | os.O_NOFOLLOW
            with open(place, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
                    return None
                body = file.read(MOST_BYTES)
        except (OSError, ValueError, RuntimeError):
            return None
        return body if kind_of(body) else None


SEARCH_SECONDS = 2.0
"""Longest search through the texts of all objects; what it has found by then is shown."""
TURN_SECONDS = 3.0
"""Longest wait for another search."""
PAUSE_SECONDS = 0.0005
"""Sleep after each slice, so that the search thread gets the GIL before the switch interval expires."""
TRIES = 4
"""Random rows drawn per object wanted: some are dead."""


class PageObjects:
    """The objects that are served, as people see them. Texts are searched in `executor`."""

    def __init__(self, live: Live, images: ImageFolder | None, executor: LowPriorityExecutor) -> None:
        self._live, self._images, self._executor = live, images, executor

    def count(self) -> int:
        """Objects that are served now."""
        snapshot = self._snapshot()
        return 0 if snapshot is None else len(snapshot)

    def some(self, text: str, most: int) -> Sequence[ShownObject]:
        """At most `most` objects whose id or text contains `text` (any case); drawn at random for "".

        Raises Busy.
        """
        snapshot = self._snapshot()
        if snapshot is None or not len(snapshot):
            return []
        if not text:
            chosen = sample_ids(snapshot, most, random.Random())  # noqa: S311  no secret
        else:
            chosen = self._executor.call(
                lambda: search_texts(snapshot, text, most), TURN_SECONDS, 2 * SEARCH_SECONDS
            )
        return [self._shown(snapshot, one) for one in chosen]

    def shown(self, ids: Sequence[str]) -> Sequence[ShownObject]:
        """One per id, in order."""
        snapshot = self._snapshot()
        return [ShownObject(one) if snapshot is None else self._shown(snapshot, one) for one in ids]

    def image(self, object_id: str) -> bytes | None:
        """The picture's bytes; None for one without, or outside the folder of pictures."""
        snapshot = self._snapshot()
        display = None if snapshot is None else snapshot.display(object_id)
        if display is None or display.image is None or self._images is None:
            return None
        return self._images.read(display.image)

    def _snapshot(self) -> IndexSnapshot | None:
        opened = self._live.opened
        return None if opened is None else opened.catalog.current

    def _shown(self, snapshot: IndexSnapshot, object_id: str) -> ShownObject:
        display = snapshot.display(object_id) or Display()
        text = " - ".join(part for part in (display.title, display.text) if part)
        return ShownObject(
            object_id, text, display.image is not None and self._images is not None, display.tags
        )


def sample_ids(snapshot: IndexSnapshot, most: int, draw: random.Random) -> list[str]:
    """Ids of at most `most` living objects, in random order; some fewer where many rows are dead."""
    parts = snapshot.parts
    if len(snapshot) <= most:
        rows = ((n, row) for n, part in enumerate(parts) for row in range(len(part)) if _is_alive(part, row))
        everything = [snapshot.id_at(part, row) for part, row in rows]
        return draw.sample(everything, len(everything))
    chosen: dict[str, None] = {}
    for _ in range(TRIES * most):
        (part,) = draw.choices(range(len(parts)), [len(part) for part in parts])
        row = draw.randrange(len(parts[part]))
        if _is_alive(parts[part], row):
            chosen[snapshot.id_at(part, row)] = None
        if len(chosen) == most:
            break
    return list(chosen)


def seeded_ids(snapshot: IndexSnapshot, most: int, seed: int) -> list[str]:
    """Ids of at most `most` living objects, drawn by `seed`: those whose hash is smallest, in that order. The
    same objects give the same ids, in whatever order they lie. It rests as `matching` lets its caller."""

    def hashed() -> Iterator[tuple[int, str]]:
        for number, part in enumerate(snapshot.parts):
            for row in range(len(part)):
                if row % SLICE_BY_ROW == 0:
                    time.sleep(PAUSE_SECONDS)
                if _is_alive(part, row):
                    one = snapshot.id_at(number, row)
                    yield xxhash.xxh3_64_intdigest(one.encode("utf-8", "surrogatepass"), seed), one

    return [one for _, one in heapq.nsmallest(most, hashed())]


def search_texts(snapshot: IndexSnapshot, text: str, most: int) -> list[str]:
    """Ids of at most `most` living objects whose id or shown text contains `text`, any case; the very id
    first. It stops after SEARCH_SECONDS with what it has.
    """
    found: dict[str, None] = {}
    if snapshot.find(text) is not None:
        found[text] = None
    until = time.monotonic() + SEARCH_SECONDS
    for object_id in matching(snapshot, text):
        if object_id is not None:
            found[object_id] = None
        elif time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
            continue
        if object_id is None or len(found) >= most:
            break
    return list(found)
