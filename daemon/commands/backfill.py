"""`tripletd backfill`: learn from months of clicks, with several processes or machines."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common, history
from daemon.commands.common import ConfigOption, JsonOption, SetOption, flag, load
from daemon.exits import EX_DATAERR, EX_OK, EX_USAGE, UserError

if TYPE_CHECKING:
    from daemon.backfill.rounds import Told
    from daemon.backfill.run import Backfilled, BackfillJob, BackfillReport
    from daemon.config import Config


def backfill(
    *,
    sources: history.SourcesArgument,
    config: ConfigOption = None,
    set_: SetOption = None,
    format_: history.FormatOption = None,
    mapping: history.MappingOption = None,
    shards: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Learners side by side, a core each.")
    ] = 1,
    merge_events: Annotated[
        int, typer.Option(min=100, metavar="N", help="Events that each learns between two merges.")
    ] = 5_000,
    version_events: Annotated[
        int, typer.Option(min=1_000, metavar="N", help="Events of all between two versions.")
    ] = 1_000_000,
    from_position: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="Where the live learner goes on from, in a new folder: latest (as it is when the backfill "
            "begins), history (by the newest event's time), or as learn --start.",
        ),
    ] = "latest",
    address: history.ClusterOption = None,
    here: Annotated[bool, flag("--here", "Without Ray: all learners in this process, in turn.")] = False,
    max_events_per_second: history.RateOption = 0.0,
    nice: history.NiceOption = 0,
    no_judge: Annotated[bool, flag("--no-judge", "Leave out the verdict at the end.")] = False,
    verify: Annotated[
        bool, flag("--verify", "Learn it all again and compare with the version; writes nothing.")
    ] = False,
    json_: JsonOption = False,
) -> int:
    """Learn from months of click logs at once, into a version that `learn` then continues.

    A run that was ended, whatever ended it, goes on with the same command.
    """
    effective = load(config, set_)
    history.require_format(format_)
    if here and address is not None:
        raise UserError("--here and --address exclude each other", "leave one of them out", EX_USAGE)
    from daemon.backfill.cluster import Limits
    from daemon.backfill.run import BackfillJob
    from daemon.backfill.run import backfill as learn
    from daemon.feed import stderr_console
    from daemon.runtime.logs import configure

    configure("warning", effective.log.format, "backfill")
    what = sources, format_, mapping, shards, merge_events, version_events
    limits = Limits(max_events_per_second, nice)
    job = BackfillJob(*what, from_position, here, address, limits, not no_judge)
    with history.reading(stderr_console) as status:
        report = _reporter(status)
        if verify:
            return _verify(effective, job, report, json_)
        done = learn(effective, job, report)
        return common.show(json_, asdict(done), partial(common.say, *_told(done, effective)))


def _reporter(status: history.ReadingStatus) -> BackfillReport:
    from daemon.backfill.run import BackfillReport

    def progress(told: Told, seconds: float) -> None:
        rate = told.records / max(1e-9, seconds)
        status.update(f"{told.records:,} events of {told.read:,} lists, {rate:,.0f} events/s")

    return BackfillReport(status.note, progress)


def _told(done: Backfilled, config: Config) -> list[str]:
    rate = done.records / max(1e-9, done.seconds)
    lines = [
        f"version {done.version} in {config.checkpoints.path}: {done.records:,} events of {done.read:,} "
        f"lists in {done.seconds:.1f} s, {rate:,.0f} events/s, {done.merges:,} merges"
    ]
    if done.dropped:
        lines.append("taught nothing: " + ", ".join(f"{name} {n:,}" for name, n in done.dropped.items()))
    if done.restarts:
        lines.append(f"workers were lost {done.restarts} times; the bits are those of an undisturbed run")
    if (verdict := done.verdict) is not None:
        why = f" ({verdict.why})" if verdict.why else ""
        lists = f"{verdict.lists:,} held-out lists"
        lines.append(f"against version {done.base} on {lists}: {verdict.found}{why}")
        lines += [
            f"  {name:18s} {verdict.before[name]:.4f} -> {verdict.after[name]:.4f}"
            for name in MEASURES
            if name in verdict.after and name in verdict.before
        ]
    return lines


MEASURES = ("map_shown", "clicked_vs_random", "position_balanced", "loss")


def _verify(config: Config, job: BackfillJob, report: BackfillReport, as_json: bool) -> int:
    from daemon.backfill.run import verify as run

    found = run(config, job, report)
    if as_json:
        common.write_json({**asdict(found), "equal": found.equal})
    if not found.equal:
        message = f"version {found.version} is not what its history gives: {found.hash}, not {found.recorded}"
        remedy = "other packages or another processor round otherwise; else its state was altered"
        raise UserError(message, remedy, EX_DATAERR)
    if not as_json:
        common.say(f"version {found.version} is what {found.records:,} events make of version {found.base}")
    return EX_OK
