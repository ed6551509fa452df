"""The summary tells every row, and a bad one or an empty one is never a success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.kill.forks import Forks
from tests.harness.kill.site import embedded
from tests.harness.kill.tally import Tally
from tests.soak import table
from tests.soak.__main__ import _make
from tests.soak.arguments import GROUPS, parse
from tests.soak.rows import KILL_PLANS, Place, Row, rows
from tests.soak.table import line_of, text


def test_a_case_that_fails_is_counted_and_the_next_goes_on() -> None:
    tally = Tally("trials")
    for number in range(3):
        with tally.case(f"case {number}"):
            assert number != 1, "one is wrong"
    line = line_of("log", tally)
    assert (line.tried, line.bad) == (3, 1)
    assert "case 1" in text([line])
    assert "one is wrong" in text([line])
    with pytest.raises(AssertionError, match="1 of 3"):
        tally.check()


def test_nothing_tried_is_bad() -> None:
    assert line_of("log", Tally("nothing")).bad == 1
    with pytest.raises(AssertionError, match="nothing was tried"):
        Tally("nothing").check()


def test_an_experiment_that_breaks_is_a_bad_row(tmp_path: Path, forks: Forks) -> None:
    def broken(place: Place) -> list[Tally]:
        raise RuntimeError("no broker")

    place = Place(tmp_path / "row", embedded, forks, parse([]))
    (line,) = _make(Row("kills", "log", broken), place)
    assert line.bad == 1
    assert "no broker" in line.told[0]


def test_by_default_every_group_and_at_least_200_kills() -> None:
    asked = parse([])
    groups = [row.group for row in rows(asked)]
    assert set(groups) == set(GROUPS)
    each = -(-asked.kills // (KILL_PLANS * len(asked.streams)))
    assert groups.count("kills") == KILL_PLANS * len(asked.streams)
    assert groups.count("kills") * each >= 200
    assert each >= 10
    assert {row.stream for row in rows(parse(["--stream", "log", "--only", "kills", "faults"]))} == {"log"}


def test_rows_that_were_not_made_this_time_stay_with_what_their_run_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RESULTS", tmp_path / "results.json")
    table.write([table.line_of("log", Tally("one", 3)), table.line_of("log", Tally("two", 3))], parse([]))
    table.write([table.line_of("log", Tally("two", 5))], parse(["--seed", "7"]))
    rows = {row["what"]: row for row in json.loads(table.RESULTS.read_text())["rows"]}
    assert {what: (row["tried"], row["arguments"]["seed"]) for what, row in rows.items()} == {
        "one": (3, 1),
        "two": (5, 7),
    }
