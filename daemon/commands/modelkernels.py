"""`tripletd models kernels VERSION`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, load, write_json, write_notes
from daemon.exits import EX_OK
from daemon.text import measure

if TYPE_CHECKING:
    from rich.table import Table

    from daemon.validate.kernels import KernelRow


def kernels(
    name: Annotated[
        str, typer.Argument(metavar="VERSION", help="A number, or latest, best, stable, a pinned name.")
    ] = "best",
    *,
    queries: Annotated[int, typer.Option(min=1, max=100_000, help="Most judged queries.")] = 200,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """The kernels of a version: their weights, each one's own mAP, and the weights exp(mAP) of OMKS-W."""
    from daemon.look.overview import read_entries
    from daemon.models.decide import number_of
    from daemon.validate.kernels import judge_kernels
    from daemon.versions.storage import open_for_reading

    settings = load(config, set_)
    versions, ledger = open_for_reading(settings)
    entries, notes = read_entries(ledger)
    number = number_of(name, versions.versions(), entries)
    rows = judge_kernels(versions, number, settings, queries)
    if json:
        write_json({"version": number, "kernels": [asdict(row) for row in rows]})
        return EX_OK
    write_notes(notes)
    out = console()
    out.print(_table(rows))
    weights = [round(row.weight, 4) for row in rows if row.weight is not None]
    if len(weights) == len(rows):
        out.print(f'OMKS-W: learner.combine = "given", learner.weights = {weights}', soft_wrap=True)
    else:
        out.print("no judgments (validate.judgments): each one's mAP is not known")
    return EX_OK


def _table(rows: Sequence[KernelRow]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("kernel", no_wrap=True)
    for title in ("weight", "mAP alone", "exp(mAP)"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(row.name, measure(row.theta), measure(row.map), measure(row.weight))
    return table
