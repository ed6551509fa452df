"""A relevance table, `query TAB object TAB count` per line, sampled into triplets.

A table `R >= 0` says how often each object was found relevant for each text query, for example its
clicks. From it come item-item relevances and, by sampling, triplets (Chechik et al., JMLR 11 (2010),
sections 2.3 and 5.2.1; the co-click variant is that of the same authors' NIPS 2009 paper, section 4.1).

Rows of one (query, object) add up. A first line whose third column is no number is a header. The triplets
carry ids only; their features come from the catalog.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from streams.feed import items as reasons
from streams.feed.inputs import Input, InputLine
from streams.feed.items import BadItemError, FeedError, Placed
from streams.feed.options import ReaderOptions, RelevanceOptions
from streams.feed.readers.drawn import drawn_events
from streams.feed.shared_labels import DrawnTriplets, NothingToDraw, SharedLabels, drawn_entries

ROW_BLOCK = 256
"""Object rows worked on at a time: memory is bounded by what this many objects are related to."""

REJECTION_ROUNDS = 64
"""Rounds of redrawing negatives before the few rows left are drawn from their exact complement."""

IntArray = npt.NDArray[np.int64]


def query_object_probabilities(counts: sp.csr_matrix) -> sp.csr_matrix:
    """Pr(q, p) = R(q, p) / sum R, float64 of the shape of `counts`.

    Raises NothingToDraw for negative or non-finite counts and for a table of zeros.
    """
    table = sp.csr_matrix(counts, dtype=np.float64, copy=True)
    table.sum_duplicates()
    table.eliminate_zeros()
    if not np.isfinite(table.data).all() or (table.data < 0).any():
        raise NothingToDraw("the relevance table holds a negative or non-finite count; counts are >= 0")
    total = table.data.sum()
    if total <= 0:
        raise NothingToDraw("the relevance table is empty or holds zeros only; give at least one count")
    table.data /= total
    return table


def item_relevance(counts: sp.csr_matrix, theta: float = 0.0, block: int = ROW_BLOCK) -> sp.csr_matrix:
    """R_II(a, b) = sum_q Pr(a|q) Pr(b|q) Pr(q), kept where > theta; a = b is left out.

    Objects are taken a block of rows at a time and only the queries that hold one of them are walked
    (JMLR 2010, eq. 20 and the paragraph after it), so the full object x object matrix never exists.
    Returns a symmetric float64 CSR matrix, objects x objects.
    """
    joint = query_object_probabilities(counts)
    query_mass = np.asarray(joint.sum(axis=1)).ravel()
    # Pr(a|q) Pr(b|q) Pr(q) = Pr(q,a) Pr(q,b) / Pr(q); a query without any count adds nothing.
    inverse = np.divide(1.0, query_mass, out=np.zeros_like(query_mass), where=query_mass > 0)
    scaled = sp.csr_matrix(sp.diags_array(inverse) @ joint)
    rows = [_kept(piece, theta) for piece in _row_blocks(joint, scaled, block)]
    return sp.csr_matrix(sp.vstack(rows, format="csr"))


def co_click_relevance(counts: sp.csr_matrix, share: float = 0.01, block: int = ROW_BLOCK) -> sp.csr_matrix:
    """The entries of C^T C (C the counts) among the `share` largest of its non-zero pairs, a != b.

    Entries equal to the smallest one kept are kept too, so the result does not depend on the block
    size and stays symmetric.  Two passes over blocks of rows: one finds the cut, one keeps what
    reaches it.  Memory: the kept share plus one block.  Returns float64 CSR, objects x objects.
    """
    if not 0.0 < share <= 1.0:
        raise NothingToDraw(f"the share of pairs to keep is {share}; give a number in (0, 1]")
    query_object_probabilities(counts)
    table = sp.csr_matrix(counts, dtype=np.float64)
    total = sum(piece.nnz for piece in _row_blocks(table, table, block))
    keep = max(1, int(np.ceil(share * total)))
    largest = np.empty(0)
    for piece in _row_blocks(table, table, block):
        merged = np.concatenate([largest, piece.data])
        largest = merged if len(merged) <= keep else np.partition(merged, len(merged) - keep)[-keep:]
    cut = largest.min() if len(largest) else np.inf
    rows = [_kept(piece, np.nextafter(cut, -np.inf)) for piece in _row_blocks(table, table, block)]
    return sp.csr_matrix(sp.vstack(rows, format="csr"))


def _row_blocks(left: sp.csr_matrix, right: sp.csr_matrix, block: int) -> Iterator[sp.csr_matrix]:
    """Blocks of rows of left^T right without its diagonal, in order."""
    transposed = sp.csr_matrix(left.T)
    for start in range(0, transposed.shape[0], block):
        piece = sp.coo_matrix(transposed[start : start + block] @ right)
        off = (piece.row + start) != piece.col
        cleaned = sp.csr_matrix((piece.data[off], (piece.row[off], piece.col[off])), shape=piece.shape)
        cleaned.eliminate_zeros()
        yield cleaned


def _kept(piece: sp.csr_matrix, above: float) -> sp.csr_matrix:
    coo = sp.coo_matrix(piece)
    keep = coo.data > above
    return sp.csr_matrix((coo.data[keep], (coo.row[keep], coo.col[keep])), shape=coo.shape)


def sample_triplets(
    relevance: sp.csr_matrix, count: int, rng: np.random.Generator, same_objects: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Draw `count` triplets (query row, clicked column, skipped column), int64 arrays.

    (query, clicked) has probability proportional to its relevance; skipped is uniform over the columns
    whose relevance for that query is zero (JMLR 2010, section 2.3).  `same_objects`: rows and columns
    are the same objects, so a row is never its own skipped object.  Rows to which every column is
    relevant have no skipped object and are never drawn.  Raises NothingToDraw where no row is left.
    """
    table = sp.csr_matrix(relevance, dtype=np.float64, copy=True)
    table.sum_duplicates()
    table.eliminate_zeros()
    columns = table.shape[1]
    related = np.repeat(np.arange(table.shape[0], dtype=np.int64), np.diff(table.indptr))
    candidates = columns - np.diff(table.indptr) - (1 if same_objects else 0)
    picked = drawn_entries(np.where(candidates[related] > 0, table.data, 0.0), count, rng)
    query, clicked = related[picked], table.indices[picked].astype(np.int64)
    return query, clicked, _draw_non_relevant(table, related, query, rng, same_objects)


