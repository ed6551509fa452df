"""`tripletd status`, `tripletd curves` and `tripletd deadletters`: the commands that only look."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, facts, load, say, write_json
from daemon.exits import EX_CANTCREAT, EX_OK, EX_UNAVAILABLE, UserError
from daemon.text import ago, measure, number_runs
from daemon.versions.verdict import NAMES, NOT_SHOWN, is_unproven, short_name

if TYPE_CHECKING:
    from rich.text import Text

    from daemon.dead_letters import ShownLetter
    from daemon.look.curves import Curves
    from daemon.look.live import AliasStatus


def status(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also what the answer rests on, forms and all measures.")
    ] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """Where things stand: is it better, best and newest version, why it stopped, running roles."""
    from daemon.look.status import collect

    picture = collect(load(config, set_))
    if json:
        live = {role: one and one.model_dump() for role, one in picture["live"].items()}
        write_json(picture | {"live": live})
        return EX_OK
    from rich.text import Text

    lines = [(name, Text(text)) for name, text in _status_lines(picture, verbose)]
    notes = [("note", Text(problem, style="yellow")) for problem in picture["problems"]]
    console().print(facts([*lines, *notes]))
    return EX_OK


def _status_lines(picture: Mapping[str, Any], verbose: bool) -> list[tuple[str, str]]:
    numbers = picture["versions"]
    lines = []
    if numbers:
        lines.append(("better?", picture["is_better"] or "Not known yet: no learned version was judged"))
    if picture["reference"] and (verbose or not picture["is_own"]):
        lines.append(("compared with", picture["reference"]))
    if verbose and picture["verdict"]:
        lines += [("because", why) for why in picture["verdict"]["details"]]
    if numbers:
        states = [_stopped(picture)] if picture["stopped_by"] is not None else []
        if picture["paused_by"] is not None:
            states.append(f"paused: {picture['paused_by']}; `tripletd resume` continues")
        lines.append(("state", "; ".join(states) or "learning (no STOP in force)"))
    newest, best = picture["newest"], picture["best"]
    lines += [
        (role, _version_line(one, verbose)) for role, one in (("newest", newest), ("best", best)) if one
    ]
    if newest and newest == best:
        lines[-1] = "best", f"version {best['number']}, the newest"
    if verbose:
        explained = (("form", picture["form"]), ("unseen kinds", picture["unseen"]))
        lines += [(name, why) for name, why in explained if why]
    lines.append(("checkpoints", picture["checkpoints"]))
    if numbers:
        lines.append(("versions", f"{len(numbers)} kept: {number_runs(numbers)}; {picture['judged']} judged"))
    stream = picture["stream"]
    lines.append(("stream", stream["address"]))
    if stream["lag"] is not None:
        lines.append(("lag", _lag(stream)))
    if stream["expired"]:
        gone = f"{stream['expired']:,} records had expired before learning began, and were never learned"
        lines.append(("expired", gone))
    for role, one in picture["live"].items():
        elsewhere, unready = picture["elsewhere"].get(role), picture["not_ready"].get(role)
        locked = role in picture["locked"]
        absent = "wants a token: set http.token to one of the scope metrics" if locked else "not running"
        stands = picture["down"].get(role, absent) if one is None else one.line()
        text = stands + (f"; not ready: {unready}" if unready else "")
        other = f"; its port is held by another tripletd, with {elsewhere}" if elsewhere else ""
        lines.append((role, text + other))
    served = picture["live"].get("serve")
    aliases = {} if served is None else served.aliases
    return [*lines, *((alias, one.line(time.time(), _note(one, picture))) for alias, one in aliases.items())]


def _note(alias: AliasStatus, picture: Mapping[str, Any]) -> str:
    best = picture["best"] and picture["best"]["number"]
    steps = alias.version == best and picture["best_records"] not in (None, alias.records)
    if is_unproven(alias.version, best, steps=steps):
        return NOT_SHOWN
    return alias.order or ("your ranking" if alias.version == 0 and picture["is_own"] else "")


def _version_line(row: Mapping[str, Any], verbose: bool) -> str:
    parts = [f"version {row['number']}", f"{row['events']:,} events", ago(row["created"])]
    if row["duplicates"]:
        parts.insert(-1, f"{row['duplicates']:,} sent again and dropped")
    if row["dead_letters"]:
        parts.insert(-1, f"{row['dead_letters']:,} dead letters")
    measures = row["measures"]
    reference = measures.get("version_0") or {}
    known = [name for name in NAMES if name in measures]
    shown = known if verbose else [name for name in known if name in ("map_full", "map_shown")][:1]
    for name in shown:
        before = f" (version 0: {measure(reference[name])})" if name in reference else ""
        parts.append(f"{short_name(name)} {measure(measures[name])}{before}")
    why_not = row["verdict"].partition("; not best: ")[2]
    return ", ".join(parts) + (f"; not best: {why_not}" if why_not else "")


def _stopped(picture: Mapping[str, Any]) -> str:
    stop, stream = picture["stop"], picture["stream"]
    waits = f"; {stream['lag']:,} events wait" if stream["lag"] else ""
    again = ""
    if stop and stop["wait"]:
        end = sum(one["end"] for one in stream["partitions"])
        more = max(0, stop["wait"] - max(0, end - stop["end"]))
        again = f"; goes on by itself after {more:,} more events, or when what users click changes"
    at = f"STOPPED at version {picture['stopped_at']}: {picture['stopped_by']}"
    return f"{at}{waits}{again}; `tripletd resume` continues now"


def _lag(stream: Mapping[str, Any]) -> str:
    total = sum(one["end"] - one["earliest"] for one in stream["partitions"])
    if not stream["lag"]:
        return f"none: the newest version has learned all {total:,} events of the stream"
    text = f"{stream['lag']:,} of {total:,} events of the stream came after the newest version"
    if len(stream["partitions"]) > 1:
        worst = max(stream["partitions"], key=lambda one: one["lag"])
        text += f"; most in partition {worst['partition']} ({worst['lag']:,})"
    return text


_HEIGHT = 10
_CHARTS = 3
"""Charts on one screen; the picture and the CSV hold every measure."""


def curves(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw into a picture: .png, .svg or .pdf.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the numbers as CSV; - is standard output.")
    ] = None,
) -> int:
    """Learning curves: each measure of each version over the events learned, pruned versions included."""
    from daemon.look.charts import csv_pieces
    from daemon.look.curves import CurveReader
    from daemon.versions.storage import open_for_reading

    reader = CurveReader(*open_for_reading(load(config, set_)))
    found = reader.read()
    common.write_notes(reader.notes)
    if not found.drawn():
        remedy = "start `tripletd learn` and `tripletd validate`"
        raise UserError("nothing is learned or judged yet", remedy, EX_UNAVAILABLE)
    if csv is not None:
        _write(csv, csv_pieces(found))
    if out is not None:
        from daemon.look.charts import save_picture

        save_picture(found, out)
        sys.stderr.write(f"written: {out}\n")
    if csv is None and out is None:
        _print_curves(found)
    return EX_OK


def _write(path: Path, pieces: Iterable[str]) -> None:
    if str(path) == "-":
        sys.stdout.writelines(pieces)
        return
    try:
        with path.open("w", encoding="utf-8") as out:
            out.writelines(pieces)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written: {error.strerror}", "name another file", EX_CANTCREAT
        ) from None
    sys.stderr.write(f"written: {path}\n")


def _print_curves(found: Curves) -> None:
    from rich.text import Text

    terminal = console()
    width = max(30, min(terminal.width, 100))
    for kind in [kind for kind in found.drawn() if found.current.series(kind).events][:_CHARTS]:
        terminal.print(_chart(found, kind, width))
    legend = Text()
    legend.append("─●─ ", style="cyan").append("versions   ").append("••• ", style="dim").append("version 0")
    best = found.best_point()
    if best is not None:
        legend.append(f"   best: version {best.version} after {best.events:,} events", style="green")
    if found.stopped_by:
        legend.append(f"   stopped: {found.stopped_by}", style="red")
    if found.verdict is not None:
        terminal.print(Text(found.verdict.sentence, style="bold"))
    terminal.print(legend)


def _chart(found: Curves, kind: str, width: int) -> Text:
    from rich.text import Text

    from daemon.look.charts import terminal_chart
    from daemon.look.curves import LOSS_TITLE, TITLES

    title, change = TITLES.get(kind, LOSS_TITLE), _change(found, kind)
    gap = "  " if len(title) + 2 + len(change) <= width else "\n"
    head = Text().append(title, style="bold").append(f"{gap}{change}\n")
    return head.append_text(Text.from_ansi(terminal_chart(found.current.series(kind), width, _HEIGHT)))


def _change(found: Curves, kind: str) -> str:
    """From version 0 to the best version (the newest while there is none), on the same window."""
    point = found.best_point() or (found.judged or found.current.points)[-1]
    if kind not in point.measures:
        return ""
    name = "best" if point.version == found.best else "newest"
    before = point.reference.get(kind)
    own = f"{name} {measure(point.measures[kind])}"
    return own if before is None else f"version 0 {measure(before)}, {own}"


def deadletters(
    *,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="How many, the newest.")] = 20,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """The newest records that could not be learned from: where they were, why, their first bytes."""
    from daemon.dead_letters import newest_letters

    letters = newest_letters(load(config, set_).stream.to_address(), last)
    return common.show(json, [asdict(one) for one in letters], lambda: _print_letters(letters))


def _print_letters(letters: list[ShownLetter]) -> None:
    from daemon.dead_letters import HEAD_BYTES

    for one in letters:
        size = "no value" if one.size is None else f"{one.size:,} bytes"
        place = f"{one.topic} partition {one.partition} offset {one.offset}"
        why = f"{one.reason}: {one.detail}" if one.partition is not None else one.detail
        say(f"{one.time}  {place if one.partition is not None else '?'}  {size}")
        say(f"  {why}")
        if one.head:
            say(f"  {one.head}{'...' if (one.size or 0) > HEAD_BYTES else ''}")
    if not letters:
        say("no dead letters")
