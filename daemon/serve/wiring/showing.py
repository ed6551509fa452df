"""Objects as people see them: texts and pictures from the serving catalog."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from daemon.serve.items.searching import matching
from daemon.serve.items.snapshot import IndexPart, IndexSnapshot
from daemon.serve.page.images import ImageFolder
from daemon.serve.page.sources import CannotAnswer, Shown
from daemon.serve.wiring.apart import Apart, Busy
from daemon.serve.wiring.live import Live
from streams.items import Display

SEARCH_SECONDS = 2.0
"""Longest search through the texts of all objects; what it has found by then is shown."""
TURN_SECONDS = 3.0
"""Longest wait for another search."""
PAUSE_SECONDS = 0.0005
"""After each slice: the interpreter is left to who answers sooner than it would be taken away."""
TRIES = 4
"""Random rows drawn per object wanted: some are dead."""


class PageObjects:
    """The objects that are served, as people see them. Searching texts is done in `apart`."""

    def __init__(self, live: Live, images: ImageFolder | None, apart: Apart) -> None:
        self._live, self._images, self._apart = live, images, apart

    def count(self) -> int:
        """Objects that are served now."""
        snapshot = self._snapshot()
        return 0 if snapshot is None else len(snapshot)

    def some(self, text: str, most: int) -> Sequence[Shown]:
        """See `sources.Objects`."""
        snapshot = self._snapshot()
        if snapshot is None or not len(snapshot):
            return []
        if not text:
            chosen = drawn(snapshot, most, random.Random())  # noqa: S311  no secret
        else:
            try:
                chosen = self._apart.call(
                    lambda: search(snapshot, text, most), TURN_SECONDS, 2 * SEARCH_SECONDS
                )
            except Busy as busy:
                raise CannotAnswer("busy", f"{busy}; ask again in {busy.seconds:.0f} s") from None
        return [self._shown(snapshot, one) for one in chosen]

    def shown(self, ids: Sequence[str]) -> Sequence[Shown]:
        """One per id, in order."""
        snapshot = self._snapshot()
        return [Shown(one) if snapshot is None else self._shown(snapshot, one) for one in ids]

    def image(self, object_id: str) -> bytes | None:
        """The picture's bytes; None for one without, or outside the folder of pictures."""
        snapshot = self._snapshot()
        display = None if snapshot is None else snapshot.display(object_id)
        if display is None or display.image is None or self._images is None:
            return None
        return self._images.read(display.image)

    def _snapshot(self) -> IndexSnapshot | None:
        opened = self._live.opened
        return None if opened is None else opened.catalog.snapshot()

    def _shown(self, snapshot: IndexSnapshot, object_id: str) -> Shown:
        display = snapshot.display(object_id) or Display()
        text = " - ".join(part for part in (display.title, display.text) if part)
        return Shown(object_id, text, display.image is not None and self._images is not None, display.tags)


def drawn(snapshot: IndexSnapshot, most: int, draw: random.Random) -> list[str]:
    """Ids of at most `most` living objects, in random order; some fewer where many rows are dead."""
    parts = snapshot.parts
    if len(snapshot) <= most:
        rows = ((n, row) for n, part in enumerate(parts) for row in range(len(part)) if _lives(part, row))
        everything = [snapshot.id_at(part, row) for part, row in rows]
        return draw.sample(everything, len(everything))
    chosen: dict[str, None] = {}
    for _ in range(TRIES * most):
        (part,) = draw.choices(range(len(parts)), [len(part) for part in parts])
        row = draw.randrange(len(parts[part]))
        if _lives(parts[part], row):
            chosen[snapshot.id_at(part, row)] = None
        if len(chosen) == most:
            break
    return list(chosen)


def search(snapshot: IndexSnapshot, text: str, most: int) -> list[str]:
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


def _lives(part: IndexPart, row: int) -> bool:
    return part.alive is None or bool(part.alive[row])
