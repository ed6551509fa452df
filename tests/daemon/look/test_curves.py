"""One history out of manifests, pruned ones and verdicts."""

from __future__ import annotations

import csv
import io
import json

import pytest

from checkpoints import LedgerEntry, Manifest
from daemon.look.charts import csv_pieces
from daemon.look.curves import LOSS, Curves, VersionPlace, curves_of, place_of, places_of_pruned


def place(number: int, parent: int | None, events: int, loss_sum: float = 0.0) -> VersionPlace:
    return VersionPlace(number, parent, f"2026-01-01T00:00:{number:02d}+00:00", 1, events, events, loss_sum)


def judged(n: int, version: int, value: float, events: int, reference: float = 0.2) -> LedgerEntry:
    measures = {"events": events, "map_full": value, "map_shown": value + 0.1, "shown_order_map": 0.7}
    return LedgerEntry(
        n=n,
        kind="KEEP",
        version=version,
        reason=f"map_full {value}",
        measures={**measures, "version_0": {"map_full": reference}},
    )


ROLLED_BACK = [place(0, None, 0), place(1, 0, 100), place(2, 1, 200), place(4, 1, 180), place(5, 4, 300)]
VERDICTS = [
    judged(1, 0, 0.2, 0),
    judged(2, 1, 0.4, 100),
    judged(3, 2, 0.1, 200),
    LedgerEntry(n=4, kind="PROMOTE", version=1, alias="best"),
    judged(5, 5, 0.5, 300),
]


def test_after_a_rollback_the_current_line_goes_on_from_the_older_version() -> None:
    curves = curves_of(ROLLED_BACK, VERDICTS)
    current, behind = (line.series("map_full") for line in curves.lines)
    assert (current.versions, current.events, current.values) == ([0, 1, 5], [0, 100, 300], [0.2, 0.4, 0.5])
    assert (behind.versions, behind.values) == ([1, 2], [0.4, 0.1])  # drawn from where it left
    assert current.reference == [0.2, 0.2, 0.2]
    assert [point.version for point in curves.judged] == [0, 1, 5]
    assert curves.best_point() == curves.lines[0].points[1]


def test_what_the_shown_order_reaches_stands_beside_its_measure() -> None:
    series = curves_of(ROLLED_BACK, VERDICTS).current.series("map_shown")
    assert series.shown_order == [0.7, 0.7, 0.7]
    assert curves_of(ROLLED_BACK, VERDICTS).current.series("map_full").shown_order == [None] * 3


def test_the_loss_is_that_of_the_events_since_the_parent() -> None:
    places = [
        place(0, None, 0), place(1, 0, 1000, 800.0), place(3, 1, 3000, 1800.0), place(4, 1, 1500, 1550.0)
    ]  # fmt: skip
    curves = curves_of(places, [])
    assert curves.kinds() == []
    assert curves.current.series(LOSS).values == [0.8, 1.5]  # version 4 counts from version 1, not from 3
    assert curves.lines[1].series(LOSS).values == [0.8, 0.5]


def test_a_version_of_few_events_has_the_loss_of_those_before_it_too() -> None:
    """The last version before a stop may have learned a handful of events, whose mean says nothing."""
    stops = [
        place(0, None, 0),
        place(1, 0, 2000, 1000.0),
        place(2, 1, 2003, 1009.0),
        place(3, 2, 2010, 1015.0),
    ]
    first, *few = curves_of(stops, []).current.series(LOSS).values
    assert first == 0.5
    assert few == pytest.approx([1009 / 2003, 1015 / 2010])
    lost = [place(2, 1, 2003, 1009.0), place(3, 2, 2010, 1015.0)]  # version 1 is not known
    assert curves_of(lost, []).current.series(LOSS).values == pytest.approx([6 / 7])
    same = [*stops[:2], place(2, 1, 2000, 1000.0)]
    assert curves_of(same, []).current.points[-1].loss is None, "no event came"


def test_a_version_that_only_the_ledger_knows_has_its_place_by_its_events() -> None:
    curves = curves_of([place(0, None, 0), place(3, 2, 300)], [judged(1, 2, 0.4, 200)])
    (line,) = curves.lines
    assert [(point.version, point.events, point.records) for point in line.points] == [
        (0, 0, 0), (2, 200, None), (3, 300, 300)
    ]  # fmt: skip
    assert [point.loss for point in line.points] == [None, None, None]


def test_the_newest_judgment_of_a_version_counts_and_a_refused_one_does_not() -> None:
    again = [*VERDICTS, judged(6, 5, 0.3, 300)]
    refused = LedgerEntry(n=7, kind="KEEP", version=4, measures={"refused": True, "events": 180})
    assert curves_of(ROLLED_BACK, [*again, refused]).current.series("map_full").values == [0.2, 0.4, 0.3]


def test_a_pruned_version_has_the_place_that_it_had() -> None:
    manifest = Manifest(
        kind="version",
        number=7,
        epoch=3,
        writer="w",
        created="2026-01-01T00:00:00+00:00",
        parent=2,
        schedule=({"control": "branch", "from_version": 2, "start": "checkpoint"}, (0, 5, 9)),
        counters={"updated": 5, "passive": 2, "rejected": 9, "records": 20, "loss_sum": 1.5},
    )
    kept = place_of(manifest)
    assert kept.marks == ("continued from version 2",)
    assert (kept.records, kept.events) == (20, 7)
    assert list(places_of_pruned([json.loads(manifest.to_json())])) == [kept]


@pytest.mark.parametrize("line", [{}, {"number": 3, "damaged": "torn"}, {"number": "x", "parent": None}])
def test_lines_of_pruned_versions_that_say_too_little_are_passed_over(line: dict[str, object]) -> None:
    assert list(places_of_pruned([line])) == []


def test_csv_has_every_version_of_every_line_once() -> None:
    rows = list(csv.DictReader(io.StringIO("".join(csv_pieces(curves_of(ROLLED_BACK, VERDICTS))))))
    assert [(row["line"], row["left"], row["version"], row["map_full"]) for row in rows] == [
        ("0", "", "0", "0.2"),
        ("0", "", "1", "0.4"),
        ("0", "", "4", ""),
        ("0", "", "5", "0.5"),
        ("1", "1", "2", "0.1"),
    ]
    assert {row["map_full.version_0"] for row in rows} == {"0.2", ""}
    assert rows[1]["records"] == "100"


def test_an_empty_store_has_an_empty_history() -> None:
    curves = curves_of([], [])
    assert curves == Curves((), None, None)
    assert curves.current.points == ()
    assert curves.best_point() is None
    assert "".join(csv_pieces(curves)).count("\n") == 1
