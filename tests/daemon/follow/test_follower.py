"""A follower in this process: what one list, one clock or one side path does to the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from daemon.exits import EX_TEMPFAIL, UserError
from daemon.follow.follower import ALL_AHEAD, ClickFollower, FollowPlan
from daemon.follow.metrics import FollowMetrics
from daemon.follow.outlet import FeedOutlet
from daemon.look.live import FeedStatus
from daemon.runtime.in_hand import InHand
from daemon.telemetry.server import Health, status_of
from streams.codec import decode_event
from streams.feed.decide import Decider
from streams.feed.follow import records
from streams.feed.follow.checkpoint import FeedCheckpoints
from streams.feed.follow.examined import FRESH, RecentExamination
from streams.feed.follow.intake import Intake
from streams.feed.follow.join import JoinSettings
from streams.feed.options import FeedSettings
from streams.feed.triplets import SeenCandidates
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.harness.kill.joins import records as values_of

NOW = 1_800_000_000_000
DAY_MS = 86_400_000
LATENESS_MS = 1_000
Started = Callable[..., ClickFollower]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Starts the follower, again and again; the one before ends."""
    (tmp_path / "raw").mkdir()
    address = parse_address(f"log:{tmp_path}/clicks.log")
    for topic in (address, address.holdout):
        ensure_topic(topic, 1)
    with ExitStack() as last:

        def started(
            now_ms: int = NOW,
            metrics: FollowMetrics | None = None,
            topic: str = "",
            schemas: Any = None,
            **feed: Any,
        ) -> ClickFollower:
            last.close()
            sources = [str(tmp_path / "raw/*.jsonl"), *filter(None, [topic])]
            in_hand = InHand(tmp_path / "feed/in-hand", "feed")
            last.callback(in_hand.close)
            settings = JoinSettings(window_ms=5_000, remembered=10)
            checkpoints = last.enter_context(closing(FeedCheckpoints(tmp_path / "feed")))
            follower = ClickFollower(
                FollowPlan(sources, settings, LATENESS_MS, DAY_MS),
                open_intake=lambda places: Intake(sources, places, LATENESS_MS, None, schemas, guard=in_hand),
                decider=Decider(FeedSettings(**{"holdout_share": 0.0, **feed}), SeenCandidates()),
                outlet=FeedOutlet(address, last),
                checkpoints=checkpoints,
                metrics=FollowMetrics() if metrics is None else metrics,
                retry=lambda call: call(),
                examination=RecentExamination(),
                now_ms=lambda: now_ms,
                in_hand=in_hand,
            )
            last.enter_context(closing(follower.intake))
            return follower

        yield started


def add(tmp_path: Path, *said: dict[str, Any], name: str = "a") -> None:
    with (tmp_path / "raw" / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in said)


def listed(number: int, ts: int = NOW - 60_000, **more: Any) -> list[dict[str, Any]]:
    one = {"event": "impression", "impression": f"i{number}", "ts": ts, "query": f"q{number}"}
    clicked = {"event": "click", "impression": f"i{number}", "ts": ts + 1, "object": "p2"}
    return [{**one, "shown": ["p0", "p1", "p2"], **more}, clicked]


def read(follower: ClickFollower, now: float) -> None:
    while follower.step(now):
        pass


def caught_up(follower: ClickFollower, now: float) -> None:
    """All is read, and a minute goes by in which nothing comes."""
    read(follower, now)
    follower.step(now + 60)
    follower.commit()


