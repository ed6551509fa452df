"""`tripletd feed`: reads click logs, decides, writes, and can be interrupted between two batches.

On stderr it tells its progress, what was dropped and where, and the account at the end.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from rich.markup import escape

from daemon.config import Config
from daemon.exits import EX_DATAERR, EX_OK, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.feeding import catalog_of_feed, decider_of, prepare_both, stream_address
from daemon.retries import RetryingSink
from daemon.topics.retention import retain_after_feed
from streams.errors import StreamError, StreamUnavailable
from streams.feed.decide import Decision
from streams.feed.formats import read_sources
from streams.feed.items import NO_SECRET, PROVED, TOO_LATE, FeedError, Placed, remedy
from streams.feed.options import LABELS, ReaderOptions
from streams.feed.run import Account, FeedRun, NoOutlet, SinkOutlet
from streams.open import open_sink, records_given
from streams.source import Address

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
    """Follows a run decision by decision; a line is rewritten in place on a terminal. mapped: the rows come
    through a mapping."""

    def __init__(self, console: Console, explain: bool, mapped: bool = False) -> None:
        self._console, self._explain = console, explain
        self._remedy = partial(remedy, mapped=mapped)
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
        self._as_of_1970 += decision.ts is not None and decision.ts < _SECONDS_END_MS
        if self._status is not None and self._items % UPDATE_EVERY == 0:
            rate = self._items / max(1e-9, time.monotonic() - self._started)
            self._status.update(escape(f"{self._items:,} read, {rate:,.0f}/s, at {place}"))
        if self._explain and decision.reason:
            reason = decision.reason
            self._shown[reason] += 1
            if self._shown[reason] <= EXPLAINED_PER_REASON:
                self.note(f"{place}: {decision.fate}, {reason}: {decision.detail}")
                if self._shown[reason] == 1 and self._remedy(reason):
                    self.note(f"    {self._remedy(reason)}")
            elif self._shown[reason] == EXPLAINED_PER_REASON + 1:
                self.note(f"    ... more with {reason} are counted below, not shown")

    def summary(self, account: Account, dry_run: bool) -> None:
        """The account: a line or two, as a table with --explain."""
        if self._explain:
            self._table(account)
        seconds = max(1e-9, time.monotonic() - self._started)
        fed = "would be fed" if dry_run else "fed"
        self.note(
            f"{account.read:,} read: {account.training:,} {fed} to training, {account.holdout:,} to holdout, "
            f"{sum(account.dropped.values()):,} dropped"
        )
        capped = f" ({account.capped_pairs:,} more pairs capped)" if account.capped_pairs else ""
        held = f", {account.for_arms:,} of held-out lists, for arms alone" if account.for_arms else ""
        self.note(
            f"{account.triplets:,} triplets, {account.below:,} of them with an object below the click, "
            f"{account.random_negatives:,} with a random negative{held}{capped}; {seconds:.1f} s, "
            f"{account.triplets / seconds:,.0f} triplets/s"
        )
        hint = " (--explain shows where and what to do)"
        for fate, counts, more in (("dropped", account.dropped, hint), ("ignored", account.ignored, "")):
            if counts and not self._explain:
                reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.most_common())
                self.note(f"{fate}: {reasons}{more}")
        if account.drafts:
            self.note(_of_drafts(account.drafts))
        if self._as_of_1970:
            self.note(
                f"{self._as_of_1970:,} kept ones have times in early 1970: are those seconds? "
                "Write milliseconds or ISO 8601, for freshness goes by them"
            )

    def waits(self, text: str) -> None:
        """What keeps it waiting, also in the line of its progress."""
        self.note(text)
        if self._status is not None:
            self._status.update(escape(text))

    def _table(self, account: Account) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Impressions and what became of them", title_justify="left")
        table.add_column("fate", no_wrap=True)
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column("share", justify="right", no_wrap=True)
        table.add_column("what to do")
        for name, count in (("training", account.training), ("holdout", account.holdout)):
            table.add_row(f"fed to {name}", f"{count:,}", _share(count, account.read), "")
        for reason, count in account.dropped.most_common():
            advice = Text(self._remedy(reason))
            table.add_row(Text(f"dropped: {reason}"), f"{count:,}", _share(count, account.read), advice)
        table.add_row("read", f"{account.read:,}", _share(account.read, account.read), "", end_section=True)
        for reason, count in account.ignored.most_common():
            table.add_row(Text(f"ignored: {reason}"), f"{count:,}", "", Text(self._remedy(reason)))
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

    def note(self, text: str) -> None:
        """A line worth knowing."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _of_drafts(drafts: Counter[str]) -> str:
    words = [f"{drafts[PROVED]:,} interleaved or explored lists with a valid signature"]
    if drafts[TOO_LATE]:
        words.append(f"{drafts[TOO_LATE]:,} made longer ago than interleaving.max_age: fed as ordinary lists")
    if drafts[NO_SECRET]:
        words.append(
            f"{drafts[NO_SECRET]:,} not checked, for interleaving.key is not set: fed as ordinary lists"
        )
    return "; ".join(words)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if total else "-"


