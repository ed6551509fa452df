"""`tripletd ratings report|export`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, facts, load
from daemon.exits import EX_DATAERR, EX_OK, UserError

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.ratings.report import RatingsReport, SystemPrecision
    from daemon.ratings.study import Rating

app = typer.Typer(help="What people say of two rankings at /rate.", no_args_is_help=True)

StudyOption = Annotated[
    str | None,
    typer.Option("--study", metavar="NAME", show_default=False, help="Another than serve.ratings.study."),
]


@app.command("report")
def report(
    *,
    study: StudyOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Precision at 1 to 10 of both systems, by rater and on average, and how far the raters agree."""
    from daemon.ratings.report import report_of

    name, ratings = _ratings(load(config, set_), study)
    found = report_of(name, ratings)
    return common.show(json, asdict(found), lambda: _print(found))


@app.command("export")
def export(
    out: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", show_default=False, help="What is written; else standard output."),
    ] = None,
    *,
    share: Annotated[
        float,
        typer.Option(
            min=0.01, max=1.0, metavar="S", help="An object is relevant where this share of raters marked it."
        ),
    ] = 0.5,
    study: StudyOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Judgments that validate.judgments reads: TREC qrels, a line for each object that was rated."""
    from daemon.models.derive import write_new
    from daemon.ratings.report import qrels

    _, ratings = _ratings(load(config, set_), study)
    text = "".join(f"{line}\n" for line in qrels(ratings, share))
    if out is None:
        sys.stdout.write(text)
    else:
        write_new(out, lambda file: file.write(text.encode()))
    return EX_OK


def _ratings(config: Config, study: str | None) -> tuple[str, list[Rating]]:
    from daemon.ratings.kept import ratings_path, read_ratings

    path, name = ratings_path(config), study or config.serve.ratings.study
    known = read_ratings(path)
    found = known.of(name)
    if not found:
        others = ", ".join(sorted(known.studies)) or "none"
        message = f"{path}: nobody has rated anything in the study {name!r}"
        remedy = f"name another with --study (there: {others}), or let people rate"
        raise UserError(message, remedy, EX_DATAERR)
    return name, found


def _print(found: RatingsReport) -> None:
    assert found.systems is not None
    raters = ", ".join(f"{name} {count}" for name, count in found.raters.items())
    agreement = found.agreement
    console().print(
        facts(
            [
                ("study", f"{found.study}: {found.queries} queries, {found.ratings} ratings"),
                ("queries rated by", raters),
                ("agreement", _agreed(found)),
                *(_spread(one) for one in found.systems if one.spread_queries is not None),
            ]
        )
    )
    if agreement.objects and agreement.fleiss is None:
        common.write_note("kappa is not defined where all marks are the same")
    names = [_named(one) for one in found.systems]
    table = common.table(right=("k", *names, "difference", "95 % of it"))
    for rank, (one, other, less) in enumerate(
        zip(found.systems[0].precision, found.systems[1].precision, found.difference, strict=True), start=1
    ):
        ends = "" if less.low is None or less.high is None else f"{less.low:+.3f} to {less.high:+.3f}"
        means = (f"{it.mean:.3f}" + ("" if it.error is None else f" ± {it.error:.3f}") for it in (one, other))
        table.add_row(str(rank), *means, f"{less.mean:+.3f}", ends)
    console().print(table)
    by_rater = common.table("rater", right=[f"{name} P@{k}" for name in names for k in (1, 5, 10)])
    for rater in found.raters:
        rows = [one.by_rater[rater] for one in found.systems]
        by_rater.add_row(rater, *(f"{row[k - 1]:.3f}" for row in rows for k in (1, 5, 10)))
    console().print(by_rater)


def _named(one: SystemPrecision) -> str:
    name, model = one.system.name, one.system.model
    if name.isdecimal():
        return f"version {name}"
    return f"{name} ({model})" if model else name


def _agreed(found: RatingsReport) -> str:
    one = found.agreement
    if one.same is None:
        return "not known before two raters have rated the same query"
    told = [f"{one.same:.0%} of the pairs of marks"]
    if one.fleiss is not None:
        told.append(f"Fleiss' kappa {one.fleiss:.3f}")
    if one.cohen is not None:
        told.append(f"Cohen's kappa {one.cohen:.3f} (mean of {one.pairs} pairs)")
    return ", ".join(told)


def _spread(one: SystemPrecision) -> tuple[str, str]:
    over_raters = "not known" if one.spread_raters is None else f"{one.spread_raters:.3f}"
    told = f"average precision varies by {one.spread_queries:.3f} over queries, {over_raters} over raters"
    return _named(one), told
