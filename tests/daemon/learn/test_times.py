"""What one event with a wrong time does: it becomes a dead letter, and nothing else."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from daemon.cli import main
from daemon.exits import EX_OK, UserError
from daemon.learn.reader import Reader
from daemon.learn.replay.replay import replay
from daemon.learn.resume.origin import LearnOptions
from daemon.look.overview import version_rows
from daemon.versions.contents import watermark_of
from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import open_sink, open_source, retain
from streams.source import OutRecord, Source
from tests.daemon.learn.altered import alter_manifest
from tests.daemon.learn.conftest import DIM, Site

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NewSite = Callable[..., Site]


def now_ms() -> int:
    return int(time.time() * 1000)


def click(number: int, ts: int) -> bytes:
    rng = np.random.default_rng(number)
    roles = (ObjectRef(x=row) for row in rng.standard_normal((3, DIM)).astype(np.float32))
    return encode_event(Event(f"e{number}", ts, *roles))


def without_bound(site: Site, number: int, **fields: Any) -> None:
    """Make a version one of a release that took any time."""
    manifest = site.versions.manifest(number)
    learner = {**manifest.learner, "config": {**manifest.learner["config"]}}
    learner["config"].pop("max_future_ms", None)
    alter_manifest(site, number, learner=learner, **fields)


def all_of(site: Site) -> tuple[int, int]:
    with closing(open_source(site.address)) as source:
        return source.bounds()[0]


def replayed(site: Site, start: int = 0) -> bool:
    with closing(open_source(site.address)) as source:
        found = replay(site.versions, source, None, start, site.newest().number)
    return found.equal and found.difference is None


def test_a_click_in_microseconds_is_a_dead_letter_and_no_watermark(site: Site) -> None:
    now = now_ms()
    site.feed([click(0, now - HOUR_MS), click(1, now * 1000), click(2, now - 1000)])
    assert site.learn() == EX_OK
    (letter,) = site.dead()
    assert (letter.offset, letter.reason) == (1, "in_the_future")
    newest = site.newest()
    assert newest.watermark == now - 1000
    assert newest.counters["poison.in_the_future"] == 1
    assert replayed(site)


def test_a_record_stamped_by_a_producer_without_a_clock_says_nothing_of_its_arrival(site: Site) -> None:
    now = now_ms()
    site.feed([])
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(click(0, now), timestamp=1), OutRecord(click(1, now * 1000), timestamp=1)])
    assert site.learn() == EX_OK
    assert [(letter.offset, letter.reason) for letter in site.dead()] == [(1, "in_the_future")]
    assert site.newest().watermark == now


def test_an_event_a_little_ahead_is_learned_and_never_newer_than_its_arrival(site: Site) -> None:
    before = now_ms()
    site.feed([click(0, before + HOUR_MS)])
    assert site.learn() == EX_OK
    assert site.dead() == []
    assert before <= site.newest().watermark <= now_ms()


def test_the_bound_is_the_users(site: Site) -> None:
    site.feed([click(0, now_ms() + HOUR_MS)])
    assert site.learn(stream__max_future="10m") == EX_OK
    assert [letter.reason for letter in site.dead()] == ["in_the_future"]


def test_a_replay_a_year_later_decides_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = now_ms()
    site.feed([click(n, now + n * DAY_MS) for n in range(6)])
    assert site.learn() == EX_OK
    assert len(site.dead()) == 4
    monkeypatch.setattr(time, "time", lambda: (now + 365 * DAY_MS) / 1000)
    assert replayed(site)


def test_killed_and_resumed_is_as_uninterrupted_with_wrong_times_among_the_events(new_site: NewSite) -> None:
    now = now_ms()
    events = [click(n, now * 1000 if n % 7 == 3 else now - n) for n in range(60)]
    whole, parts = new_site(), new_site()
    for one, sizes in ((whole, (60,)), (parts, (10, 25, 25))):
        at = 0
        for size in sizes:
            one.feed(events[at : at + size])
            assert one.learn(stream__poll_records=size // 4) == EX_OK
            at += size
    first, second = whole.newest(), parts.newest()
    assert (first.state_hash, first.counters) == (second.state_hash, second.counters)
    assert first.watermark == second.watermark
    assert replayed(parts)


def test_one_event_from_the_future_does_not_end_retention(new_site: NewSite) -> None:
    site, now = new_site(log=True), now_ms()
    site.feed([click(n, now) for n in range(20)])
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(click(20, now * 1000), timestamp=now * 1000)])
    site.feed([click(n, now) for n in range(21, 40)])
    assert retain(site.address, 3600, None, now + HOUR_MS // 2) == {0: 0}
    assert retain(site.address, 3600, None, now + 2 * HOUR_MS) == {0: 40}
    assert all_of(site) == (40, 40)


def test_a_log_that_has_such_an_event_already_removes_old_records_again(new_site: NewSite) -> None:
    site, now = new_site(log=True), now_ms()
    site.feed([click(n, now) for n in range(30)])
    with closing(sqlite3.connect(site.folder / "clicks.log")) as log, log:  # as earlier releases wrote it
        log.execute("UPDATE records_1_0 SET ts = ? WHERE offset = 10", (now * 1000,))
        log.execute("UPDATE records_1_0 SET high = ? WHERE offset >= 10", (now * 1000,))
        log.execute("UPDATE partitions SET high = ? WHERE topic = 1", (now * 1000,))
    site.feed([click(n, now) for n in range(30, 40)])
    assert retain(site.address, 3600, None, now) == {0: 0}
    with closing(open_source(site.address)) as source:
        assert source.offsets_at(now + DAY_MS) == {0: 40}
    assert retain(site.address, 3600, None, now + HOUR_MS // 2) == {0: 0}
    assert sum(retain(site.address, 3600, None, now + 2 * HOUR_MS).values()) == 40
    site.feed([click(n, now) for n in range(40, 45)])
    assert retain(site.address, 3600, None, now + 2 * HOUR_MS) == {0: 5}


def test_a_version_with_a_watermark_from_the_future_recovers(site: Site) -> None:
    now = now_ms()
    site.feed([click(0, now)])
    assert site.learn() == EX_OK
    newest = site.newest()
    without_bound(site, newest.number, watermark=now * 1000)
    assert now <= watermark_of(site.newest()) <= now_ms()
    (row,) = version_rows([site.newest()], [], None)
    assert row.watermark <= now_ms()
    site.feed([click(1, now - 5)])
    assert site.learn() == EX_OK
    recovered = site.newest()
    assert recovered.schedule[0]["control"] == "times"
    assert now <= recovered.watermark <= now_ms()
    site.feed([click(2, now - 3)])
    assert site.learn() == EX_OK  # and it is told once
    assert site.newest().schedule == ((0, 2, 3),)
    assert replayed(site, newest.number)


def test_what_earlier_releases_learned_is_replayed_by_their_rules(site: Site) -> None:
    now = now_ms()
    site.feed([click(n, now + n * DAY_MS) for n in range(6)])
    assert site.learn(stream__max_future="20000d") == EX_OK
    assert site.dead() == []
    first = site.newest()
    for number in (0, first.number):  # which took the times as they were, and bounded nothing
        without_bound(site, number)
    alter_manifest(site, first.number, watermark=now + 5 * DAY_MS)
    assert replayed(site)
    site.feed([click(n, now + n * DAY_MS) for n in range(6, 9)])
    assert site.learn() == EX_OK
    assert len(site.dead()) == 3
    assert replayed(site)


def test_another_bound_holds_from_the_next_start_on_and_is_recorded(site: Site) -> None:
    now = now_ms()
    site.feed([click(0, now + HOUR_MS)])
    assert site.learn() == EX_OK
    site.feed([click(1, now + HOUR_MS)])
    assert site.learn(stream__max_future="1m") == EX_OK
    assert site.newest().schedule[0] == {"control": "times", "max_future_ms": 60_000}
    site.feed([click(2, now + HOUR_MS)])
    assert site.learn() == EX_OK
    assert len(site.dead()) == 1
    assert replayed(site)


def feed_file(site: Site, *lines: dict[str, Any], **settings: Any) -> int:
    ref = {"x": [1.0] * DIM}
    clicks = site.folder / "clicks.jsonl"
    whole = [
        {"q": {"id": "q", **ref}, "shown": [{"id": name, **ref} for name in "ab"], "clicked": [1]} | one
        for one in lines
    ]
    clicks.write_text("".join(json.dumps(line) + "\n" for line in whole))
    given = {"stream.address": str(site.address), "feed.holdout_share": "0", **settings}
    return main(
        ["feed", str(clicks), "--explain", *(f"--set={name}={value}" for name, value in given.items())]
    )


def test_feed_drops_clicks_from_the_future_and_says_what_to_do(
    new_site: NewSite, capfd: pytest.CaptureFixture[str]
) -> None:
    site, now = new_site(log=True), now_ms()
    assert feed_file(site, {"id": "a", "ts": now * 1000}, {"id": "b", "ts": now}) == EX_OK
    told = capfd.readouterr().err
    assert "in_the_future" in told
    assert "microseconds" in told
    assert "1 dropped" in told


def test_old_clicks_are_kept_for_as_long_as_others_once_they_are_fed(new_site: NewSite) -> None:
    site, month_ago = new_site(log=True), now_ms() - 30 * DAY_MS
    assert feed_file(site, {"id": "a", "ts": month_ago}, **{"feed.random_negatives": "0"}) == EX_OK
    assert sum(retain(site.address, 7 * 86_400, None).values()) == 0
    assert site.learn(LearnOptions(exit_when_caught_up=True)) == EX_OK
    assert site.newest().watermark == month_ago
    assert sum(retain(site.address, 7 * 86_400, None, now_ms() + 8 * DAY_MS).values()) == all_of(site)[1] > 0


def test_records_that_expire_under_a_running_learner_have_the_remedy_of_the_next_start(
    new_site: NewSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, now = new_site(log=True), now_ms()
    site.feed([click(n, now) for n in range(4)])
    assert site.learn() == EX_OK
    site.feed([click(n, now) for n in range(4, 30)])
    read_one, polls = Reader._read_one, []

    def behind(self: Reader, source: Source) -> None:
        polls.append(0)
        if len(polls) == 2:  # it has read to offset 14 by then, and is slow
            retain(site.address, None, 0, before={0: 20})
        read_one(self, source)

    monkeypatch.setattr(Reader, "_read_one", behind)
    with pytest.raises(UserError) as running:
        site.learn(stream__poll_records=10)
    monkeypatch.undo()
    with pytest.raises(UserError) as started:
        site.learn()
    assert "partition 0: 6 records (14 up to 20)" in running.value.message
    assert str(running.value) == str(started.value)
    assert "tripletd learn --accept-gap --exit-when-caught-up" in running.value.remedy
    assert "earliest" not in str(running.value)
    assert site.learn(LearnOptions(exit_when_caught_up=True, accept_gap=True)) == EX_OK
    assert site.newest().counters["records"] == 24


def test_a_first_start_says_how_many_records_were_gone_before_it(
    new_site: NewSite, capfd: pytest.CaptureFixture[str]
) -> None:
    site, now = new_site(log=True), now_ms()
    site.feed([click(n, now) for n in range(30)])
    retain(site.address, None, 0, before={0: 12})
    with capture_logs() as told:
        assert site.learn() == EX_OK
    (gone,) = [line for line in told if "no longer holds its beginning" in line["event"]]
    assert gone["records"] == 12
    assert (site.newest().counters["expired"], site.newest().counters["records"]) == (12, 18)
    assert replayed(site)
    given = {name: value for name, value in site.settings.items() if name.startswith(("stream", "check"))}
    assert main(["status", *(f"--set={name}={value}" for name, value in given.items())]) == EX_OK
    assert "12 records had expired before learning began" in capfd.readouterr().out
    later = new_site(log=True)  # who asks for the end misses nothing
    later.feed([click(n, now) for n in range(5)])
    assert later.learn(LearnOptions(exit_when_caught_up=True, start="latest")) == EX_OK
    assert "expired" not in later.newest().counters
