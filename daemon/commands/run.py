"""`tripletd learn`, `merge`, `validate`, `serve`, `up` and `resume`: the commands that run roles."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, ReasonOption, SetOption, flag, load, loading
from daemon.exits import EX_USAGE, UserError

_BesideLearn = Annotated[bool, typer.Option("--beside-learn", hidden=True)]


def _start(more: str) -> Any:
    text = f"Where to begin without a version: earliest, latest, ts=TIME, last=1h, offset={{...}}{more}"
    return typer.Option("--start", metavar="POSITION", help=text)


def learn(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool, flag("--exit-when-caught-up", "Leave when every record of the stream is learned.")
    ] = False,
    start: Annotated[
        str, _start("; checkpoint continues where the newest one stands. With a version, others need --jump.")
    ] = "checkpoint",
    restart_from: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="Branch from this version (a number or a name), once: a restart continues the branch; "
            "see --again.",
        ),
    ] = None,
    accept_gap: Annotated[
        bool, flag("--accept-gap", "Continue although the log dropped records not yet learned.")
    ] = False,
    jump: Annotated[
        bool, flag("--jump", "Leave the position of the version for --start: repeats or skips events.")
    ] = False,
    accept_log: Annotated[
        bool,
        flag(
            "--accept-log",
            "Continue, from --start, with a log that was recreated or replaced, or lost records.",
        ),
    ] = False,
    again: Annotated[
        bool, flag("--again", "Repeat a branch, or a change of the log, that was made before.")
    ] = False,
    take_over: Annotated[
        bool,
        flag("--take-over", "Start although another learner on this host has the folder: that one stops."),
    ] = False,
    shard: Annotated[
        int | None,
        typer.Option(
            envvar="TRIPLETD_SHARD",
            metavar="NUMBER",
            min=0,
            help="Which shard this learner is, counted from 0; shards.count says how many there are.",
        ),
    ] = None,
) -> int:
    """Learn from the stream and write numbered versions."""
    if jump and start == "checkpoint":
        message = "--jump leaves the version's position, and no --start names another"
        raise UserError(message, "name the place with --start, such as --start earliest", EX_USAGE)
    effective = common.start_role("learn" if shard is None else f"learn-{shard}", config, set_)
    with loading():
        from checkpoints.entries import MOST_DIGITS
        from daemon.learn.resume.origin import LearnOptions
        from daemon.learn.start import run

    is_number = restart_from is not None and restart_from.isdecimal() and len(restart_from) <= MOST_DIGITS
    number = int(restart_from) if restart_from is not None and is_number else None
    given = exit_when_caught_up, start, number, accept_gap, jump, accept_log, again
    name = restart_from if number is None else None
    options = LearnOptions(*given, restart_name=name, take_over=take_over, shard=shard)
    return run(effective, options, partial(load, config, set_))


def merge(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool, flag("--exit-when-caught-up", "Leave when the shards have learned everything and it is merged.")
    ] = False,
    start: Annotated[str, _start(".")] = "checkpoint",
    take_over: Annotated[
        bool,
        flag("--take-over", "Start although another process on this host has the folder: that one stops."),
    ] = False,
    beside_learn: _BesideLearn = False,
) -> int:
    """Join what several learners (shards.count) have learned into one version, as long as they learn."""
    effective = common.start_role("merge", config, set_)
    with loading():
        from daemon.learn.merger import MergeOptions, run

    options = MergeOptions(exit_when_caught_up, start, take_over, beside_learn)
    return run(effective, options, partial(load, config, set_))


def validate(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool, flag("--exit-when-caught-up", "Leave when the newest version is judged.")
    ] = False,
    beside_learn: _BesideLearn = False,
) -> int:
    """Judge each new version on held-out lists: promote the best, stop when nothing improves."""
    effective = common.start_role("validate", config, set_)
    with loading():
        from daemon.validate.role import ValidateOptions, run

    return run(
        effective, ValidateOptions(exit_when_caught_up, beside_learn), load=partial(load, config, set_)
    )


def serve(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=64, metavar="N", help="Processes on the same port: serve.processes."),
    ] = None,
    shared: Annotated[str, typer.Option(hidden=True)] = "",
) -> int:
    """Answer queries over HTTP with the newest and the best version.

    Of several processes, SIGUSR1 starts one after another again, and questions are answered all the time.
    """
    if processes is not None:
        set_ = [*(set_ or ()), f"serve.processes={processes}"]
    name = f"serve-{shared.partition(',')[0]}" if shared else "serve"
    effective = common.start_role(name, config, set_)
    if effective.serve.processes > 1 and not shared:
        with loading():
            from daemon.up import servers
        return servers.run(effective, common.config_file(config), set_ or ())
    with loading():
        from daemon.serve.shared_port import InheritedSockets
        from daemon.serve.start import run

    sockets = InheritedSockets.inherited(shared) if shared else None
    return run(effective, load=partial(load, config, set_), sockets=sockets)


def up(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    exit_when_caught_up: Annotated[
        bool, flag("--exit-when-caught-up", "End when all is learned and judged.")
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Learners over the topic, and merge beside them: shards.count."
        ),
    ] = None,
) -> int:
    """Run learn, validate and serve together, and feed where something is followed; restart what crashes.

    A role that cannot continue stays down alone.
    """
    if shards is not None:
        set_ = [*(set_ or ()), f"shards.count={shards}"]
    with loading():
        effective = load(config, set_, of_role=True)  # a mistake is reported once, not by every role
        effective.space_spec()
        from daemon.memory.beforehand import require_up
        from daemon.runtime.doors import open_doors
        from daemon.runtime.logs import configure, get_logger
        from daemon.runtime.runtime import Signals
        from daemon.runtime.watchdog import Notifier
        from daemon.up.restarts import WITH_AN_END, RestartPolicy
        from daemon.up.role_process import RoleProcess
        from daemon.up.servers import process_ports
        from daemon.up.supervisor import (
            GRACE_S,
            AtWork,
            RoleSpec,
            Supervisor,
            UpHealth,
            anything_to_answer_with,
            check_ports,
        )

    http = effective.http
    doors = open_doors(effective)
    follows = bool(effective.feed.follow.sources) and not exit_when_caught_up
    served = () if exit_when_caught_up else (http.serve_port, *((http.feed_port,) if follows else ()))
    if served and effective.serve.processes > 1:
        served = (*served, *process_ports(effective))
    count = effective.shards.count
    learning_ports = http.learning_ports(count)
    merging_ports = [http.merge_port] if count else []
    check_ports(http.host, (*learning_ports, *merging_ports, http.validate_port, *served))
    log_format = effective.log.format
    prefix = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    configure(effective.log.level, "console" if prefix else "json", "up")
    require_up(effective, anything_to_answer_with(effective), serves=not exit_when_caught_up)
    file = common.config_file(config)
    shared = ["--config", str(file)] if file else []
    shared += [word for setting in set_ or () for word in ("--set", setting)]
    shared += ["--exit-when-caught-up"] if exit_when_caught_up else []
    # When caught up, validate continues until it has judged what learn wrote last.
    ends_all = effective.validate.on_stop == "exit" and not exit_when_caught_up
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        health = UpHealth(stack, http, effective.checkpoints.path, get_logger(), doors)
        # However long learn takes, validate waits: its stdin ends when learn has finished, or with shards
        # when merge has, whose own ends when all of these have.
        written, learned = AtWork(stack), AtWork(stack, count)
        if count:
            specs = [
                RoleSpec("merge", ("merge", *shared, "--beside-learn"), finished=written.one_less),
                *(
                    RoleSpec(
                        f"learn-{number}",
                        ("learn", *shared, "--shard", str(number), "--set", f"http.learn_port={port}"),
                        ends_all,
                        finished=learned.one_less,
                    )
                    for number, port in enumerate(learning_ports)
                ),
            ]
        else:
            specs = [RoleSpec("learn", ("learn", *shared), ends_all, finished=written.one_less)]
        specs.append(RoleSpec("validate", ("validate", *shared, "--beside-learn")))
        if not exit_when_caught_up:  # such a run has an end, and nobody to be served
            specs.append(RoleSpec("serve", ("serve", *shared)))
        if follows:
            specs.append(RoleSpec("feed", ("feed", "--follow", *shared)))

        def start(spec: RoleSpec) -> RoleProcess:
            waits = {"validate": written, "merge": learned}.get(spec.name)
            stdin = None if waits is None else waits.stdin
            return RoleProcess(spec.name, spec.arguments, prefix, stdin=stdin)

        return Supervisor(
            specs,
            start,
            signals,
            get_logger(),
            grace_s=GRACE_S + (effective.serve.drain or 0.0),
            policy=WITH_AN_END if exit_when_caught_up else RestartPolicy(),
            notifier=Notifier.of_this_process(),
            on_change=health.set_reports,
            reload=doors.reload,
            at_stake=lambda: not exit_when_caught_up and anything_to_answer_with(effective),
        ).run()


def resume(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    reason: ReasonOption = "asked for",
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be lifted; write nothing.")] = False,
    json: JsonOption = False,
) -> int:
    """Let a stopped or paused learner continue from its position.

    After a pause for poison, records up to the place of the pause no longer count against the limit.
    """
    from daemon.models.decide import resumptions

    _, ledger, entries = common.opened(load(config, set_))
    found = resumptions(entries, reason)
    written = [] if dry_run else [ledger.append(one.entry) for one in found]
    lines = [
        f"{'would lift' if dry_run else 'lifted'} the {'pause' if one.is_pause else 'stop'}"
        f"{one.stop.by and f' by {one.stop.by}'}: {one.stop.reason}"
        for one in found
    ]
    lifted = [asdict(one.stop) for one in found]
    document = {"lifted": lifted, "written": [*map(asdict, written)], "dry_run": dry_run}
    return common.show(
        json, document, partial(typer.echo, "\n".join(lines or ["nothing is stopped or paused"]))
    )
