"""What status and curves show, without a store: numbers, lag, the chart in the terminal."""

from __future__ import annotations

from rich.text import Text

from checkpoints import LedgerEntry
from daemon.look.charts import terminal_chart
from daemon.look.curves import CurveSeries
from daemon.look.overview import summary
from daemon.look.status import dropped, lags
from daemon.text import ago, measure, number_runs, size, span
from daemon.versions.verdict import PlainAnswer


def test_numbers_are_told_in_runs() -> None:
    assert [number_runs(one) for one in ([], [4], [0, 1, 3, 4, 5, 9])] == ["", "4", "0 to 1, 3 to 5, 9"]


def test_a_resume_lifts_the_stop() -> None:
    entries = [LedgerEntry(n=1, kind="STOP", version=3, reason="no gain")]
    assert summary(entries).stopped_by == "no gain"
    entries.append(LedgerEntry(n=2, kind="RESUME", version=3, reason="drift"))
    assert summary(entries).stopped_by is None


def test_the_newest_answer_is_told() -> None:
    """Also one that an older release wrote."""
    old = LedgerEntry(n=1, kind="KEEP", version=1, measures={"evidence": {"is_better": "yes: version 2"}})
    new = PlainAnswer("not known yet", "Not known yet: more lists", ("why",))
    entries = [old, LedgerEntry(n=2, kind="KEEP", version=2, measures={"answer": new.to_json()})]
    assert summary([]).verdict is None
    assert summary(entries[:1]).verdict == PlainAnswer("yes", "Yes: version 2")
    assert summary([*entries, LedgerEntry(n=3, kind="PROMOTE", version=2)]).verdict == new


def test_the_form_of_the_best_version_is_told() -> None:
    entries = [
        LedgerEntry(n=1, kind="KEEP", version=1, measures={"form": {"why": "power 1.5: as said"}}),
        LedgerEntry(n=2, kind="KEEP", version=2, measures={"form": {"why": "of another version"}}),
    ]
    assert summary(entries).form is None, "version 0 is best"
    promoted = LedgerEntry(n=3, kind="PROMOTE", version=1, alias="best")
    assert summary([*entries, promoted]).form == "power 1.5: as said"
    unjudged = LedgerEntry(n=3, kind="PROMOTE", version=7, alias="best")
    assert summary([*entries, unjudged]).form is None


def test_lag_counts_from_what_is_still_there() -> None:
    (fresh,) = lags({0: (10, 25)}, None)
    assert (fresh.position, fresh.lag) == (None, 15)


def test_records_that_are_gone_unlearned_are_told() -> None:
    (told,) = dropped({0: (10, 25), 1: (10, 25), 2: (5, 9)}, {0: 4, 1: 10})
    assert "partition 0: 6 records" in told
    assert "--accept-gap" in told


def chart(events: list[int], values: list[float], before: list[float | None], width: int = 40) -> list[str]:
    series = CurveSeries(list(range(len(events))), events, values, before, [None] * len(events))
    return Text.from_ansi(terminal_chart(series, width, 9)).plain.splitlines()


def test_the_chart_rises_where_the_values_rise() -> None:
    rows = chart([0, 5000, 10_000], [0.1, 0.2, 0.4], [0.1, 0.1, None])
    assert (len(rows), max(map(len, rows))) == (9, 40)
    assert rows[0].startswith("0.400┤")
    assert rows[0].rstrip().endswith("●")  # a dot at each version
    assert rows[6].startswith("0.100┤●")
    assert sum(row.count("●") for row in rows) == 3
    assert "•••" in rows[6]  # version 0 beside it
    assert (rows[-1].split()[0], rows[-1].rstrip().endswith("10,000 events")) == ("0", True)


def test_one_point_and_a_level_line_are_charts_too() -> None:
    assert sum(row.count("●") for row in chart([5], [0.3], [None])) == 1
    assert sum(row.count("●") for row in chart([0, 9], [0.3, 0.3], [0.3, 0.3])) == 2
    assert not any("●" in row for row in chart(list(range(50)), [0.5] * 50, [None] * 50))  # too many for dots


def test_numbers_as_people_read_them() -> None:
    assert [size(n) for n in (12, 1536, 5 << 20)] == ["12 B", "1.5 KiB", "5.0 MiB"]
    assert [span(s) for s in (-3, 45, 720, 10_800, 800_000)] == ["0 s", "45 s", "12 m", "3 h", "9 d"]
    assert ago("2026-01-01T00:00:00+00:00", now=1767225600.0 + 60) == "60 s ago"
    assert ago("soon") == "soon"
    assert [measure(v) for v in (0.12345, None, 33.0, True, 1.0)] == ["0.123", "-", "33", "True", "1.000"]
