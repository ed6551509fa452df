"""Triplets that are drawn from a whole table, as Events that are the same whenever they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streams.event import Event, ObjectRef
from streams.feed.items import Placed
from streams.feed.options import ReaderOptions
from streams.feed.shared_labels import DrawnTriplets

CHUNK = 1 << 14
"""So many are drawn at a time, also where fewer are wanted: more triplets begin with the same ones, and an id
names one triplet."""


def drawn_events(
    draw: Callable[[int], DrawnTriplets],
    source: str,
    prefix: str,
    names: tuple[Sequence[str], Sequence[str]],
    options: ReaderOptions,
) -> Iterator[Placed]:
    """As many as the options want. draw: count -> triplets of numbers; source: what messages call the table;
    prefix: what ids begin with; names: of queries, and of objects. What `draw` raises passes on."""
    queries, objects = names
    wanted = options.relevance.triplets
    for start in range(0, wanted, CHUNK):
        columns = (column[: wanted - start].tolist() for column in draw(CHUNK))
        for at, (q, c, s) in enumerate(zip(*columns, strict=True), start):
            event = Event(
                id=f"{prefix}-{at}",
                ts=options.now_ms,
                query=ObjectRef(id=queries[q]),
                clicked=ObjectRef(id=objects[c]),
                skipped=ObjectRef(id=objects[s]),
                source=options.source,
                key=options.key,
            )
            yield f"{source}:triplet {at}", event