def _draw_non_relevant(
    table: sp.csr_matrix, related: IntArray, query: IntArray, rng: np.random.Generator, same_objects: bool
) -> IntArray:
    """One uniform non-relevant column per query row, by rejection, then exactly for what is left."""
    columns = table.shape[1]
    keys = related * columns + table.indices
    skipped = np.empty(len(query), dtype=np.int64)
    open_rows = np.arange(len(query))
    for _ in range(REJECTION_ROUNDS):
        drawn = rng.integers(0, columns, size=len(open_rows))
        wanted = query[open_rows] * columns + drawn
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        refused = keys[at] == wanted
        if same_objects:
            refused |= drawn == query[open_rows]
        skipped[open_rows[~refused]] = drawn[~refused]
        open_rows = open_rows[refused]
        if not len(open_rows):
            return skipped
    for row in open_rows:
        q = query[row]
        free = np.ones(columns, dtype=bool)
        free[table.indices[table.indptr[q] : table.indptr[q + 1]]] = False
        if same_objects:
            free[q] = False
        skipped[row] = rng.choice(np.flatnonzero(free))
    return skipped


class RelevanceTable:
    """A relevance table being read: names in order of appearance, counts, a digest of its rows."""

    def __init__(self) -> None:
        self.queries: dict[str, int] = {}
        self.objects: dict[str, int] = {}
        self.digest = blake2b(digest_size=6)
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._counts: list[float] = []

    def add(self, query: str, item: str, count: float) -> None:
        """Add one row."""
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
    table = RelevanceTable()
    for line in source.lines():
        try:
            query, item, count = _row(line)
        except BadItemError as bad:
            cells = (line.data or b"").split(b"\t")
            if line.number > 1 or len(cells) != 3 or not cells[2].strip().isalpha():  # else a header
                yield f"{source.name}:{line.number}", bad.dropped()
            continue
        table.add(query, item, count)
    try:
        yield from _sampled(source.name, table, options)
    except NothingToDraw as error:
        raise FeedError(f"{source.name}: {error}", "check the table and the threshold") from None


def _row(line: InputLine) -> tuple[str, str, float]:
    try:
        cells = (line.data or b"").decode().rstrip("\r\n").split("\t")
        query, item, count = cells[0], cells[1], float(cells[2])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise BadItemError(reasons.BAD_ROW, str(error)) from None
    if len(cells) != 3 or not query or not item or not math.isfinite(count) or count < 0:
        raise BadItemError(reasons.BAD_ROW, f"{len(cells)} columns, count {count}")
    return query, item, count


def _sampled(name: str, table: RelevanceTable, options: ReaderOptions) -> Iterator[Placed]:
    wanted = options.relevance
    rng = np.random.default_rng(wanted.seed)
    objects = list(table.objects)
    queries = list(table.queries) if wanted.pairs == "queries" else objects
    prefix = f"r-{table.digest.hexdigest()}-{wanted.pairs}-{wanted.seed}"
    return drawn_events(_draw(table.counts(), wanted, rng), name, prefix, (queries, objects), options)


def _draw(
    counts: sp.csr_matrix, options: RelevanceOptions, rng: np.random.Generator
) -> Callable[[int], DrawnTriplets]:
    """What draws so many triplets. Raises NothingToDraw, and so does what it returns."""
    if options.pairs == "items" and not options.theta:
        shared = SharedLabels(query_object_probabilities(counts))
        return lambda count: shared.draw_by_relevance(count, rng)
    if options.pairs == "queries":
        pairs = query_object_probabilities(counts)
    elif options.pairs == "co_click":
        pairs = co_click_relevance(counts, options.share)
    else:
        pairs = item_relevance(counts, options.theta)
    return lambda count: sample_triplets(pairs, count, rng, same_objects=options.pairs != "queries")
