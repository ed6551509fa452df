"""What changed between two versions, for the page: made one at a time, off every path, and kept."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from daemon.exits import UserError
from daemon.models.compare import CompareOptions, diff_of, form_of_key, matrix_of, what_is_compared
from daemon.models.diff import Diff, K, Queries, moved_queries
from daemon.replica.status import NotServing
from daemon.replica.view import View
from daemon.serve.page.sources import CannotAnswer
from daemon.serve.query import Query, Refused
from daemon.serve.wiring.apart import Allowance, Apart, Busy
from daemon.serve.wiring.exploring import busy_of, opened_of
from daemon.serve.wiring.live import Live, Opened
from daemon.serve.wiring.showing import drawn
from learners.block import Int64s
from learners.errors import LearnerError

ASKED = CompareOptions(entries=12, directions=4, queries=100, moved=12)
KEPT = 8
PASS = 16
"""Queries that share one pass over the items."""

Pair = tuple[int, int]


class PageComparer:
    """See `sources.Comparer`: in a thread of its own, within `allowance`; the newest KEPT ones are kept.

    Versions never change, so what was told of two stays right but for the objects, which come and go.
    """

    def __init__(self, live: Live, allowance: Allowance) -> None:
        self._live, self._allowance = live, allowance
        self._apart = Apart("tripletd-comparing", waiting=1)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Pair, Diff] = OrderedDict()
        self._running: tuple[Pair, Future[Diff]] | None = None

    def difference(self, before: int, after: int) -> Diff | None:
        """See `sources.Comparer`."""
        pair = before, after
        with self._lock:
            self._settle(pair)
            if pair in self._kept:
                self._kept.move_to_end(pair)
                return self._kept[pair]
            if self._running is None:
                opened = opened_of(self._live)
                self._running = pair, self._apart.start(lambda: self._made(opened, pair))
            elif self._running[0] != pair:
                raise CannotAnswer("busy", "two other versions are being compared; ask again in a moment")
        return None

    def _settle(self, pair: Pair) -> None:
        """Keep what has come to its end; raises what it ended with for those who ask for it."""
        if self._running is None or not self._running[1].done():
            return
        (made, future), self._running = self._running, None
        error = future.exception()
        if error is None:
            self._kept[made] = future.result()
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        elif made == pair:
            raise error

    def _made(self, opened: Opened, pair: Pair) -> Diff:
        try:
            with (
                self._allowance.spending(),
                opened.explorer.read_state(pair[0]) as (old, A),
                opened.explorer.read_state(pair[1]) as (new, B),
            ):
                form_of_key(old.form, pair[0], None)  # many models are not compared at once
                queries = _queries(opened, old, new)
                matrices = (
                    matrix_of(A, lambda: old.form, pair[0]),
                    matrix_of(B, lambda: new.form, pair[1]),
                )
                left_out = what_is_compared(A, matrices)
                return diff_of(pair, matrices, opened.fitted, asked=ASKED, queries=queries, skipped=left_out)
        except Busy as busy:
            raise busy_of(busy) from None
        except NotServing as error:
            raise CannotAnswer("not_serving", str(error)) from None
        except Refused as refused:
            raise CannotAnswer(refused.code, str(refused)) from None
        except UserError as error:
            raise CannotAnswer("cannot_compare", str(error)) from None
        except LearnerError as error:
            raise CannotAnswer("cannot_compare", str(error)) from None


def _queries(opened: Opened, old: View, new: View) -> Queries | None:
    """How the nearest objects of a sample of what is served moved; None where nothing is served."""
    snapshot = opened.catalog.snapshot()
    ids = sorted(drawn(snapshot, ASKED.queries, random.Random(ASKED.seed)))  # noqa: S311  no secret
    if not ids:
        return None
    numbers: dict[str, int] = {}
    rows = np.array([numbers.setdefault(one, len(numbers)) for one in ids], np.int64)
    lists = [_nearest(opened, view, ids, numbers) for view in (old, new)]
    known = list(numbers)
    return moved_queries(known, rows, (lists[0], lists[1]), ASKED.seed, ASKED.moved)


def _nearest(opened: Opened, view: View, ids: Sequence[str], numbers: dict[str, int]) -> Int64s:
    """The K nearest objects of each, as their numbers, int64 [len(ids), K]; -1 where there are fewer."""
    found = np.full((len(ids), K), -1, np.int64)
    for start in range(0, len(ids), PASS):
        asked = [Query(id=one, k=K) for one in ids[start : start + PASS]]
        for at, hits in enumerate(opened.searcher.search_view(view, asked).results, start):
            if isinstance(hits, Refused):
                continue  # removed meanwhile: it has no neighbours in either list
            found[at, : len(hits)] = [numbers.setdefault(hit.id, len(numbers)) for hit in hits]
    return found
