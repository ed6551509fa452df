"""`tripletd topics create|describe`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, ToOption, console, facts, flag, load
from daemon.exits import EX_CONFIG, EX_OK, EX_UNAVAILABLE

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.topics.topics import TopicLook

app = typer.Typer(help="Create the topics of the stream, or look at them.", no_args_is_help=True)


@app.command("create")
def create(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    to: ToOption = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of events and holdout; else stream.partitions.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Copies on a broker; else 3, or one per broker.")
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only say what would be created, and how.")] = False,
    json: JsonOption = False,
) -> int:
    """Create what is missing of the five topics, with safe settings; existing ones are left as they are."""
    from daemon.topics.topics import create_missing

    effective = load(config, set_, {"stream.address": to, "stream.partitions": partitions})
    new, topics = create_missing(effective, replication, dry_run)
    word = "would be created" if dry_run else "created"
    return _show(effective, topics, dict.fromkeys(new, word), json, missing_is_fine=dry_run)


@app.command("describe")
def describe(
    *, config: ConfigOption = None, set_: SetOption = None, to: ToOption = None, json: JsonOption = False
) -> int:
    """The five topics: records, copies, and each setting that is not safe."""
    from daemon.topics.topics import look_at_topics

    effective = load(config, set_, {"stream.address": to})
    return _show(effective, look_at_topics(effective), {}, json, missing_is_fine=False)


def _show(
    config: Config, topics: Sequence[TopicLook], new: dict[str, str], as_json: bool, *, missing_is_fine: bool
) -> int:
    """Print the topics; the exit code: 78 where one is unsafe, 69 where one is missing."""
    code = EX_OK if missing_is_fine or all(one.exists for one in topics) else EX_UNAVAILABLE
    if any(one.unsafe for one in topics):
        code = EX_CONFIG
    rows = [
        asdict(one)
        | {"partitions": one.partitions, "records": one.records, "unsafe": one.unsafe}
        | {"created": new.get(one.topic) == "created"}
        for one in topics
    ]
    document = {"address": str(config.stream.to_address()), "ok": code == EX_OK, "topics": rows}
    common.show(as_json, document, partial(_print, config, topics, new))
    return code


def _print(config: Config, topics: Sequence[TopicLook], new: dict[str, str]) -> None:
    from rich.text import Text

    from daemon.topics.differences import shown
    from streams.partitions import behind_transactions

    out = console()
    cluster = next((f", {one.brokers} broker(s)" for one in topics if one.brokers), "")
    name = next((f" ({one.cluster}{cluster})" for one in topics if one.cluster), "")
    out.print(Text(f"{config.stream.to_address()}{name}", style="bold"), soft_wrap=True)
    grid, remedies = facts((), 2, None), []
    for one in topics:
        word, style = _state(one, new)
        grid.add_row(Text(word, style=style), Text(one.topic, style="bold"), Text(_size(one)))
        for line in behind_transactions(one.topic, one.held_back):
            grid.add_row("", "", Text(line, style="yellow"))
        for difference in one.differences:
            found, wanted = (shown(difference.setting, v) for v in (difference.found, difference.wanted))
            text = f"{difference.setting} is {found}, should be {wanted}: {difference.why}"
            grid.add_row("", "", Text(text, style="red" if difference.unsafe else "yellow"))
        if one.remedy:
            remedies.append(one.remedy)
    out.print(grid)
    _print_plans(topics)
    for remedy in remedies:  # on a line of its own, to be copied
        out.print(Text(f"  {remedy}"), soft_wrap=True)
    if any(not one.exists for one in topics) and not new:
        out.print("missing topics are made by `tripletd topics create`")


def _print_plans(topics: Sequence[TopicLook]) -> None:
    """The settings that missing topics would get: each once, and for a topic that gets another one again."""
    from rich.table import Table

    from daemon.topics.differences import shown

    planned = [(one.topic, one.plan.settings) for one in topics if one.plan is not None]
    if not planned:
        return
    usual = planned[0][1]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for setting, value in usual.items():
        others = [(name, other[setting]) for name, other in planned if other[setting] != value]
        also = "".join(f"; of {name} {shown(setting, other)}" for name, other in others)
        grid.add_row(f"  {setting}", f"{shown(setting, value)}{also}")
    console().print(grid)


def _state(one: TopicLook, new: dict[str, str]) -> tuple[str, str]:
    if one.topic in new:
        return new[one.topic], "green"
    if not one.exists:
        return "missing", "bold red"
    if one.unsafe:
        return "error", "bold red"
    return ("note", "yellow") if one.differences else ("ok", "green")


def _size(one: TopicLook) -> str:
    if one.plan is not None:
        copies = "" if one.plan.replicas is None else f", {one.plan.replicas} replica(s)"
        return f"{one.plan.partitions} partition(s){copies}"
    if not one.exists:
        return ""
    text = f"{one.records:,} records in {one.partitions} partition(s)"
    if one.replicas is None:
        return text
    unknown = "; its settings may not be read (grant DESCRIBE_CONFIGS)" if one.settings is None else ""
    return f"{text}, {one.replicas} replica(s), {one.in_sync} in sync{unknown}"
