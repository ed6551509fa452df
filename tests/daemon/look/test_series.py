"""The ring of live numbers: bounded, gaps where nobody answered, a restart begins anew."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from daemon.look.live import LearnStatus, RoleStatus
from daemon.look.series import MOST_NAMES, Series


class Role:
    """A role whose numbers are set by the test."""

    def __init__(self) -> None:
        self.page: dict[str, Any] | None = {}
        self.began = 0.0
        self.unready: str | None = None
        self.folder = ""
        self.asked = threading.Event()

    def ask(self) -> RoleStatus | None:
        self.asked.set()
        return (
            None
            if self.page is None
            else LearnStatus(
                version="1",
                checkpoints=None,
                began=self.began,
                not_ready=self.unready,
                folder=self.folder,
                **self.page,
            )
        )


def test_rates_begin_with_the_second_answer_and_stop_with_the_last() -> None:
    role = Role()
    series = Series({"learn": role.ask})
    for moment, page in [(0, 0.0), (2, 20.0), (4, None), (6, 50.0), (8, 70.0)]:
        role.page = None if page is None else {"events": {"updated": page}}
        series.sample(float(moment))
    samples = series.after(-1.0)
    assert samples.times == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert samples.values["learn.events"] == [None, 10.0, None, None, 10.0]


def test_a_restarted_role_has_no_rate_across_its_restart() -> None:
    role = Role()
    series = Series({"learn": role.ask})
    for moment, count in enumerate([1000.0, 2000.0, 5.0, 8.0]):
        role.page, role.began = {"events": {"updated": count}}, 5.0 * (moment > 1)
        series.sample(float(moment))
    assert series.after(-1.0).values["learn.events"] == [None, 1000.0, None, 3.0]


def test_who_answers_and_when_somebody_last_did() -> None:
    role = Role()
    role.unready = "parked"
    series = Series({"learn": role.ask})
    assert series.states()[0].seen is None
    series.sample(5.0)
    assert (series.states()[0].answers, series.states()[0].not_ready) == (True, "parked")
    role.page = None
    series.sample(7.0)
    state = series.states()[0]
    assert (state.answers, state.seen, state.not_ready) == (False, 5.0, None)


def test_what_a_role_says_of_the_folder_is_its_state() -> None:
    role = Role()
    series = Series({"learn": role.ask})
    series.sample(5.0)
    assert series.states()[0].folder is None
    role.folder = "gone"
    series.sample(6.0)
    told = series.states()[0].folder
    assert told is not None
    assert told.startswith("the checkpoint folder is gone")


def test_why_a_role_is_down_is_asked_only_while_one_does_not_answer() -> None:
    learn, serve, asked = Role(), Role(), []

    def trouble() -> dict[str, str]:
        asked.append("up")
        return {"learn": "DOWN: records expired (exit 65)", "serve": "old news"}

    series = Series({"learn": learn.ask, "serve": serve.ask}, trouble=trouble)
    series.sample(1.0)
    assert asked == []
    learn.page = None
    series.sample(3.0)
    assert {one.role: one.down for one in series.states()} == {
        "learn": "DOWN: records expired (exit 65)",
        "serve": None,
    }
    learn.page = {}
    series.sample(5.0)
    assert [one.down for one in series.states()] == [None, None]
    assert asked == ["up"]


def test_the_ring_keeps_the_newest_and_no_more() -> None:
    role = Role()
    series = Series({"learn": role.ask}, kept=10)
    for moment in range(35):
        role.page = {"lag_events": moment}
        series.sample(float(moment))
    samples = series.after(-1.0)
    assert samples.times == [float(moment) for moment in range(25, 35)]
    assert samples.values["learn.lag_events"] == samples.times
    assert series.after(32.0).times == [33.0, 34.0]
    assert series.after(-1.0, most=1).times == [34.0]
    assert series.newest() == {"learn.lag_events": 34.0}


def test_names_without_end_do_not_grow_it() -> None:
    role = Role()
    series = Series({"learn": role.ask}, kept=4)
    for moment in range(MOST_NAMES * 2):
        role.page = {"dead_letters": {f"r{moment}": 1}}
        series.sample(float(moment))
    assert len(series._columns) == MOST_NAMES
    assert np.isfinite(series._ring).sum() == 0  # those first seen later are not kept


def test_its_thread_samples_at_once_and_ends() -> None:
    role = Role()
    series = Series({"learn": role.ask}, every=600.0)
    series.start()
    assert role.asked.wait(10)
    series.close()
    assert not series._thread.is_alive()
