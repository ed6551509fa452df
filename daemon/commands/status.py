"""`tripletd status`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, load, write_json
from daemon.exits import EX_OK
from daemon.look.serving import serving_lines
from daemon.text import ago, measure, number_runs


def status(*, config: ConfigOption = None, set_: SetOption = None, json: JsonOption = False) -> int:
    """Where things stand: versions, best, why it stopped, lag, running roles."""
    from daemon.look.status import collect

    picture = collect(load(config, set_))
    if json:
        write_json(picture)
        return EX_OK
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _lines(picture):
        grid.add_row(name, Text(text))
    for problem in picture["problems"]:
        grid.add_row("note", Text(problem, style="yellow"))
    console().print(grid)
    return EX_OK


def _lines(picture: Mapping[str, Any]) -> list[tuple[str, str]]:
    numbers = picture["versions"]
    lines = [("checkpoints", picture["checkpoints"])]
    if numbers:
        lines.append(("versions", f"{len(numbers)} kept: {number_runs(numbers)}; {picture['judged']} judged"))
    for role in ("newest", "best"):
        if picture[role]:
            lines.append((role, _version(picture[role])))
    if numbers:
        lines.append(("state", _state(picture)))
    stream = picture["stream"]
    lines.append(("stream", stream["address"]))
    if stream["lag"] is not None:
        lines.append(("lag", _lag(stream)))
    for role, page in picture["live"].items():
        elsewhere = picture["elsewhere"].get(role)
        other = f"; its port is held by another tripletd, with {elsewhere}" if elsewhere else ""
        lines.append((role, _live(role, page, picture["not_ready"].get(role)) + other))
    served = picture["live"].get("serve")
    return lines + ([] if served is None else serving_lines(served, time.time()))


def _version(row: Mapping[str, Any]) -> str:
    parts = [f"version {row['number']}", f"{row['events']:,} events", ago(row["created"])]
    if row["duplicates"]:
        parts.insert(-1, f"{row['duplicates']:,} sent again and dropped")
    if row["dead_letters"]:
        parts.insert(-1, f"{row['dead_letters']:,} dead letters")
    measures = row["measures"]
    deciding = measures.get("decision_measure")
    if deciding:
        before = measures.get("version_0", {}).get(deciding)
        parts.append(f"{deciding} {measure(measures.get(deciding))} (version 0: {measure(before)})")
    why_not = row["verdict"].partition("; ")[2]
    return ", ".join(parts) + (f"; {why_not}" if why_not else "")


def _state(picture: Mapping[str, Any]) -> str:
    stopped, paused = picture["stopped_by"], picture["paused_by"]
    states = [f"stopped at version {picture['stopped_at']}: {stopped}"] if stopped is not None else []
    states += [f"paused: {paused}; `tripletd resume` goes on"] if paused is not None else []
    return "; ".join(states) or "no STOP in force"


def _lag(stream: Mapping[str, Any]) -> str:
    total = sum(one["end"] - one["earliest"] for one in stream["partitions"])
    text = f"{stream['lag']:,} of {total:,} records not in the newest version"
    if len(stream["partitions"]) > 1 and stream["lag"]:
        worst = max(stream["partitions"], key=lambda one: one["lag"])
        text += f"; most in partition {worst['partition']} ({worst['lag']:,})"
    return text


def _live(role: str, page: Mapping[str, float] | None, unready: str | None) -> str:
    if page is None:
        return "not running"
    text = _running(role, page)
    return text if unready is None else f"{text}; not ready: {unready}"


def _running(role: str, page: Mapping[str, float]) -> str:
    if role == "learn":
        events = sum(value for name, value in page.items() if name.startswith("tripletd_events_total"))
        parked = ", parked" if page.get("tripletd_parked") else ""
        return f"running{parked}, {events:,.0f} events since its start"
    if role == "serve":
        return f"running, {page.get('tripletd_items', 0):,.0f} objects"
    return f"running, {page.get('tripletd_judged_versions_total', 0):.0f} versions judged since its start"