_STOPPING = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS = 0.05


class Interrupted(BaseException):
    """SIGINT or SIGTERM came; raised where the command stood, or at the end of a shielded write."""


class Interrupts:
    """A context manager in the main thread; inside it SIGINT and SIGTERM raise Interrupted.

    A second signal raises at once even in a shield.
    """

    def __init__(self) -> None:
        self._shielded = False
        self._pending = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._on_signal) for number in _STOPPING}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Hold a signal back until the block is done."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._pending:
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Sleep between two tries of a write; raises Interrupted for a signal that a shield holds back."""
        deadline = time.monotonic() + seconds
        while not self._pending and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        if self._pending:
            raise Interrupted

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._shielded and not self._pending:
            self._pending = True
            return
        raise Interrupted


@dataclass(frozen=True, slots=True)
class FeedJob:
    """What to feed: the sources, their format (None: detected from the first line), and the options."""

    sources: Sequence[str]
    format: str | None
    options: ReaderOptions
    dry_run: bool = False
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Fed:
    """What a run did: its account, the records that a failing stream may have been given twice, the exit code
    (75 where it was interrupted).
    """

    run: FeedRun
    sent_again: int
    code: int


def run_feed(config: Config, job: FeedJob, report: FeedReport) -> Fed:
    """Feed everything and report.

    Raises UserError for what the user can put right, after reporting what is durable by then.
    """
    address = stream_address(config)
    if address.scheme == "memory":
        message = f"{address} lives inside one process: what is fed into it is gone when feed ends"
        raise UserError(message, "feed into a log, such as --to log:clicks.log", EX_USAGE)
    catalog = catalog_of_feed(config, report.note)
    interrupts = Interrupts()
    with ExitStack() as stack:
        try:
            options = job.options
            if job.format == LABELS and catalog is not None:
                # drawn among the objects of the catalog alone, as many triplets come out as were asked for
                options = replace(options, known=frozenset(catalog.ids))
            items = read_sources(job.sources, options, job.format)
            sinks: list[RetryingSink] = []
            partitions = config.stream.partitions
            if not job.dry_run:
                sinks, partitions = _open(address, config, stack, interrupts, report)
            outlet = SinkOutlet(*sinks) if sinks else NoOutlet()
            # what is skipped is decided again, and counted by that
            fed = 0 if job.dry_run or job.skip else records_given(address)
            decider = decider_of(config, catalog, partitions, job.options.now_ms, fed=fed)
            run = FeedRun(decider, outlet, report.observe, interrupts.shield, job.skip)
            with report:
                code = _run(run, items, interrupts, report)
        except FeedError as error:
            raise UserError(error.message, error.remedy, EX_DATAERR) from None
    report.summary(run.committed, job.dry_run)
    if catalog is None and run.committed.random_negatives:
        report.note("random negatives came from the objects shown so far; --catalog draws from all of them")
    sent_again = sum(sink.sent_again for sink in sinks)
    if sent_again:
        report.note(
            f"{sent_again:,} records were sent again, for it was not known whether they had arrived;"
            " duplicates have the same id and are counted once"
        )
    if not job.dry_run:
        removed = retain_after_feed(config, address, report.note)
        if any(removed.values()):
            gone = ", ".join(f"{topic} {count:,}" for topic, count in removed.items() if count)
            report.note(f"retention removed old records: {gone}")
    return Fed(run, sent_again, code)


def _run(run: FeedRun, items: Iterator[Placed], interrupts: Interrupts, report: FeedReport) -> int:
    """Feed the items; says how far it came where it does not come to the end."""
    try:
        with interrupts:
            run.run(items)
    except Interrupted:
        report.note(_how_far("interrupted", run))
        return EX_TEMPFAIL
    except StreamUnavailable as error:
        report.note(_how_far("ended early", run))
        raise UserError(
            str(error), "once the stream is back, continue as described above", EX_TEMPFAIL
        ) from error
    except (FeedError, StreamError):
        report.note(_how_far("ended early", run))
        raise
    return EX_OK


def _how_far(what: str, run: FeedRun) -> str:
    at = f", the last one at {run.place}" if run.place else ""
    again = f"continue with the same command and --skip {run.items}"
    return f"{what}: the first {run.items:,} items are safe{at}; {again}"


def _open(
    address: Address, config: Config, stack: ExitStack, interrupts: Interrupts, report: FeedReport
) -> tuple[list[RetryingSink], int]:
    partitions = prepare_both(address, config)
    sinks = []
    for topic in (address, address.holdout):
        sink = stack.enter_context(closing(open_sink(topic)))
        sinks.append(RetryingSink(sink, interrupts.wait, time.monotonic, report.waits))
    return sinks, partitions
