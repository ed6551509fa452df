"""`tripletd judge`: a line of versions on the same held-out lists, by several processes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, load, opened
from daemon.commands.history import (
    ClusterOption,
    CsvOption,
    FormatOption,
    MappingOption,
    MeasureOption,
    NiceOption,
    WorkersOption,
    csv_of,
    require_format,
    require_known,
)
from daemon.exits import EX_DATAERR, EX_OK, EX_UNAVAILABLE, UserError

if TYPE_CHECKING:
    from daemon.judging.run import JudgedVersions
    from daemon.judging.samples import PlacedVersion


def judge(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="VERSION...", help="Numbers or names; by default every version that is kept."),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Lists of these instead of the holdout topic's, as backfill takes them; may be repeated.",
        ),
    ] = None,
    format_: FormatOption = None,
    mapping: MappingOption = None,
    by: MeasureOption = None,
    workers: WorkersOption = 1,
    address: ClusterOption = None,
    nice: NiceOption = 0,
    csv: CsvOption = None,
    json_: JsonOption = False,
) -> int:
    """Judge versions on the same held-out lists, and say which differ from the best; writes no verdict."""
    from daemon.judging.run import HistoryOfLists, judge_versions
    from daemon.judging.samples import compare
    from daemon.judging.versions import COMPARED, default_measure
    from daemon.models.decide import number_of
    from daemon.runtime.logs import configure
    from daemon.work_pool import Workers

    effective = load(config, set_)
    require_format(format_)
    require_known("--by", by, COMPARED)
    configure("error", effective.log.format, "judge")
    versions, _, entries = opened(effective)
    kept = versions.versions()
    if not kept:
        raise UserError(
            f"no version in {effective.checkpoints.path}", "run `tripletd learn` first", EX_UNAVAILABLE
        )
    numbers = sorted({number_of(one, kept, entries) for one in names or map(str, kept)})
    given = HistoryOfLists(history, format_, mapping) if history else None
    found = judge_versions(
        effective, versions, numbers, given, workers=Workers(workers, address, nice), note=common.write_note
    )
    measure = by or default_measure(effective)
    placed = compare([one.scores for one in found.versions], measure)
    rows = _rows(found, placed)
    if csv is not None:
        csv.write_text(csv_of([_flat(row) for row in rows]), encoding="utf-8")
    if json_:
        failed = {str(number): str(error) for number, error in found.failed.items()}
        common.write_json(
            {
                "measure": measure,
                "lists": found.lists,
                "seconds": round(found.seconds, 3),
                "versions": rows,
                "failed": failed,
            }
        )
    else:
        common.console().print(_table(rows, measure))
        common.say(f"on {found.lists:,} held-out lists, in {found.seconds:.1f} s")
        for number, error in found.failed.items():
            common.say(f"version {number}: not judged: {error}")
    return EX_OK if found.versions else EX_DATAERR


def _rows(found: JudgedVersions, placed: list[PlacedVersion]) -> list[dict[str, Any]]:
    """A row of plain values for each version, oldest first."""
    by_place = {one.at: one for one in placed}
    rows = []
    for at, one in enumerate(found.versions):
        row: dict[str, Any] = {"version": one.number, "events": one.events, "hash": one.hash}
        place = by_place.get(at)
        if place is not None:
            row |= {
                "score": place.score.mean,
                "half_width": _finite(place.score.half_width()),
                "to_best": place.to_best.mean,
                "to_best_half_width": _finite(place.to_best.half_width()),
                "is_best": place.is_best,
                "within_noise": place.noise,
            }
        rows.append(row | {"measures": dict(one.scores.measures)})
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its measures as columns."""
    return {**{name: value for name, value in row.items() if name != "measures"}, **row["measures"]}


def _table(rows: list[dict[str, Any]], measure: str) -> Any:
    made = common.table(right=("version", "events", measure, "±", "to best", "±", "", "preference"))
    for row in rows:
        said = [f"{row['version']}", f"{row['events']:,}"]
        if "score" in row:
            told = "best" if row["is_best"] else "within noise" if row["within_noise"] else ""
            difference = "" if row["is_best"] else f"{row['to_best']:+.4f}"
            width = "" if row["is_best"] else _number(row["to_best_half_width"])
            said += [f"{row['score']:.4f}", _number(row["half_width"]), difference, width, told]
        else:
            said += ["-"] * 5
        preference = row["measures"].get("preference")
        said.append("-" if preference is None else f"{preference:+.3f}")
        made.add_row(*said)
    return made


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
