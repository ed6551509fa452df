"""`tripletd validate`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daemon.commands.common import ConfigOption, SetOption, load, start_role


def validate(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool,
        typer.Option("--exit-when-caught-up", metavar="", help="Leave when the newest version is judged."),
    ] = False,
    beside_learn: Annotated[bool, typer.Option("--beside-learn", hidden=True)] = False,
) -> int:
    """Judge versions on the holdout stream: promote the best, stop when nothing improves."""
    effective = start_role("validate", config, set_)
    from daemon.validate.role import ValidateOptions, run

    return run(
        effective, ValidateOptions(exit_when_caught_up, beside_learn), load=partial(load, config, set_)
    )
