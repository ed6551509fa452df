"""`tripletd feed`."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence

from daemon.commands import feedoptions as o
from daemon.commands.common import ConfigOption, JsonOption, SetOption, load, write_json
from daemon.exits import EX_USAGE, UserError


def feed(
    *,
    sources: o.Sources,
    to: o.To = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    catalog: o.CatalogFile = None,
    format_: o.Format = None,
    rule: o.RuleName = None,
    triplets_per_impression: o.TripletsPerImpression = None,
    random_negatives: o.RandomNegatives = None,
    holdout_share: o.HoldoutShare = None,
    source_name: o.SourceName = None,
    key: o.KeyName = None,
    skip: o.Skip = 0,
    explain: o.Explain = False,
    dry_run: o.DryRun = False,
    json_: JsonOption = False,
    triplets: o.Triplets = 100_000,
    pairs: o.Pairs = "items",
    theta: o.Theta = 0.0,
    ubi_query: o.UbiQuery = "user_query",
    ubi_click: o.UbiClicks = None,
) -> int:
    """Turn click logs into triplets and feed them into the stream.

    A share of the queries goes to the holdout as whole impressions; everything dropped is accounted for.
    """
    for option, value, known in (("--rule", rule, o.RULES), ("--format", format_, o.FORMATS)):
        _one_of(option, value, known)
    _one_of("--pairs", pairs, o.PAIRS)
    _check_key(key)
    typed = {
        "stream.address": to,
        "catalog.path": str(catalog) if catalog is not None else None,
        "feed.rule": rule,
        "feed.triplets_per_impression": triplets_per_impression,
        "feed.random_negatives": random_negatives,
        "feed.holdout_share": holdout_share,
    }
    effective = load(config, set_, typed)
    from daemon.feed.feeding import FeedJob, run_feed
    from daemon.feed.report import FeedReport, stderr_console
    from streams.feed.options import ReaderOptions, RelevanceOptions, UbiOptions

    clicks = {} if ubi_click is None else {"click_actions": frozenset(ubi_click)}
    sampling = RelevanceOptions(triplets, pairs, theta, seed=effective.feed.seed)
    now_ms, ubi = int(time.time() * 1000), UbiOptions(ubi_query, **clicks)
    options = ReaderOptions(now_ms, source_name, ubi, sampling, key)
    job = FeedJob(sources, format_, options, dry_run, skip)
    fed = run_feed(effective, job, FeedReport(stderr_console(), explain))
    if json_:
        head = {"complete": fed.code == 0, "dry_run": dry_run, "to": effective.stream.address}
        write_json(
            {**head, "items": fed.run.items, "sent_again": fed.sent_again, **fed.run.committed.to_dict()}
        )
    return fed.code


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


def _one_of(option: str, value: str | None, known: Sequence[str]) -> None:
    """UserError 64 for a value that is not one of the known, naming the nearest."""
    if value is None or value in known:
        return
    close = difflib.get_close_matches(value.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    remedy = f"did you mean {close[0]}?" if close else f"use one of {', '.join(known)}"
    raise UserError(f"{option} {value!r} is not known", remedy, EX_USAGE)
