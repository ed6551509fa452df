"""`tripletd models migrate`: queries of another embedding model over the old objects."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, load
from daemon.exits import EX_OK


class FitMethodName(StrEnum):
    """How the matrix is fitted."""

    auto = "auto"
    ridge = "ridge"
    procrustes = "procrustes"


def migrate(
    *,
    pairs: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The same texts by both models: a table (.parquet, .arrow) with the columns new and old, or "
            ".npz with such arrays.",
        ),
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The new model's name, as queries may say it in views.")
    ] = "new",
    view: Annotated[
        str, typer.Option(metavar="VIEW", show_default=False, help="Whose vectors are old; the only one.")
    ] = "",
    method: Annotated[
        FitMethodName, typer.Option(help="auto tries both, and pairs that are left out choose.")
    ] = FitMethodName.auto,
    least_recall: Annotated[
        float,
        typer.Option(min=0, max=1, help="Write nothing where less of the old ten nearest objects stays."),
    ] = 0.2,
    dry_run: Annotated[bool, common.flag("--dry-run", "Fit and report; write nothing.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Write a version that also takes queries of another embedding model; objects stay as they are.

    Stop `learn` meanwhile. See docs/another-embedding-model.md.
    """
    from daemon.models.migrate import MigrationRequest
    from daemon.models.migrate import migrate as write

    asked = MigrationRequest(pairs, name, view, method.value, least_recall)
    made = write(load(config, set_), asked, dry_run=dry_run)
    if json:
        common.write_json(asdict(made))
        return EX_OK
    written = "nothing is written" if made.version is None else f"version {made.version}, behind {made.of}"
    typer.echo(
        f"{written}: queries of {made.name}, {made.dims[0]:,} numbers, become those of view {made.view}, "
        f"{made.dims[1]:,}, by {made.way} of {made.pairs:,} pairs"
    )
    typer.echo(
        f"of {made.left_out:,} pairs left out: of the ten nearest of {made.objects:,} objects "
        f"{made.recall:.3f} stay, cosine {made.cosine:.3f}, R^2 {made.explained:.3f}"
    )
    return EX_OK
