"""What the feed role tells of itself."""

from __future__ import annotations

import math
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from daemon.telemetry.metrics import add_build_info
from streams.feed.decide import Decision
from streams.feed.follow.bots import BotClicks
from streams.feed.follow.intake import Intake
from streams.feed.follow.join import CLOSED_EARLY, LATE_CLICK, LATE_IMPRESSION, EventTimeJoin
from streams.feed.shown_places import PositionBias

FATES = ("training", "holdout", "dropped")
LATE = (LATE_CLICK, LATE_IMPRESSION, CLOSED_EARLY)


class FollowMetrics:
    """Counters and gauges of one follower; `registry` goes to the HTTP server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        count, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.records = count("tripletd_feed_records", "Raw records read")
        self._lists = count("tripletd_feed_impressions", "Closed impressions by fate", ["fate"])
        self._dropped = count(
            "tripletd_feed_dropped", "Impressions and records dropped by reason", ["reason"]
        )
        self._ignored = count("tripletd_feed_ignored", "Clicks and records left out by reason", ["reason"])
        self._events = count("tripletd_feed_triplets", "Triplets decided on")
        self._corrections = count("tripletd_feed_corrections", "Late clicks learned as corrections")
        self._late = count("tripletd_feed_late", "Late clicks and lists, lists closed early", ["what"])
        self._drafts = count("tripletd_feed_drafts", "Fed lists of signed ids by what they proved", ["draft"])
        self._explored = count("tripletd_feed_explored", "Fed lists in which chance had placed an object")
        self.repeats = count("tripletd_feed_repeats", "Records not written again after a crash")
        about = "Errors in metrics and estimates; they do not stop feeding"
        self.side_path_errors = count("tripletd_feed_side_path_errors", about, ["part"])
        about = "Bytes of truncated or removed files that were seen and not read; there may have been more"
        self._missing = count("tripletd_feed_missing_bytes", about, ["source"])
        about = "Files that were truncated or removed before they were read to the end"
        self._cut = count("tripletd_feed_cut_files", about, ["source"])
        about = "Files that cannot be opened now"
        self._left_out = gauge("tripletd_feed_files_left_out", about, ["source"])
        about = "Questions to the schema registry that it did not answer"
        self.registry_failures = count("tripletd_feed_registry_failures", about)
        self._open = gauge("tripletd_feed_open_impressions", "Impressions that wait for clicks")
        self._remembered = gauge("tripletd_feed_remembered", "Closed impressions kept for late clicks")
        self._clicks = gauge("tripletd_feed_waiting_clicks", "Clicks that wait for the watermark")
        self._watermark = gauge("tripletd_feed_watermark_seconds", "Event time up to which all came, Unix")
        about = "What waits in a source: bytes of files, records of topics"
        self._behind = gauge("tripletd_feed_behind", about, ["source"])
        self._bot_share = gauge("tripletd_feed_bot_share", "Share of the clicks that look like a machine's")
        about = "How likely users examine a rank, relative to the first, out of the newest lists"
        self._examined = gauge("tripletd_feed_examination", about, ["rank"])
        about = "Its standard error"
        self._examined_error = gauge("tripletd_feed_examination_error", about, ["rank"])
        about = "Lists that it was estimated from; 0 while they do not tell it"
        self._examined_lists = gauge("tripletd_feed_examination_lists", about)
        self._size = gauge("tripletd_feed_checkpoint_bytes", "Size of the newest checkpoint")
        self._seconds = count("tripletd_feed_checkpoint_seconds", "Time spent on checkpoints")
        for fate in FATES:
            self._lists.labels(fate)
        for what in LATE:
            self._late.labels(what)
        self._seen = dict.fromkeys(LATE, 0)
        ProcessCollector(registry=registry)
        add_build_info(registry, "feed")

    def begins_with(self, join: EventTimeJoin) -> None:
        """What a checkpoint had counted before is not of this process."""
        self._seen = {what: join.counts[what] for what in LATE}

    def decided(self, decision: Decision) -> None:
        """The fate of an item."""
        if decision.fate == "ignored":
            self._ignored.labels(decision.reason).inc()
        elif decision.fate == "correction":
            self._corrections.inc()
        else:
            self._lists.labels(decision.fate).inc()
            if decision.fate == "dropped":
                self.dropped(decision.reason)
        self._events.inc(len(decision.training))
        if decision.draft:
            self._drafts.labels(decision.draft).inc()
        self._explored.inc(decision.explored)

    def dropped(self, reason: str) -> None:
        """Something was dropped."""
        self._dropped.labels(reason).inc()

    def saved(self, size: int, seconds: float) -> None:
        """A checkpoint was written."""
        self._size.set(size)
        self._seconds.inc(seconds)

    def examined(self, found: PositionBias) -> None:
        """What the newest lists say of the examination of ranks; ranks that are not known any more go."""
        self._examined.clear()
        self._examined_error.clear()
        taken = found.taken
        self._examined_lists.set(0 if taken is None else found.lists)
        if taken is None:
            return
        for rank, (value, error) in enumerate(
            zip(taken.curve.tolist(), taken.error.tolist(), strict=True), 1
        ):
            if not math.isnan(value):
                self._examined.labels(str(rank)).set(value)
                self._examined_error.labels(str(rank)).set(error)

    def stands(self, join: EventTimeJoin, bots: BotClicks, intake: Intake) -> None:
        """How the join and the sources stand."""
        self._open.set(join.open_lists)
        self._remembered.set(join.remembered_lists)
        self._clicks.set(join.waiting_clicks)
        self._watermark.set(join.watermark / 1000)
        for what in LATE:
            self._late.labels(what).inc(join.counts[what] - self._seen[what])
            self._seen[what] = join.counts[what]
        for source, waits in intake.behind().items():
            self._behind.labels(source).set(waits)
        for source, files in intake.files.items():
            self._left_out.labels(source).set(len(files.left_out))
            self._missing.labels(source).inc(files.missing_bytes)
            self._cut.labels(source).inc(files.cut)
            files.missing_bytes = files.cut = 0
        self._bot_share.set(bots.of_bots / bots.clicks if bots.clicks else 0.0)
