"""`tripletd index judge`."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, flag
from daemon.exits import EX_USAGE, UserError

app = typer.Typer(
    help="The vector store that you already have, asked with what was learned.", no_args_is_help=True
)


@app.command("judge")
def judge(
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="A number, or latest, best, stable, a pinned name.")
    ] = "stable",
    *,
    dry_run: Annotated[bool, flag("--dry-run", "Tell the verdict, keep nothing.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Judge each mode of the store by held-out lists, as the store answers; serve takes what holds.

    The verdict is kept with the version. It counts for later versions, too, until these have their own.
    """
    from daemon.index import open_index
    from daemon.index.verdicts import JudgedStore, choose_mode, keep_verdict
    from daemon.models.decide import number_of
    from daemon.validate.store_modes import judge_store

    settings = common.load(config, set_)
    index = open_index(settings.index)
    if index is None:
        raise UserError("no store is configured", "set index.store and the other keys of [index]", EX_USAGE)
    try:
        versions, _, entries = common.opened(settings)
        number = number_of(version, versions.versions(), entries)
        verdict = judge_store(settings, versions, number, index)
    finally:
        index.close()
    if not dry_run:
        keep_verdict(versions, verdict)
    asked = settings.index
    choice = choose_mode(verdict, JudgedStore(index.name, asked.candidates, asked.holds_exported))
    held = {True: "holds", False: "does not hold"}
    lines = [f"{mode}: {held[one.holds]}, {one.summary}" for mode, one in verdict.modes.items()]
    document = verdict.to_meta() | {"mode": choice.mode, "why": choice.why, "dry_run": dry_run}
    return common.show(json, document, lambda: common.say(*lines, f"auto is {choice.mode}: {choice.why}"))
