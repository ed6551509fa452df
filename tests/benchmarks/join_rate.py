"""How many raw JSON records pass through the join in event time, per processor second.

Impressions of 10 objects, every other one with two clicks, from the lines of files that are followed to
closed lists: finding lines, JSON, checks, the join, and checkpoints. What a list teaches afterwards is
decided as by `feed`: the figure is without it, and its detail has the rate with it and the share it takes.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from daemon.follow.follower import READ_AT_ONCE
from daemon.follow.role import COLLECT
from streams.event import Impression
from streams.feed.decide import Decider
from streams.feed.follow.checkpoint import FeedCheckpoints
from streams.feed.follow.intake import Intake
from streams.feed.follow.join import EventTimeJoin, JoinSettings
from streams.feed.follow.records import RecordReader
from streams.feed.items import UnclickedList
from streams.feed.options import FeedSettings, ReaderOptions
from streams.feed.triplets import CatalogCandidates
from tests.benchmarks.harness import Figure

LISTS, SHOWN, PRODUCTS, STEP_MS = 60_000, 10, 50_000, 20
BEGIN_MS = 1_700_000_000_000
REPEATS = 5
CHECKPOINT_EVERY = 50_000
"""Records between two checkpoints: about one a second."""


def figures() -> list[Figure]:
    """Records per second of one core, to be compared with the 50,000 that were asked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = _write(folder)
        gc.set_threshold(*COLLECT)  # as the role does
        rates = [_rate(folder, count, repeat) for repeat in range(REPEATS)]
        products = [f"product-{number}" for number in range(PRODUCTS)]
        deciding = [
            _rate(folder, count, REPEATS + repeat, Decider(FeedSettings(), CatalogCandidates(products)))
            for repeat in range(REPEATS)
        ]
    with_decisions = statistics.median(deciding)
    detail = {
        "records": count,
        "rate_min": round(min(rates)),
        "rate_max": round(max(rates)),
        "rate_with_decisions": round(with_decisions),
        "share_of_decisions": round(1 - with_decisions / statistics.median(rates), 3),
    }
    against = "records of one core in processor time; at least 50,000 wanted"
    rate = round(statistics.median(rates))
    return [Figure("join_events_per_second", rate, "records/s", against, REPEATS, detail)]


def _rate(folder: Path, count: int, repeat: int, decider: Decider | None = None) -> float:
    begin = time.process_time()
    join = EventTimeJoin(JoinSettings(window_ms=120_000))
    reader = RecordReader(join, ReaderOptions(BEGIN_MS * 2))
    checkpoints = FeedCheckpoints(folder / f"feed{repeat}")
    intake = Intake([str(folder / "views.jsonl"), str(folder / "clicks.jsonl")], {}, 30_000)
    read, saved, closed, clicked = 0, 0, 0, 0
    while (found := intake.next(READ_AT_ONCE, 0.0)) is not None:
        lane, records = found
        reader.newest = 0
        reader.take(records)
        lane.saw(reader.newest)
        read += len(records)
        join.advance(intake.watermark(0.0))
        closed, clicked = _count(join, decider, closed, clicked)
        if read - saved >= CHECKPOINT_EVERY:
            checkpoints.save({"join": join.snapshot(), "places": intake.places()})
            saved = read
    join.finish()
    closed, clicked = _count(join, decider, closed, clicked)
    took = time.process_time() - begin
    assert (read, closed, clicked) == (count, LISTS, LISTS)
    intake.close()
    checkpoints.close()
    return count / took


def _count(join: EventTimeJoin, decider: Decider | None, closed: int, clicked: int) -> tuple[int, int]:
    for _, item in join.drained():
        if decider is not None:
            decider.decide(item)
        assert isinstance(item, Impression | UnclickedList)
        closed, clicked = closed + 1, clicked + (len(item.clicked) if isinstance(item, Impression) else 0)
    return closed, clicked


def _write(folder: Path) -> int:
    """The records of both files, which are in order of time."""
    draw = random.Random(0)
    count = 0
    with (folder / "views.jsonl").open("w") as views, (folder / "clicks.jsonl").open("w") as clicks:
        for number in range(LISTS):
            ts, name = BEGIN_MS + STEP_MS * number, f"impression-{number}"
            shown = [f"product-{one}" for one in draw.sample(range(PRODUCTS), SHOWN)]
            said = {"event": "impression", "impression": name, "ts": ts, "query": f"query-{number % 2_000}"}
            views.write(json.dumps({**said, "shown": shown}) + "\n")
            count += 1
            for clicked in shown[:2] if number % 2 else ():
                click = {"event": "click", "impression": name, "ts": ts + 15_000, "object": clicked}
                clicks.write(json.dumps(click) + "\n")
                count += 1
    return count
