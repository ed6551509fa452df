"""What `tripletd feed` tells on stderr: progress, what was dropped and where, the account."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rich.markup import escape

from streams.feed.decide import Decision
from streams.feed.items import remedy
from streams.feed.run import Account

if TYPE_CHECKING:
    from rich.console import Console

EXPLAINED_PER_REASON = 10
"""Places shown per reason, so that a frequent reason never hides a rare one."""

UPDATE_EVERY = 2_000
"""Items between two updates of the progress line."""

_SECONDS_END_MS = 10_000_000_000
"""Seconds since 1970 are below this number until the year 2286; as milliseconds it is April 1970."""


def stderr_console() -> Console:
    """A console on stderr: plain when it is no terminal or NO_COLOR is set."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False)


class FeedReport:
    """Follows a run decision by decision; `progress` is a line rewritten in place on a terminal."""

    def __init__(self, console: Console, explain: bool) -> None:
        self._console, self._explain = console, explain
        self._shown: Counter[str] = Counter()
        self._items = 0
        self._as_of_1970 = 0
        self._started = time.monotonic()
        self._status = console.status("reading") if console.is_terminal else None

    def __enter__(self) -> FeedReport:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def observe(self, place: str, decision: Decision) -> None:
        """Take one decision in."""
        self._items += 1
        made = decision.records[0].timestamp if decision.records else None
        self._as_of_1970 += made is not None and made < _SECONDS_END_MS
        if self._status is not None and self._items % UPDATE_EVERY == 0:
            rate = self._items / max(1e-9, time.monotonic() - self._started)
            self._status.update(escape(f"{self._items:,} read, {rate:,.0f}/s, at {place}"))
        if self._explain and decision.reason:
            self._place(place, decision)

    def _place(self, place: str, decision: Decision) -> None:
        reason = decision.reason
        self._shown[reason] += 1
        if self._shown[reason] <= EXPLAINED_PER_REASON:
            self._say(f"{place}: {decision.fate}, {reason}: {decision.detail}")
            if self._shown[reason] == 1 and remedy(reason):
                self._say(f"    {remedy(reason)}")
        elif self._shown[reason] == EXPLAINED_PER_REASON + 1:
            self._say(f"    ... more with {reason} are counted below, not shown")

    def summary(self, account: Account, dry_run: bool) -> None:
        """The account: a line or two, as a table with --explain."""
        if self._explain:
            self._table(account)
        seconds = max(1e-9, time.monotonic() - self._started)
        fed = "would be fed" if dry_run else "fed"
        self._say(
            f"{account.read:,} read: {account.training:,} {fed} to training, {account.holdout:,} to holdout, "
            f"{sum(account.dropped.values()):,} dropped"
        )
        capped = f" ({account.capped_pairs:,} more pairs capped)" if account.capped_pairs else ""
        self._say(
            f"{account.triplets:,} triplets, {account.random_negatives:,} of them with a random negative"
            f"{capped}; {seconds:.1f} s, {account.triplets / seconds:,.0f} triplets/s"
        )
        if account.dropped and not self._explain:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in account.dropped.most_common())
            self._say(f"dropped: {reasons} (--explain shows where and what to do)")
        if self._as_of_1970:
            self._say(
                f"{self._as_of_1970:,} kept ones have times in early 1970: are those seconds? "
                "Write milliseconds or ISO 8601, for retention goes by them"
            )

    def note(self, text: str) -> None:
        """A line worth knowing."""
        self._say(text)

    def _table(self, account: Account) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Impressions and what became of them", title_justify="left")
        table.add_column("fate", no_wrap=True)
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column("share", justify="right", no_wrap=True)
        table.add_column("what to do")
        rows = [("training", account.training), ("holdout", account.holdout)]
        for name, count in rows:
            table.add_row(f"fed to {name}", f"{count:,}", _share(count, account.read), "")
        for reason, count in account.dropped.most_common():
            advice = Text(remedy(reason))
            table.add_row(Text(f"dropped: {reason}"), f"{count:,}", _share(count, account.read), advice)
        table.add_row("read", f"{account.read:,}", _share(account.read, account.read), "", end_section=True)
        for reason, count in account.ignored.most_common():
            table.add_row(Text(f"ignored: {reason}"), f"{count:,}", "", Text(remedy(reason)))
        if account.no_negative:
            advice = Text("no eligible object to draw; give a larger catalog")
            table.add_row("random negatives not found", f"{account.no_negative:,}", "", advice)
        if account.unknown_pairs:
            advice = Text("pairs left out: the catalog lacks an object")
            table.add_row("pairs of unknown objects", f"{account.unknown_pairs:,}", "", advice)
        if account.capped_pairs:
            advice = Text("left out by feed.triplets_per_impression; 0 keeps every pair")
            table.add_row("pairs over the cap", f"{account.capped_pairs:,}", "", advice)
        self._console.print(table)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if total else "-"
