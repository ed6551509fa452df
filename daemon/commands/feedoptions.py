"""The options of `tripletd feed`, as typer wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_TABLE = "Relevance tables"
_UBI = "OpenSearch UBI"

RULES = ("skip_above", "last_click", "skip_next", "all_skipped", "clicked_vs_random")
FORMATS = ("impressions", "triplets", "msgpack", "ubi", "relevance")
PAIRS = ("items", "queries", "co_click")

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE...", help="Click logs: files, gzip files, or - for standard input."),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="ADDRESS", help="Stream to feed, such as log:clicks.log or kafka://host/topic."
    ),
]
CatalogFile = Annotated[
    Path | None, typer.Option("--catalog", metavar="FILE", help="Objects random negatives are drawn from.")
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help=f"{', '.join(FORMATS)}; else told from the first line."),
]
RuleName = Annotated[str | None, typer.Option("--rule", metavar="NAME", help=f"{', '.join(RULES)}.")]
TripletsPerImpression = Annotated[
    int | None,
    typer.Option(
        "--triplets-per-impression", metavar="N", help="Most shown-list pairs per impression; 0 is no cap."
    ),
]
RandomNegatives = Annotated[
    int | None,
    typer.Option("--random-negatives", metavar="N", help="Random objects per click as further negatives."),
]
HoldoutShare = Annotated[
    float | None,
    typer.Option("--holdout-share", metavar="SHARE", help="Share of queries kept for validation."),
]
SourceName = Annotated[
    str | None, typer.Option("--source-name", metavar="NAME", help="Written into every event as its source.")
]
KeyName = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Whose model learns the clicks that name no key of their own."),
]
Skip = Annotated[
    int, typer.Option("--skip", min=0, metavar="N", help="Items an interrupted run has already fed.")
]
Explain = Annotated[
    bool,
    typer.Option("--explain", metavar="", help="Show where and why something was dropped, and what to do."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar="", help="Do everything but write.")]
Triplets = Annotated[
    int, typer.Option("--triplets", min=1, metavar="N", help="Triplets to sample.", rich_help_panel=_TABLE)
]
Pairs = Annotated[
    str, typer.Option("--pairs", metavar="NAME", help=f"{', '.join(PAIRS)}.", rich_help_panel=_TABLE)
]
Theta = Annotated[
    float,
    typer.Option("--theta", min=0.0, help="Item relevance at or below is none.", rich_help_panel=_TABLE),
]
UbiQuery = Annotated[
    str,
    typer.Option("--ubi-query", metavar="FIELD", help="What names the query object.", rich_help_panel=_UBI),
]
UbiClicks = Annotated[
    list[str] | None,
    typer.Option(
        "--ubi-click",
        metavar="ACTION",
        help="An action that counts as a click, default click and click_through; may be repeated.",
        rich_help_panel=_UBI,
    ),
]
