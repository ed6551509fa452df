"""`tripletd up`: every role on this host from one file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from daemon.commands.common import ConfigOption, SetOption, config_file, load


def up(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool, typer.Option("--exit-when-caught-up", metavar="", help="End when all is learned and judged.")
    ] = False,
) -> int:
    """Run learn, validate and serve together; restart one that crashes."""
    effective = load(config, set_)  # a mistake in the file is told once, not by every role
    from daemon.runtime.logs import configure, get_logger
    from daemon.runtime.signals import Signals
    from daemon.runtime.watchdog import Notifier
    from daemon.up.ports import check_ports
    from daemon.up.roleprocess import RoleProcess
    from daemon.up.supervise import RoleSpec, Supervisor

    http = effective.http
    served = () if exit_when_caught_up else (http.serve_port,)
    check_ports(http.host, (http.learn_port, http.validate_port, *served))
    log_format = effective.log.format
    prefix = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    configure(effective.log.level, "console" if prefix else "json", "up")
    shared = _arguments(config_file(config), set_, exit_when_caught_up)
    # When caught up, validate goes on until it has judged what learn wrote last.
    ends_all = effective.validate.on_stop == "exit" and not exit_when_caught_up
    reader, writer = os.pipe()
    with Signals() as signals, open(reader, "rb") as learning, open(writer, "wb") as at_work:
        specs = [
            # However long learn takes, validate waits: its stdin ends when learn has finished.
            RoleSpec("learn", ("learn", *shared), ends_all, finished=at_work.close),
            RoleSpec("validate", ("validate", *shared, "--beside-learn")),
        ]
        if not exit_when_caught_up:  # such a run has an end, and nobody to be served
            specs.append(RoleSpec("serve", ("serve", *shared)))

        def start(spec: RoleSpec) -> RoleProcess:
            return RoleProcess(
                spec.name, spec.arguments, prefix, stdin=learning if spec.name == "validate" else None
            )

        notifier = Notifier.of_this_process()
        return Supervisor(specs, start, signals, get_logger(), notifier=notifier).run()


def _arguments(file: Path | None, settings: Sequence[str] | None, exit_when_caught_up: bool) -> list[str]:
    """The same file and overrides for every role."""
    arguments = ["--config", str(file)] if file else []
    for setting in settings or ():
        arguments += ["--set", setting]
    if exit_when_caught_up:
        arguments.append("--exit-when-caught-up")
    return arguments
