"""A relevance table, `query TAB object TAB count` per line, sampled into triplets.

Rows of one (query, object) add up.  A first line whose third column is no number is a header.  The
triplets carry ids only; their features come from the catalog.  The same table, options and seed give
the same triplets with the same ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from streams import relevance
from streams.event import Event, ObjectRef
from streams.feed import reasons
from streams.feed.inputs import Input, Line
from streams.feed.items import BadItemError, FeedError, Placed
from streams.feed.readers.options import ReaderOptions, RelevanceOptions

CHUNK = 1 << 17


class Table:
    """A relevance table being read: names in order of appearance, counts, a digest of its rows."""

    def __init__(self) -> None:
        self.queries: dict[str, int] = {}
        self.objects: dict[str, int] = {}
        self.digest = blake2b(digest_size=6)
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._counts: list[float] = []

    def add(self, query: str, item: str, count: float) -> None:
        """One row."""
        self._rows.append(self.queries.setdefault(query, len(self.queries)))
        self._columns.append(self.objects.setdefault(item, len(self.objects)))
        self._counts.append(count)
        self.digest.update(f"{query}\t{item}\t{count!r}\n".encode())

    def counts(self) -> sp.csr_matrix:
        """Queries x objects, float64."""
        shape = (len(self.queries), len(self.objects))
        return sp.csr_matrix((self._counts, (self._rows, self._columns)), shape=shape, dtype=np.float64)


def read_relevance(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """The malformed rows, then the sampled Events.  FeedError where nothing can be sampled."""
    table = Table()
    for line in source.lines():
        try:
            query, item, count = _row(line)
        except BadItemError as bad:
            if line.number > 1 or not _is_header(line):
                yield f"{source.name}:{line.number}", bad.dropped()
            continue
        table.add(query, item, count)
    try:
        yield from _sampled(source.name, table, options)
    except relevance.RelevanceError as error:
        raise FeedError(f"{source.name}: {error}", "check the table and the threshold") from None


def _row(line: Line) -> tuple[str, str, float]:
    try:
        cells = (line.data or b"").decode().rstrip("\r\n").split("\t")
        query, item, count = cells[0], cells[1], float(cells[2])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise BadItemError(reasons.BAD_ROW, str(error)) from None
    if len(cells) != 3 or not query or not item or not math.isfinite(count) or count < 0:
        raise BadItemError(reasons.BAD_ROW, f"{len(cells)} columns, count {count}")
    return query, item, count


def _is_header(line: Line) -> bool:
    cells = (line.data or b"").split(b"\t")
    return len(cells) == 3 and cells[2].strip().isalpha()


def _sampled(name: str, table: Table, options: ReaderOptions) -> Iterator[Placed]:
    wanted = options.relevance
    pairs = _pairs(table.counts(), wanted)
    rng = np.random.default_rng(wanted.seed)
    objects = list(table.objects)
    queries = list(table.queries) if wanted.pairs == "queries" else objects
    prefix = f"r-{table.digest.hexdigest()}-{wanted.pairs}-{wanted.seed}"
    for start in range(0, wanted.triplets, CHUNK):
        size = min(CHUNK, wanted.triplets - start)
        drawn = relevance.sample_triplets(pairs, size, rng, same_objects=wanted.pairs != "queries")
        for at, (q, c, s) in enumerate(zip(*(column.tolist() for column in drawn), strict=True), start):
            yield (
                f"{name}:triplet {at}",
                Event(
                    id=f"{prefix}-{at}",
                    ts=options.now_ms,
                    query=ObjectRef(id=queries[q]),
                    clicked=ObjectRef(id=objects[c]),
                    skipped=ObjectRef(id=objects[s]),
                    source=options.source,
                    key=options.key,
                ),
            )


def _pairs(counts: sp.csr_matrix, options: RelevanceOptions) -> sp.csr_matrix:
    if options.pairs == "queries":
        return relevance.query_object_probabilities(counts)
    if options.pairs == "co_click":
        return relevance.co_click_relevance(counts, options.share)
    return relevance.item_relevance(counts, options.theta)
