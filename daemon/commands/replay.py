"""`tripletd replay`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, flag, load, opened
from daemon.commands.history import reading
from daemon.exits import EX_DATAERR, EX_OK, UserError

if TYPE_CHECKING:
    from checkpoints import VersionStore
    from daemon.config import Config
    from daemon.learn.replay.replay import ReplayDifference, ReplayResult


def replay(
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="VERSION", help="Begin with this version: a number or a name.")
    ] = "0",
    to: Annotated[
        str, typer.Option("--to", metavar="VERSION", help="Recompute this version: a number or a name.")
    ] = "latest",
    verify: Annotated[
        bool, flag("--verify", "Compare every version kept on the way; report the first difference.")
    ] = False,
    shard: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=0, help="The line of versions of this shard; by default the merged one."
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Learn a version again from the log, and compare: the same bits?"""
    from daemon.models.decide import number_of

    effective = load(config, set_)
    versions, _, entries = opened(effective)
    if shard is not None:
        versions = _line_of(effective, shard)
    kept = versions.versions()
    numbers = number_of(from_, kept, entries), number_of(to, kept, entries)
    result = _replay(effective, versions, *numbers, verify, is_shard=shard is not None)
    if json:
        common.write_json({"from": numbers[0], "to": numbers[1], "equal": result.equal, **asdict(result)})
    else:
        _print(numbers, result)
    if result.difference is not None:
        raise _differs(result.difference, numbers[0])
    return EX_OK


def _line_of(config: Config, number: int) -> VersionStore:
    """The versions of a shard. Raises UserError for one that is not configured."""
    from daemon.versions.shards import address_of
    from daemon.versions.storage import open_existing
    from streams.shards import Shard

    count = config.shards.count
    if number >= count:
        raise UserError(
            f"--shard {number}: [shards] count is {count}", "name one of these shards, counted from 0"
        )
    address = address_of(config.checkpoints.path, Shard(number, count))
    return open_existing(address, ", so this shard has learned nothing yet", "start it first").versions


def _replay(
    config: Config, versions: VersionStore, from_: int, to: int, verify: bool, *, is_shard: bool
) -> ReplayResult:
    from threadpoolctl import threadpool_limits

    from daemon.catalogs import learner_catalog
    from daemon.feed import stderr_console
    from daemon.learn.compatible import refuse_other_stream
    from daemon.learn.replay.replay import replay as recompute
    from daemon.learn.replay.rerun import Lines
    from daemon.versions.shards import address_of
    from daemon.versions.storage import open_store
    from streams.open import open_source

    catalog = learner_catalog(config)
    with closing(open_source(config.stream.to_address())) as source, threadpool_limits(limits=1):
        refuse_other_stream(versions.manifest(to), asdict(source.identity()), source.bounds())
        with reading(stderr_console, "replaying") as status:
            path, told = config.checkpoints.path, "{:,} of {:,} records replayed".format
            lines = Lines(
                versions,
                open_store(path).versions if is_shard else None,
                lambda one: open_store(address_of(path, one)).versions,
            )
            return recompute(
                *(versions, source, catalog, from_, to),
                verify=verify,
                on_progress=lambda done, total: status.update(told(done, total)),
                lines=lines,
            )


def _print(numbers: tuple[int, int], result: ReplayResult) -> None:
    out = console()
    out.print(f"{result.records:,} records replayed from version {numbers[0]} towards version {numbers[1]}")
    for name, (then, now) in result.other_runtime.items():
        out.print(f"computed with {name} {then}, replayed with {name} {now}", soft_wrap=True)
    if result.difference is not None:
        return
    out.print(f"state hash {result.hash}", soft_wrap=True)
    if result.hash == result.recorded:
        out.print("equal to the recorded one, bit for bit")
    elif result.within is not None:
        out.print(
            f"not the same bits; every number is within {result.within:g} of the recorded one, relative"
        )
        out.print("to the largest of its array, which is all that other packages or processors promise")
    else:
        out.print(f"recorded   {result.recorded}", soft_wrap=True)


def _differs(found: ReplayDifference, from_version: int) -> UserError:
    lines = [f"version {found.version} is not what its schedule makes of version {found.since}: {found.why}"]
    if found.record is not None:
        lines.append(f"  the log holds another record than was learned: {found.record}")
    elif found.event is not None:
        lines.append(f"  the first event in between that touches this row: {found.event}")
    elif found.place is not None and found.place.row is not None:
        lines.append("  no event in between touches this row")
    if found.since != from_version:
        lines.append(f"  all versions kept from {from_version} to {found.since} agree")
    return UserError(
        "\n".join(lines),
        "the log, a schedule in between or one of the two versions was altered; later ones may agree "
        "with each other: replay from there",
        EX_DATAERR,
    )
