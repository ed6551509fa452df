"""`tripletd resume`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands.common import ConfigOption, JsonOption, SetOption, load, write_json, write_notes
from daemon.exits import EX_OK

if TYPE_CHECKING:
    from daemon.models.resume import Resumption


def resume(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    reason: Annotated[
        str,
        typer.Option(metavar="TEXT", show_default=False, help="Why, for those who read the ledger later."),
    ] = "asked for",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Tell what would be lifted; write nothing.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Let a stopped or paused learner go on from its position.

    After a pause for poison, records up to the place of the pause no longer count against the limit.
    """
    from daemon.look.readable import read_entries
    from daemon.models.resume import resumptions
    from daemon.versions.storage import open_for_reading

    _, ledger = open_for_reading(load(config, set_))
    entries, notes = read_entries(ledger)
    write_notes(notes)
    found = resumptions(entries, reason)
    written = [] if dry_run else [ledger.append(one.entry) for one in found]
    if json:
        lifted = [asdict(one.stop) for one in found]
        write_json({"lifted": lifted, "written": [asdict(entry) for entry in written], "dry_run": dry_run})
    else:
        _print(found, dry_run)
    return EX_OK


def _print(found: list[Resumption], dry_run: bool) -> None:
    for one in found:
        what = "pause" if one.is_pause else "stop"
        by = f" by {one.stop.by}" if one.stop.by else ""
        typer.echo(f"{'would lift' if dry_run else 'lifted'} the {what}{by}: {one.stop.reason}")
    if not found:
        typer.echo("nothing is stopped or paused")
