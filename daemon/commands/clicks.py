"""`tripletd clicks bias`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.commands import common
from daemon.commands.common import ConfigOption, JsonOption, SetOption, console, facts, load
from daemon.exits import EX_DATAERR, EX_OK, UserError

if TYPE_CHECKING:
    from daemon.look.position_bias import ListReader
    from streams.feed.shown_places import PositionBias

app = typer.Typer(help="What click logs say of themselves, before anything is learned.", no_args_is_help=True)

_MOST_RANKS = 50
_BAR = 30
_METHODS = {
    "chance": "places that chance had filled",
    "moves": "objects that were shown at several ranks for one query",
}


@app.command("bias")
def bias(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Click logs, as `feed` takes them; - for standard input."),
    ],
    *,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="As of `feed`; else by the first line.")
    ] = None,
    mapping: Annotated[
        str | None, typer.Option(metavar="NAME", help="What columns mean, as of `feed`: a name or a file.")
    ] = None,
    shuffled: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="Lists of this `src` had a random order; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            show_default=False,
            help="Write the curve, too; feed.position_weights takes the file.",
        ),
    ] = None,
    ranks: Annotated[int, typer.Option(min=2, max=_MOST_RANKS, metavar="N", help="How many ranks.")] = 10,
    config: ConfigOption = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> int:
    """How likely users examine each rank, relative to the first: out of lists and their clicks.

    By places that chance had filled (explored, interleaved or shuffled lists), else by objects that were
    shown at several ranks for one query. Nothing is fed.
    """
    from daemon.look.position_bias import ListReader, as_document
    from streams.feed.formats import read_sources
    from streams.feed.items import FeedError
    from streams.feed.options import ReaderOptions

    effective = load(config, set_)
    options = ReaderOptions(int(time.time() * 1000), mapping=mapping)
    reader = ListReader(effective.interleaving.key.get_secret_value().encode(), effective.feed.dedupe_window)
    try:
        found = reader.read(read_sources(sources, options, format_), ranks, shuffled or ())
    except FeedError as error:
        raise UserError(error.message, error.remedy, EX_DATAERR) from None
    if not found.lists:
        remedy = "give lists with what was shown and clicked; triplets do not tell places"
        raise UserError(f"no shown list was found{_dropped(reader)}", remedy, EX_DATAERR)
    about = {"dropped": dict(sorted(reader.dropped.items())), "unchecked": reader.unchecked}
    common.show(json, as_document(found) | about, lambda: _print(found, reader))
    if found.refused:
        raise UserError(
            f"no curve can be given; {found.refused}",
            "let chance fill places, such as `explore=1` on a share of the questions, or name shuffled lists "
            "with --shuffled; or give logs of a longer time or of two rankings",
            EX_DATAERR,
        )
    if out is not None:
        _write(found, out)
    return EX_OK


def _write(found: PositionBias, path: Path) -> None:
    """The curve down to its last known rank. Raises UserError."""
    import numpy as np

    from daemon.models.derive import write_new
    from streams.feed.position_weights import ExaminationCurve

    taken = found.taken
    assert taken is not None
    last = int(np.flatnonzero(np.isfinite(taken.curve))[-1]) + 1
    columns = (one[:last].tolist() for one in (taken.curve, found.shown, found.clicks))
    text = ExaminationCurve(*(tuple(one) for one in columns)).write(
        {"method": str(found.method), "lists": found.lists}
    )
    write_new(path, lambda file: file.write(text.encode()))


def _print(found: PositionBias, reader: ListReader) -> None:
    places = max(int(found.shown.sum()), 1)
    lines = [
        ("lists", f"{found.lists:,}, {found.without_click / found.lists:.0%} without a click"),
        (
            "by chance",
            f"{found.explored:,} explored lists, {found.drafted:,} interleaved, {found.shuffled:,} shuffled: "
            f"{found.by_chance / places:.1%} of the places",
        ),
        (
            "several ranks",
            f"{found.moved:,} of {found.pairs:,} pairs of query and object; they have "
            f"{found.moved_share:.1%} of the clicks",
        ),
    ]
    if found.method is not None:
        lines.append(("curve by", _METHODS[found.method]))
    console().print(facts(lines))
    _print_ranks(found)
    if not found.without_click:
        common.write_note(
            "every list has a click: those without one are missing, which bends the curve; log them, too"
        )
    if reader.unchecked:
        common.write_note(
            f"{reader.unchecked:,} interleaved or explored lists were not checked, "
            "for interleaving.key is not set"
        )
    if reader.dropped:
        common.write_note(f"left out{_dropped(reader)}")


def _print_ranks(found: PositionBias) -> None:
    taken = found.taken
    table = common.table(right=("rank", "shown", "clicked", "examined", "error"))
    table.add_column("")
    for rank, (shown, clicks) in enumerate(zip(found.shown.tolist(), found.clicks.tolist(), strict=True)):
        if not shown:
            continue
        cells = "?", "", ""
        if taken is not None and taken.curve[rank] == taken.curve[rank]:  # NaN where it is not known
            value = float(taken.curve[rank])
            bar = "█" * max(1, round(_BAR * min(value, 1.0)))
            cells = f"{value:.3f}", f"{taken.error[rank]:.3f}", bar
        table.add_row(str(rank + 1), f"{shown:,}", f"{clicks / shown:.2%}", *cells)
    console().print(table)


def _dropped(reader: ListReader) -> str:
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in reader.dropped.most_common())
    return dropped and f": {dropped}"
