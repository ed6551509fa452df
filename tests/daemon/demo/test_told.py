"""What the demo feeds and tells: the pace of its users, the table while it learns, the words at its end."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from daemon.demo import users
from daemon.demo.page import DemoPorts
from daemon.demo.report import ALL_LEARNED, TIME_LIMIT, Report, Retrieval, print_report
from daemon.demo.run import DemoProgress, DemoRun, write_settings
from daemon.demo.screen import Screen, introduction, reopening
from daemon.exits import UserError
from daemon.look.curves import CurveLine, Curves, Point


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("rate", "lists", "seconds"), [(200.0, 1000, 5.0), (2.0, 10, 4.5), (float("inf"), 50, 0.0)]
)
def test_users_show_no_more_lists_a_second_than_they_are_told(
    monkeypatch: pytest.MonkeyPatch, rate: float, lists: int, seconds: float
) -> None:
    clock, out = Clock(), io.StringIO()
    monkeypatch.setattr(users, "time", clock)
    users.write_lines(({"id": number} for number in range(lists)), rate, out)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == list(range(lists))
    assert clock.now - 100.0 == pytest.approx(seconds, abs=0.03)
    assert all(one >= users.FLUSH_SECONDS for one in clock.slept)


class Role:
    """A process that ends when it is told to."""

    def __init__(self, ended: int | None = None) -> None:
        self.ended, self.told = ended, 0

    def poll(self) -> int | None:
        return self.ended

    def terminate(self) -> None:
        self.told += 1
        self.ended = 0


def test_users_wait_for_the_learner_and_all_that_they_clicked_is_learned_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.demo.run.LOOK_SECONDS", 0.0)
    demo = DemoRun(tmp_path, write_settings(tmp_path, DemoPorts("127.0.0.1", 1, 2, 3)), 0)
    learn, validate, feed = Role(), Role(), Role()
    written, judged, waiting = iter([0, 0, *[3] * 99]), iter([*[1] * 14, *[3] * 99]), iter([5, 5, 0, 7])
    looks: list[DemoProgress] = []
    fed_at: list[int] = []

    def now() -> DemoProgress:
        count = next(written)
        points = CurveLine(None, tuple(points_of(min(count, next(judged)))))
        looks.append(DemoProgress(Curves((points,), best=0, stopped_by=None), count, 1.0))
        return looks[-1]

    def start_feed(stack: object) -> Role:
        fed_at.append(len(looks))
        feed.ended = 0  # all lists are shown at once
        return feed

    monkeypatch.setattr(demo, "look", now)
    monkeypatch.setattr(demo, "_feed", start_feed)
    monkeypatch.setattr(demo, "_nothing_waits", lambda: next(waiting, 0) == 0)
    roles: Any = {"learn": learn, "validate": validate}
    seen = list(demo.watch(roles))
    assert fed_at == [3]  # two looks found no version
    assert learn.told == 1
    assert next(waiting, None) is None  # it was asked until nothing waited for a while
    assert seen[-1].curves.judged[-1].version == 2
    assert not demo.out_of_time


@pytest.mark.parametrize("kept", [True, False])
def test_a_page_is_kept_however_late_the_first_version_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr("daemon.demo.run.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("daemon.demo.run.JUDGE_SECONDS", 0.0)
    demo = DemoRun(tmp_path, write_settings(tmp_path, DemoPorts("127.0.0.1", 1, 2, 3)), 0)
    learn, written = Role(), iter([(0, 700.0), (1, 800.0), (1, 1050.0), *[(1, 1150.0)] * 9])

    def now() -> DemoProgress:
        versions, seconds = next(written)
        return DemoProgress(Curves((CurveLine(None, ()),), best=0, stopped_by=None), versions, seconds)

    monkeypatch.setattr(demo, "look", now)
    monkeypatch.setattr(demo, "_feed", lambda stack: Role())
    roles: Any = {"learn": learn, "validate": Role()} | ({"serve": Role()} if kept else {})
    if not kept:
        with pytest.raises(UserError, match="nothing was learned within 600 s"):
            list(demo.watch(roles))
        return
    seen = [look.seconds for look in demo.watch(roles)]
    assert seen[:4] == [700.0, 800.0, 1050.0, 1150.0]  # the time to learn counts from the first version on
    assert demo.out_of_time
    assert learn.told == 1


STOPPED = "no gain of .02 in 15,000 events and 3 judged versions"


def report(stopped_by: str) -> Report:
    before, after = Retrieval(0.25, 0.5, 0.2, 0.4, 359), Retrieval(0.5, 0.71, 0.35, 0.6, 359)
    return Report(before, after, 62_000, 71.4, 13, 12, stopped_by)


@pytest.mark.parametrize(
    ("stopped_by", "why"),
    [
        (STOPPED, "Learning stopped by itself: no gain of .02 in 15,000 events"),
        (TIME_LIMIT, "had not stopped by itself"),
        (ALL_LEARNED, "All clicks were learned before"),
    ],
)
def test_the_end_says_what_came_of_it_and_why_it_ended(stopped_by: str, why: str) -> None:
    told = report(stopped_by).sentence()
    assert told.startswith(
        "After 62,000 events in 71 s, 7.1 of the 10 nearest photos are of the query's class; 5.0 were"
    )
    assert why in told


def test_the_closing_table_has_both_sides_and_names_every_file() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    print_report(report(STOPPED), [Path("run/report.json"), Path("run/curve.png")], console)
    text = console.export_text()
    for told in (
        "your ranking",
        "version 12",
        ".250",
        "x 2.00",
        "+0.210",
        "run/curve.png",
    ):
        assert told in text
    assert max(map(len, text.splitlines())) <= 80


def points_of(count: int) -> list[Point]:
    return [
        Point(number, events=5000 * number, measures={"map_full": 0.2 + 0.01 * number, "p10_full": 0.5})
        for number in range(count)
    ]


def look(count: int) -> DemoProgress:
    line = CurveLine(None, tuple(points_of(count)))
    return DemoProgress(Curves((line,), best=count - 1, stopped_by=None), count, 12.0)


def test_the_table_keeps_your_ranking_in_view(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, record=True)
    with Screen(console).open() as screen:
        screen.show(look(40))
    text = console.export_text()
    assert "your ranking" in text
    assert "195,000" in text  # the newest
    assert "50,000" not in text.replace("150,000", "")  # those between are left out


def test_elsewhere_each_judged_version_is_a_line_once() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    with Screen(console).open() as screen:
        for count in (1, 2, 2, 3):
            screen.show(look(count))
    assert [line.split()[1] for line in console.export_text().splitlines()] == ["0", "1", "2"]


def test_the_introduction_and_the_way_back_name_the_folder(tmp_path: Path) -> None:
    assert str(tmp_path) in introduction(tmp_path)
    told = reopening(tmp_path / "tripletd.toml", "http://127.0.0.1:9103/")
    assert f"serve --config {tmp_path}/tripletd.toml" in told
    assert "http://127.0.0.1:9103/" in told
