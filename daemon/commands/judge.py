"""`tripletd judge`: a line of versions on the same held-out lists, by several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    placed_cells,
    require_format,
    require_known,
)
from daemon.exits import EX_DATAERR, EX_OK, EX_UNAVAILABLE, UserError

if TYPE_CHECKING:
    from rich.table import Table

    from daemon.judging.samples import PlacedVersion
    from daemon.judging.versions import JudgedVersion


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
    """Compare versions on the same held-out lists, without promoting any: which differ from the best?"""
    from daemon.backfill.run import BackfillJob
    from daemon.judging.run import judge_versions
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
    given = BackfillJob(history, format_, mapping) if history else None
    found = judge_versions(
        effective, versions, numbers, given, workers=Workers(workers, address, nice), note=common.write_note
    )
    measure = by or default_measure(effective)
    placed = {one.at: one for one in compare([one.scores for one in found.versions], measure)}
    rows = [_row(one, placed.get(at)) for at, one in enumerate(found.versions)]
    if csv is not None:
        flat = [{k: v for k, v in (row | row["measures"]).items() if k != "measures"} for row in rows]
        csv.write_text(csv_of(flat), encoding="utf-8")
    if json_:
        failed = {str(number): str(error) for number, error in found.failed.items()}
        about = {"measure": measure, "lists": found.lists, "seconds": round(found.seconds, 3)}
        common.write_json(about | {"versions": rows, "failed": failed})
    else:
        common.console().print(_table(found.versions, placed, measure))
        failures = (f"version {number}: not judged: {error}" for number, error in found.failed.items())
        common.say(f"on {found.lists:,} held-out lists, in {found.seconds:.1f} s", *failures)
    return EX_OK if found.versions else EX_DATAERR


def _row(one: JudgedVersion, place: PlacedVersion | None) -> dict[str, Any]:
    from daemon.judging.samples import finite

    stands = {} if place is None else finite(place.columns())
    return {"version": one.number, "events": one.events, "hash": one.hash, **stands} | {
        "measures": dict(one.scores.measures)
    }


def _table(versions: Sequence[JudgedVersion], placed: Mapping[int, PlacedVersion], measure: str) -> Table:
    made = common.table(right=("version", "events", measure, "±", "to best", "±", "", "preference"))
    for at, one in enumerate(versions):
        stands = placed_cells(placed[at]) if at in placed else ["-"] * 5
        preference = one.scores.measures.get("preference")
        prefers = "-" if preference is None else f"{preference:+.3f}"
        made.add_row(f"{one.number}", f"{one.events:,}", *stands, prefers)
    return made
