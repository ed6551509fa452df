"""`tripletd sweep`: which settings learn best from the same history, judged on the same held-out lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.commands import common, history
from daemon.commands.common import ConfigOption, JsonOption, config_file, load
from daemon.exits import EX_DATAERR, EX_OK, EX_USAGE, UserError
from daemon.text import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.sweep.grid import Grid, Setting
    from daemon.sweep.run import Swept
    from daemon.sweep.table import SweepRow


def sweep(
    *,
    sources: history.SourcesArgument,
    config: ConfigOption = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="SECTION.KEY=V,V...", help="A key with its values; may be repeated."
        ),
    ] = None,
    grid: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="TOML with lists of values; of several files each is a grid of its own."
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="So many settings drawn from the grid.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="What --random draws by.")] = 0,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results and versions are kept.")] = Path(
        "sweep"
    ),
    by: history.MeasureOption = None,
    format_: history.FormatOption = None,
    mapping: history.MappingOption = None,
    workers: history.WorkersOption = 1,
    version_events: Annotated[
        int, typer.Option(min=1_000, metavar="N", help="Events between two versions of a setting.")
    ] = 250_000,
    address: history.ClusterOption = None,
    max_events_per_second: history.RateOption = 0.0,
    nice: history.NiceOption = 0,
    csv: history.CsvOption = None,
    json_: JsonOption = False,
) -> int:
    """Try many settings on the same click logs, and say which learns best.

    A run that was ended, whatever ended it, goes on with the same command; finished settings are kept.
    """
    from daemon.feed import stderr_console
    from daemon.judging.versions import COMPARED, default_measure
    from daemon.runtime.logs import configure
    from daemon.sweep.grid import settings_of
    from daemon.sweep.run import SweepJob, SweepReport
    from daemon.sweep.run import sweep as run
    from daemon.sweep.settings import check_base, trials_of
    from daemon.sweep.table import lines_of, rows_of
    from daemon.work_pool import Workers

    history.require_format(format_)
    history.require_known("--by", by, COMPARED)
    base = load(config, None)
    configure("error", base.log.format, "sweep")
    check_base(base)
    settings = settings_of(_grids(set_ or [], grid or []), random, seed)
    trials = trials_of(config_file(config), settings, out.absolute())
    crew = Workers(workers, address, nice)
    job = SweepJob(sources, out.absolute(), format_, mapping, crew, version_events, max_events_per_second)
    with history.reading(stderr_console) as status:
        progress = "{:,} of {:,} settings are done".format
        report = SweepReport(status.note, lambda done, every: status.update(progress(done, every)))
        swept = run(base, trials, job, report)
    measure = by or default_measure(base)
    rows = rows_of(settings, swept.results, measure)
    if csv is not None:
        csv.write_text(history.csv_of(lines_of(rows)), encoding="utf-8")
    _write(rows, measure, settings, swept, as_json=json_)
    return EX_OK if rows else EX_DATAERR


def _grids(options: Sequence[str], files: Sequence[Path]) -> list[Grid]:
    from daemon.config.load import read_toml
    from daemon.sweep.grid import check_keys, grid_of_options, grid_of_table

    given = grid_of_options(options)
    grids: list[Grid] = [{**grid_of_table(read_toml(path), str(path)), **given} for path in files]
    grids = grids or [given]
    if not all(grids):
        raise UserError("there is no key to sweep", "name some, such as --set learner.C=0.01,0.1,1", EX_USAGE)
    for one in grids:
        check_keys(one)
    return grids


def _write(
    rows: Sequence[SweepRow], measure: str, settings: Sequence[Setting], swept: Swept, *, as_json: bool
) -> None:
    from daemon.sweep.table import document, winner

    failed = {settings[at].name: str(error) for at, error in swept.failed.items()}
    if as_json:
        more = {"lists": swept.basis.lists, "fresh": swept.fresh, "seconds": round(swept.seconds, 3)}
        common.write_json(document(rows, measure, failed, more))
        return
    if rows:
        console = common.console()
        console.print(_table(rows, measure, console.width))
        said, lines = winner(rows)
        about = f"{said} ({measure} on {swept.basis.lists:,} held-out lists)"
        common.say("", about, *(f"  {line}" for line in lines))
    common.say(*(f"{name}: not judged: {why}" for name, why in failed.items()))


LEFT_OUT = ("seconds", "preference", "over own ranking")
"""Columns that a narrow terminal does without, the first one first; `--csv` and `--json` have all."""


def _table(rows: Sequence[SweepRow], measure: str, width: int) -> Any:
    from daemon.sweep.grid import text_of, varied
    from daemon.sweep.table import all_keys

    keys = varied([one.setting for one in rows]) or all_keys(rows)
    columns: list[tuple[str, list[str]]] = []
    for key in keys:
        values = (row.setting.overrides().get(key, "-") for row in rows)
        columns.append((key, [safe(text_of(value)) for value in values]))
    first, each = len(columns), [_cells(row) for row in rows]
    titles = (measure, "±", "to best", "±", "", "over own ranking", "preference", "seconds")
    columns += [(title, list(cells)) for title, cells in zip(titles, zip(*each, strict=True), strict=True)]
    for name in LEFT_OUT:
        wide = sum(max(len(title), *map(len, cells)) + 2 for title, cells in columns)
        if wide > width:
            columns = [one for one in columns if one[0] != name]
    made = common.table(right=[title for title, _ in columns])
    for column in made.columns[:first]:
        column.justify = "left"
    for cells in zip(*(cells for _, cells in columns), strict=True):
        made.add_row(*cells)
    return made


def _cells(row: SweepRow) -> tuple[str, ...]:
    from daemon.judging.versions import PREFERENCE, PREFERENCE_ERROR

    measures = row.result.scores.measures
    prefers = measures.get(PREFERENCE)
    return (
        *history.placed_cells(row.placed),
        history.number(row.over_own, "+.4f"),
        "-" if prefers is None else f"{prefers:+.3f} ± {2 * measures[PREFERENCE_ERROR]:.3f}",
        f"{row.result.seconds:.1f}",
    )
