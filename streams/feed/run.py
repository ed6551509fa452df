"""Running a feed: items in, batches of records out, and an account of what became of every item."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from streams.feed.decide import Decider, Decision
from streams.feed.items import FeedError, Placed
from streams.source import OutRecord, Sink


@dataclass(slots=True)
class Account:
    """Counts of one run.

    `read` = `training` + `holdout` + the sum of `dropped`, in impressions (or plain triplets, or malformed
    lines). `triplets` = `from_pairs` + `random_negatives`, in events written to training; a plain triplet is
    a pair. `below`: pairs whose skipped object stood below the click. `pairs` = `from_pairs` +
    `unknown_pairs` (left out because the catalog lacks an object) + `capped_pairs` (left out by
    `triplets_per_impression`): the pairs of the impressions fed to training, and of those held out that arms
    learn, whose triplets are `for_arms`. `ignored` lines are no
    impressions. `no_negative`: random negatives wanted for which no eligible object was found. `drafts`:
    lists with a signed id that were fed, by what became of their draft (`streams.feed.items.PROVED` and the
    two after it).
    """

    read: int = 0
    training: int = 0
    holdout: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    triplets: int = 0
    from_pairs: int = 0
    below: int = 0
    for_arms: int = 0
    random_negatives: int = 0
    no_negative: int = 0
    pairs: int = 0
    unknown_pairs: int = 0
    capped_pairs: int = 0
    drafts: Counter[str] = field(default_factory=Counter)

    def add(self, decision: Decision) -> None:
        """Enter one decision."""
        if decision.fate == "ignored":
            self.ignored[decision.reason] += 1
            return
        self.read += 1
        if decision.draft:
            self.drafts[decision.draft] += 1
        if decision.fate == "dropped":
            self.dropped[decision.reason] += 1
            return
        if decision.fate == "holdout":
            self.holdout += 1
            self.for_arms += len(decision.training)
        else:
            self.training += 1
        made = decision.made
        self.triplets += len(decision.training)
        self.random_negatives += made.negatives
        self.from_pairs += len(made.events) - made.negatives
        self.below += made.below
        self.no_negative += made.no_negative
        self.pairs += made.pairs
        self.unknown_pairs += made.lost_pairs
        self.capped_pairs += made.capped_pairs

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; reasons sorted by name."""
        counts = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: dict(sorted(count.items())) if isinstance(count, Counter) else count
            for name, count in counts.items()
        }


BATCH_RECORDS = 5_000
LINGER_S = 1.0
"""A batch is written when it holds this many records, or when an item comes and it is this old."""

Observe = Callable[[str, Decision], None]


class Outlet(Protocol):
    """The destination of records."""

    def write(self, training: list[OutRecord], holdout: list[OutRecord]) -> None:
        """Write both; durable when it returns."""


class SinkOutlet:
    """Writes to the two topics.  Holdout first: after a failure in between, the batch can be fed again, and
    no list is learned from before it can be seen."""

    def __init__(self, training: Sink, holdout: Sink) -> None:
        self._training, self._holdout = training, holdout

    def write(self, training: list[OutRecord], holdout: list[OutRecord]) -> None:
        """Write both; durable when it returns."""
        if holdout:
            self._holdout.send(holdout)
        if training:
            self._training.send(training)


class NoOutlet:
    """Writes nothing: a dry run."""

    def write(self, training: list[OutRecord], holdout: list[OutRecord]) -> None:
        """Write nothing."""


class FeedRun:
    """One run over some items.

    `committed` is the account of what was durably written (everything decided, in a dry run) and
    `place` the place of its last item, `items` how many items that were, skipped and ignored ones
    included: all stay true when `run` ends by an exception.
    """

    def __init__(
        self,
        decider: Decider,
        outlet: Outlet,
        observe: Observe | None = None,
        shield: Callable[[], AbstractContextManager[object]] = nullcontext,
        skip: int = 0,
    ) -> None:
        """`observe` is called with every decision; `shield` surrounds each write (to hold back signals).

        The first `skip` items are decided, so that caps, duplicates and objects seen are as if they
        had been fed in this run, but neither written nor entered: an earlier run wrote them.
        """
        self.committed, self.place, self.items = Account(), "", 0
        self._decider, self._outlet = decider, outlet
        self._observe, self._shield, self._skip = observe, shield, skip
        self._training: list[OutRecord] = []
        self._holdout: list[OutRecord] = []

    def run(self, source: Iterable[Placed]) -> Account:
        """Feed all items and return the account.

        A FeedError of the reader passes on after what came before it was written; an error of the
        outlet, or an interruption, passes on at once and leaves the batch under way unwritten.
        """
        account = Account()
        items_read, place = 0, ""
        written_at = time.monotonic()
        try:
            for items_read, place, decision in self._decisions(source):
                account.add(decision)
                self._holdout.extend(decision.holdout)
                self._training.extend(decision.training)
                pending = len(self._training) + len(self._holdout)
                if pending >= BATCH_RECORDS or time.monotonic() - written_at >= LINGER_S:
                    self._commit(account, items_read, place)
                    written_at = time.monotonic()
        except FeedError:
            self._commit(account, items_read, place)
            raise
        self._commit(account, items_read, place)
        return self.committed

    def _decisions(self, source: Iterable[Placed]) -> Iterator[tuple[int, str, Decision]]:
        """(items read so far, place, decision) of every item that is not skipped."""
        decide = self._decider.decide
        for number, (place, item) in enumerate(source, start=1):
            decision = decide(item)
            if number <= self._skip:
                continue
            if self._observe is not None:
                self._observe(place, decision)
            yield number, place, decision

    def _commit(self, account: Account, items: int, place: str) -> None:
        with self._shield():
            self._outlet.write(self._training, self._holdout)
            self._training, self._holdout = [], []
            self.committed = deepcopy(account)
            self.items, self.place = items, place
