"""The summary tells every row, and a bad one or an empty one is never a success."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kill.forks import Forks
from tests.kill.site import embedded
from tests.kill.tally import Tally
from tests.soak.__main__ import _make
from tests.soak.arguments import GROUPS, parse
from tests.soak.rows import Place, Row, rows
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


def test_an_experiment_that_breaks_is_a_bad_row(tmp_path: Path) -> None:
    def broken(place: Place) -> list[Tally]:
        raise RuntimeError("no broker")

    with Forks() as forks:
        place = Place(tmp_path / "row", embedded, forks, parse([]))
        (line,) = _make(Row("kills", "log", broken), place)
    assert line.bad == 1
    assert "no broker" in line.told[0]


def test_by_default_every_group_and_at_least_200_kills() -> None:
    asked = parse([])
    groups = [row.group for row in rows(asked)]
    assert set(groups) == set(GROUPS)
    each = -(-asked.kills // (7 * len(asked.streams)))
    assert groups.count("kills") * each >= 200
    assert {row.stream for row in rows(parse(["--stream", "log", "--only", "kills", "faults"]))} == {"log"}
