"""`tripletd feed`."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from daemon.commands.common import ConfigOption, JsonOption, SetOption, flag, load, start_role, write_json
from daemon.exits import EX_OK, EX_USAGE, UserError

try:
    from streams.feed.options import FORMATS, PAIRS, RULES  # light: without a reader
except ImportError:  # another project's `streams`: the command line says so before any command runs
    FORMATS = PAIRS = RULES = ()  # type: ignore[assignment]

_TABLE = "Tables of relevances or labels"
_UBI = "OpenSearch UBI"
USER_QUERY = "user_query"
OF_ROLE = frozenset(("config", "set_", "follow", "exit_when_caught_up"))
"""What goes with --follow."""

TripletsOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Triplets to sample.", rich_help_panel=_TABLE)
]


def feed(
    context: typer.Context,
    *,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Click logs: files, gzip files, - for standard input; with --mapping tables, folders.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Stream to feed, such as log:clicks.log or kafka://host/topic."),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    catalog: Annotated[
        str | None, typer.Option(metavar="FILE", help="Objects random negatives are drawn from.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"{', '.join(FORMATS)}; detected from the first line if left out.",
        ),
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the columns of foreign logs mean (Parquet, CSV, JSON): a name or a TOML file.",
        ),
    ] = None,
    show_mapping: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print a mapping that comes along, and end.")
    ] = None,
    rule: Annotated[str | None, typer.Option(metavar="NAME", help=f"{', '.join(RULES)}.")] = None,
    triplets_per_impression: Annotated[
        int | None, typer.Option(metavar="N", help="Most pairs per list and side of clicks; 0 is no cap.")
    ] = None,
    random_negatives: Annotated[
        int | None, typer.Option(metavar="N", help="Random objects per click as further negatives.")
    ] = None,
    holdout_share: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of queries kept for validation.")
    ] = None,
    source_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who clicked, where a log does not say.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Whose model learns the clicks that name no key of their own."),
    ] = None,
    skip: Annotated[
        int, typer.Option(min=0, metavar="N", help="Items an interrupted run has already fed.")
    ] = 0,
    follow: Annotated[
        bool, flag("--follow", "Follow feed.follow.sources for ever, as a role; `up` starts it too.")
    ] = False,
    exit_when_caught_up: Annotated[
        bool, flag("--exit-when-caught-up", "With --follow: leave when everything there is was read.")
    ] = False,
    explain: Annotated[
        bool, flag("--explain", "Show where and why something was dropped, and what to do.")
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Do everything but write.")] = False,
    json_: JsonOption = False,
    triplets: TripletsOption = 100_000,
    pairs: Annotated[
        str, typer.Option(metavar="NAME", help=f"{', '.join(PAIRS)}.", rich_help_panel=_TABLE)
    ] = "items",
    theta: Annotated[
        float,
        typer.Option(min=0.0, help="Item relevance at or below this counts as none.", rich_help_panel=_TABLE),
    ] = 0.0,
    ubi_query: Annotated[
        str, typer.Option(metavar="FIELD", help="What names the query object.", rich_help_panel=_UBI)
    ] = USER_QUERY,
    ubi_click: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION",
            help="An action that counts as a click, default click and click_through; may be repeated.",
            rich_help_panel=_UBI,
        ),
    ] = None,
) -> int:
    """Turn click logs into triplets and feed them into the stream.

    A share of the queries goes to the holdout as whole impressions; everything dropped is accounted for.
    """
    if show_mapping is not None:
        return _show(show_mapping)
    if follow:
        sources_of = {name: context.get_parameter_source(name) for name in context.params}
        typed_names = {name for name, one in sources_of.items() if one and one.name == "COMMANDLINE"}
        return _follow(config, set_, exit_when_caught_up, typed_names - OF_ROLE)
    if exit_when_caught_up:
        raise UserError("--exit-when-caught-up is for --follow", "leave it out", EX_USAGE)
    if not sources:
        missing = "SOURCE is missing: no click log is given"
        raise UserError(missing, "give a file, or - for standard input", EX_USAGE)
    if mapping is not None and format_ is not None:
        raise UserError("--mapping and --format exclude each other", "leave one of them out", EX_USAGE)
    if mapping is not None and (ubi_click or ubi_query != USER_QUERY):
        remedy = "save it with --show-mapping, and change query and click there"
        raise UserError("--ubi-query and --ubi-click say nothing to a mapping", remedy, EX_USAGE)
    _one_of("--rule", rule, RULES)
    _one_of("--format", format_, FORMATS)
    _one_of("--pairs", pairs, PAIRS)
    _check_key(key)
    typed = {
        "stream.address": to,
        "catalog.path": catalog,
        "feed.rule": rule,
        "feed.triplets_per_impression": triplets_per_impression,
        "feed.random_negatives": random_negatives,
        "feed.holdout_share": holdout_share,
    }
    effective = load(config, set_, typed)
    from daemon.feed import FeedJob, FeedReport, run_feed, stderr_console
    from streams.feed.options import ReaderOptions, RelevanceOptions, UbiOptions

    clicks = {} if ubi_click is None else {"click_actions": frozenset(ubi_click)}
    sampling = RelevanceOptions(triplets, pairs, theta, seed=effective.feed.seed)
    now_ms, ubi = int(time.time() * 1000), UbiOptions(ubi_query, **clicks)
    options = ReaderOptions(now_ms, source_name, ubi, sampling, key, mapping)
    job = FeedJob(sources, format_, options, dry_run, skip)
    fed = run_feed(effective, job, FeedReport(stderr_console(), explain, mapping is not None))
    if json_:
        head = {"complete": fed.code == 0, "dry_run": dry_run, "to": effective.stream.address}
        head |= {"items": fed.run.items, "sent_again": fed.sent_again}
        write_json(head | fed.run.committed.to_dict())
    return fed.code


def _follow(config: Path | None, set_: list[str] | None, leave: bool, others: Collection[str]) -> int:
    """Be the feed role; `others`: what else was given, which is refused."""
    if others:
        remedy = "write sources and mapping in [feed.follow], the rest in [feed], [stream] and [catalog]"
        raise UserError("--follow takes what it does from the configuration alone", remedy, EX_USAGE)
    effective = start_role("feed", config, set_)
    from daemon.follow.role import run

    return run(effective, partial(load, config, set_), exit_when_caught_up=leave)


def _show(name: str) -> int:
    from streams.feed.items import FeedError
    from streams.feed.mapping.mapping import recipe_text

    try:
        sys.stdout.write(recipe_text(name))
    except FeedError as error:
        raise UserError(error.message, error.remedy, EX_USAGE) from None
    return EX_OK


def _check_key(key: str | None) -> None:
    """UserError 64 for what no event can carry as its key: every line would be dropped for it."""
    from streams.poison import Poison
    from streams.wire import check_key

    try:
        if key is not None:
            check_key(key)
    except Poison as problem:
        remedy = "give 1 to 64 bytes of text, such as --key anna"
        raise UserError(f"--key: {problem.detail}", remedy, EX_USAGE) from None


def _one_of(option: str, value: str | None, known: Collection[str]) -> None:
    """UserError 64 for a value that is not one of the known, naming the nearest."""
    if value is None or value in known:
        return
    close = difflib.get_close_matches(value.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    remedy = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    raise UserError(f"{option} {value!r} is not known", remedy, EX_USAGE)
