"""A table of labels, `id TAB label [TAB label ...]` per line, sampled into triplets.

An object may have several labels, in one line or in several. The file is read as a whole, since any two of
its objects may belong together; what is drawn is said in `streams.feed.shared_labels`. Triplets carry ids
only; their features come from the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from streams.feed import items as reasons
from streams.feed.inputs import Input, InputLine
from streams.feed.items import BadItemError, Dropped, FeedError, Ignored, Placed
from streams.feed.options import ReaderOptions
from streams.feed.readers.drawn import drawn_events
from streams.feed.shared_labels import NothingToDraw, SharedLabels

_HEADS = frozenset({"id", "item", "object", "query"})
"""First cells, in any case, of a first line that names columns and is no object."""


class LabelTable:
    """A table of labels being read: objects and labels in order of appearance, a digest of its lines."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.places: list[str] = []
        """Where each object came first."""
        self.digest = blake2b(digest_size=6)
        self._labels: dict[str, int] = {}
        self._pairs: list[tuple[int, int]] = []

    def add(self, place: str, name: str, labels: list[str]) -> None:
        """Add one line."""
        at = self.objects.setdefault(name, len(self.objects))
        if at == len(self.places):
            self.places.append(place)
        self._pairs += [(self._labels.setdefault(one, len(self._labels)), at) for one in labels]
        self.digest.update("\t".join([name, *labels, "\n"]).encode())

    def shared(self) -> SharedLabels:
        """Labels x objects; a label that is repeated counts once."""
        rows, columns = np.array(self._pairs or np.empty((0, 2)), np.int64).T
        shape = len(self._labels), len(self.objects)
        table = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        table.data[:] = 1.0
        return SharedLabels(table)


def read_labels(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """What is wrong with lines, the objects that cannot be queries, then the sampled Events.

    FeedError where nothing can be sampled.
    """
    table = LabelTable()
    for line in source.lines():
        place = f"{source.name}:{line.number}"
        try:
            name, labels = _row(line)
        except BadItemError as bad:
            yield place, bad.dropped()
            continue
        if line.number == 1 and name.lower() in _HEADS:
            continue
        if options.known is not None and name not in options.known:
            yield place, Dropped(reasons.UNKNOWN_OBJECT, f"{name[:80]!r} is not in the catalog")
        elif not labels:
            yield place, Dropped(reasons.NO_LABEL, f"{name[:80]!r}")
        else:
            table.add(place, name, labels)
    shared = table.shared()
    yield from _alone(table, shared)
    yield from _sampled(source.name, table, shared, options)


def _row(line: InputLine) -> tuple[str, list[str]]:
    if line.data is None:
        raise BadItemError(reasons.TOO_LONG, "")
    try:
        name, *cells = line.data.decode().rstrip("\r\n").split("\t")
    except UnicodeDecodeError as error:
        raise BadItemError(reasons.NOT_UTF8, f"byte {error.start} is not UTF-8") from None
    if not name.strip():
        raise BadItemError(reasons.BAD_LABELS, "the id is empty")
    return name, [cell.strip() for cell in cells if cell.strip()]


def _alone(table: LabelTable, shared: SharedLabels) -> Iterator[Placed]:
    """The objects that can be no query: they are skipped ones for others."""
    names = list(table.objects)
    for at in np.flatnonzero(~shared.usable).tolist():
        lone = not shared.has_partner[at]
        yield (
            table.places[at],
            Ignored(reasons.NO_PARTNER if lone else reasons.NO_REST, f"{names[at][:80]!r}"),
        )


def _sampled(name: str, table: LabelTable, shared: SharedLabels, options: ReaderOptions) -> Iterator[Placed]:
    seed = options.relevance.seed
    rng = np.random.default_rng(seed)
    names = list(table.objects)
    prefix = f"l-{table.digest.hexdigest()}-{seed}"
    try:
        yield from drawn_events(lambda count: shared.draw(count, rng), name, prefix, (names, names), options)
    except NothingToDraw as error:
        raise FeedError(
            f"{name}: {error}; nothing can be drawn from {len(names):,} objects",
            "a line is id TAB label [TAB label ...]; give two labels or more, and one to several objects",
        ) from None