def value(metrics: FollowMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def test_a_list_that_was_refused_ends_nothing_and_is_not_looked_at(start: Started, tmp_path: Path) -> None:
    """Half a character in the query, with a late click and a second one; enough lists for an estimate."""
    metrics = FollowMetrics()
    add(tmp_path, *(one for number in range(FRESH) for one in listed(number)))
    add(tmp_path, *listed(FRESH, query="desk lam\ud83d"), *listed(FRESH + 1, query="\ud83d")[:1])
    add(tmp_path, *listed(FRESH + 2, ts=NOW - 20_000))
    follower = start(metrics=metrics)
    caught_up(follower, 0.0)
    late = {"event": "click", "impression": f"i{FRESH}", "ts": NOW - 50_000, "object": "p1"}
    add(tmp_path, late, {**late, "impression": f"i{FRESH + 1}"}, *listed(FRESH + 3))
    caught_up(follower, 100.0)
    assert value(metrics, "tripletd_feed_impressions_total", fate="training") == FRESH + 2
    assert value(metrics, "tripletd_feed_dropped_total", reason="malformed:not_utf8") >= 2
    assert value(metrics, "tripletd_feed_ignored_total", reason="click_not_shown") == 2
    for part in ("decisions", "examination", "metrics"):
        assert value(metrics, "tripletd_feed_side_path_errors_total", part=part) == 0


@pytest.mark.parametrize("part", ["decisions", "examination", "metrics"])
def test_a_side_path_that_raises_ends_nothing(
    start: Started, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = FollowMetrics()

    def broken(*_: object) -> None:
        raise RuntimeError("a side path that nobody thought of")

    owner, name = {
        "decisions": (FollowMetrics, "decided"),
        "examination": (RecentExamination, "estimate"),
        "metrics": (FollowMetrics, "stands"),
    }[part]
    monkeypatch.setattr(owner, name, broken)
    add(tmp_path, *(one for number in range(FRESH) for one in listed(number)))
    follower = start(metrics=metrics)
    caught_up(follower, 0.0)
    assert follower._decider.fed > 2 * FRESH  # type: ignore
    assert value(metrics, "tripletd_feed_side_path_errors_total", part=part) > 0


def test_a_clock_that_is_a_day_ahead_closes_no_list_of_others(start: Started, tmp_path: Path) -> None:
    metrics = FollowMetrics()
    follower = start(metrics=metrics)
    add(tmp_path, *listed(0, ts=NOW + DAY_MS - 60_000))
    read(follower, 0.0)
    for number in range(1, 20):
        shown, clicked = listed(number, ts=NOW - 500 + number)
        add(tmp_path, shown)
        read(follower, number / 10)
        add(tmp_path, clicked)
        read(follower, number / 10 + 0.06)
    follower.commit()
    for what in ("late_impression", "late_click"):
        assert value(metrics, "tripletd_feed_late_total", what=what) == 0
    caught_up(start(now_ms=NOW + 30_000, metrics=metrics), 200.0)
    assert value(metrics, "tripletd_feed_impressions_total", fate="training") == 19


def test_a_watermark_that_an_older_release_left_ahead_of_the_clock_comes_back(
    start: Started, tmp_path: Path
) -> None:
    follower = start(now_ms=NOW + DAY_MS)
    add(tmp_path, *listed(0, ts=NOW + DAY_MS))
    caught_up(follower, 0.0)
    again = start()
    assert again._join.watermark == NOW - LATENESS_MS  # type: ignore
    add(tmp_path, *listed(1, ts=NOW))
    caught_up(again, 0.0)
    assert again._join.counts.total() == 0  # type: ignore


def test_a_clock_that_is_slow_is_told(start: Started, tmp_path: Path) -> None:
    follower = start()
    add(tmp_path, *(listed(number, ts=NOW + 2 * DAY_MS)[0] for number in range(ALL_AHEAD - 1)))
    caught_up(follower, 0.0)
    assert follower.not_ready() is None
    add(tmp_path, listed(ALL_AHEAD, ts=NOW + 2 * DAY_MS)[0])
    caught_up(follower, 100.0)
    assert "check this machine's clock" in (follower.not_ready() or "")
    add(tmp_path, *listed(ALL_AHEAD + 1))
    caught_up(follower, 200.0)
    assert follower.not_ready() is None


def test_what_was_fed_is_known_after_a_restart_and_so_is_the_cap(start: Started, tmp_path: Path) -> None:
    """Also what the join does not remember any more: it holds 10 lists here."""
    metrics = FollowMetrics()
    add(tmp_path, *(one for number in range(100) for one in listed(number)))
    add(tmp_path, *(one for number in range(3) for one in listed(200 + number, query="often")))
    caught_up(start(), 0.0)
    caught_up(start(query_cap=3), 100.0)
    follower = start(metrics=metrics, query_cap=3)
    add(tmp_path, *(one for number in range(100) for one in listed(number)))
    add(tmp_path, *listed(300, query="often"))
    caught_up(follower, 200.0)
    dropped = {
        reason: value(metrics, "tripletd_feed_dropped_total", reason=reason)
        for reason in ("duplicate", "query_cap")
    }
    assert dropped == {"duplicate": 93, "query_cap": 1}  # the join knows 7 more


def test_a_file_that_cannot_be_opened_is_told_and_counted(start: Started, tmp_path: Path) -> None:
    metrics = FollowMetrics()
    (tmp_path / "raw" / "loop.jsonl").symlink_to("loop.jsonl")
    add(tmp_path, *listed(0))
    follower = start(metrics=metrics)
    caught_up(follower, 0.0)
    assert "loop.jsonl" in (follower.not_ready() or "")
    source = str(tmp_path / "raw/*.jsonl")
    assert value(metrics, "tripletd_feed_files_left_out", source=source) == 1
    assert value(metrics, "tripletd_feed_impressions_total", fate="training") == 1
    (tmp_path / "raw" / "a.jsonl").write_text("")
    (tmp_path / "raw" / "loop.jsonl").unlink()
    caught_up(follower, 100.0)
    caught_up(follower, 200.0)
    assert follower.not_ready() is None
    assert value(metrics, "tripletd_feed_cut_files_total", source=source) == 1


def test_status_says_what_a_cut_file_may_have_lost(start: Started, tmp_path: Path) -> None:
    metrics = FollowMetrics()
    add(tmp_path, *(one for number in range(5) for one in listed(number)))
    follower = start(metrics=metrics)
    follower.step(0.0)
    size = (tmp_path / "raw" / "a.jsonl").stat().st_size
    (tmp_path / "raw" / "a.jsonl").write_text("\n")
    (tmp_path / "raw" / "b.jsonl").symlink_to("gone")
    caught_up(follower, 1.0)
    status = status_of(metrics.registry, Health())
    assert isinstance(status, FeedStatus)
    assert (status.cut_files, status.left_out) == (1, 1)
    assert 0 < status.missing_bytes < size
    assert f"{status.missing_bytes:,} bytes are missing, and perhaps more" in status.line()
    assert "1 files cannot be opened" in status.line()


def no_memory_for(marker: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing what has this in it takes all memory."""
    parse = records.from_json

    def parsed(value: bytes, **how: Any) -> Any:
        if marker in value:
            raise MemoryError
        return parse(value, **how)

    monkeypatch.setattr(records, "from_json", parsed)


def fed(tmp_path: Path) -> set[str]:
    """The lists that are in the stream, each of whose clicks made one event."""
    found = [decode_event(one) for one in values_of(parse_address(f"log:{tmp_path}/clicks.log"))]
    ids = [one.id for one in found]
    assert len(ids) == len(set(ids)), "one was written twice"
    return {str(one.impression) for one in found}


def deaths(start: Started, **how: Any) -> int:
    """How often the follower dies until all is read."""
    for count in range(9):
        try:
            caught_up(start(**how), 1.0)
        except UserError as error:
            if error.code != EX_TEMPFAIL or "memory ran out over" not in error.message:
                raise
        else:
            return count
    raise AssertionError("it dies for ever")


def test_a_line_at_which_the_role_died_twice_is_left_out_and_the_rest_is_fed_once(
    tmp_path: Path, start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        add(tmp_path, *listed(number))
    add(tmp_path, {"event": "click", "impression": "i1", "ts": NOW - 60_000, "object": "fatal"})
    with (tmp_path / "raw/a.jsonl").open("a") as file:
        file.write("\n  \n")
    for number in range(5, 9):
        add(tmp_path, *listed(number))
    no_memory_for(b"fatal", monkeypatch)
    metrics = FollowMetrics()
    with capture_logs() as said:
        assert deaths(start, metrics=metrics) == 3, "one with others in hand, two with it alone"
    assert value(metrics, "tripletd_feed_dropped_total", reason="suspect") == 1
    (place,) = [one["place"] for one in said if one["event"] == "suspect"]
    text = (tmp_path / "raw/a.jsonl").read_bytes()
    assert b"fatal" in text[int(place.rpartition(" ")[2]) :].split(b"\n")[0]
    assert value(metrics, "tripletd_feed_impressions_total", fate="training") == 9
    assert sorted(fed(tmp_path)) == [f"i{number}" for number in range(9)]
    assert json.loads((tmp_path / "feed/in-hand/feed.known.json").read_text())["deaths"] == []
    add(tmp_path, {"event": "other", "fatal": 1}, name="b")
    assert deaths(start) == 3, "another line has to be accused by itself"


@pytest.mark.parametrize("by_schema", [False, True])
def test_so_is_a_record_of_a_topic(
    tmp_path: Path, start: Started, monkeypatch: pytest.MonkeyPatch, by_schema: bool
) -> None:
    class Schemas:
        notes: ClassVar[list[str]] = []
        batch_s = 5.0

        def decoded(self, said: bytes, headers: object) -> Any:
            return records.from_json(said)

    topic = f"log:{tmp_path}/spool.log#clicks"
    ensure_topic(parse_address(topic), 1)
    lines = [*listed(1), {"event": "other", "fatal": 1}, *listed(2)]
    with closing(open_sink(parse_address(topic))) as sink:
        sink.send([OutRecord(json.dumps(one).encode()) for one in lines])
    no_memory_for(b"fatal", monkeypatch)
    metrics = FollowMetrics()
    assert deaths(start, metrics=metrics, topic=topic, schemas=Schemas() if by_schema else None) == 3
    assert value(metrics, "tripletd_feed_dropped_total", reason="suspect") == 1
    assert sorted(fed(tmp_path)) == ["i1", "i2"]
