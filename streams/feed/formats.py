"""Which format a source is in, what is said of one that nobody has mapped yet, and the items of several
sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from streams.feed.inputs import Input, is_msgpack_map
from streams.feed.items import FeedError, Placed
from streams.feed.mapping.mapping import load_mapping, recipes
from streams.feed.mapping.rows import RowSource, column_list
from streams.feed.options import (
    FORMATS,
    IMPRESSIONS,
    LABELS,
    MSGPACK,
    RELEVANCE,
    TRIPLETS,
    UBI,
    ReaderOptions,
)
from streams.feed.parse import unwrapped
from streams.feed.readers.labels import read_labels
from streams.feed.readers.mapped import read_mapped
from streams.feed.readers.native import read_binary, read_impressions, read_triplets
from streams.feed.readers.relevance import read_relevance
from streams.feed.readers.ubi import read_ubi
from streams.tables import Table, TableError, is_table
from streams.text_files import read_json

UBI_QUERIES, UBI_EVENTS = "ubi-queries", "ubi-events"
"""The two sides of UBI, as `detect` tells them apart."""

SourceReader = Callable[[Input, ReaderOptions], Iterator[Placed]]

READERS: Mapping[str, SourceReader] = MappingProxyType(
    {
        IMPRESSIONS: read_impressions,
        TRIPLETS: read_triplets,
        MSGPACK: read_binary,
        RELEVANCE: read_relevance,
        LABELS: read_labels,
    }
)

_TEXT_TABLES = (".csv", ".tsv", ".gz")
"""Tables whose first line is looked at first: it may be that of a format known."""

_CHOICES = f"name it with --format ({', '.join(FORMATS)})"


def read_sources(paths: Sequence[str], options: ReaderOptions, wanted: str | None = None) -> Iterator[Placed]:
    """The items of all sources, in order; UBI query and event files are joined with each other.

    A mapping, where the options name one, says what the rows are. `wanted` names the format; None tells it
    per source from its first line. All sources are looked at before the first item comes. Raises FeedError,
    also for an empty or unrecognised source.
    """
    if wanted is not None and wanted not in FORMATS:
        raise FeedError(f"unknown format {wanted!r}", f"use one of {', '.join(FORMATS)}")
    if options.mapping is not None:
        return read_mapped(paths, load_mapping(options.mapping), options)
    for path in paths:
        if wanted is None and is_table(path) and not path.lower().endswith(_TEXT_TABLES):
            raise unmapped_table(path)
    inputs = [Input(path) for path in paths]
    sources = [(source, _kind(source, wanted)) for source in inputs]
    events = [source for source, kind in sources if kind == UBI_EVENTS]
    if events and all(kind != UBI_QUERIES for _, kind in sources):
        raise FeedError(f"{events[0].name} holds UBI events without queries", "give the ubi_queries file too")
    return _items(sources, options)


def _items(sources: Sequence[tuple[Input, str]], options: ReaderOptions) -> Iterator[Placed]:
    for source, kind in sources:
        if kind in READERS:
            with source:
                yield from READERS[kind](source, options)
    queries, events = ([one for one, kind in sources if kind == side] for side in (UBI_QUERIES, UBI_EVENTS))
    yield from read_ubi(queries, events, options)


def _kind(source: Input, wanted: str | None) -> str:
    with source:
        if wanted is not None and wanted != UBI:
            source.first_byte()
            return wanted
        kind = detect(source)
    if kind is None and wanted is None:
        if is_table(source.name):
            raise unmapped_table(source.name)
        with source:
            raise unmapped_lines(source.name, source.first_line(), _CHOICES)
    if kind is None or (wanted == UBI and kind not in (UBI_QUERIES, UBI_EVENTS)):
        raise FeedError(f"{source.name}: its first line is not that of UBI queries or events", _CHOICES)
    return kind


def detect(source: Input) -> str | None:
    """The format by the first byte (msgpack maps) or the first line's fields; None for an unknown one.

    Raises FeedError for an empty source.
    """
    first = source.first_byte()
    if first and is_msgpack_map(first[0]):
        return MSGPACK
    line = source.first_line()
    if not line:
        raise FeedError(f"{source.name} is empty", "give a click log with at least one line")
    try:
        fields = read_json(line)
    except (ValueError, RecursionError):
        return RELEVANCE if line.count(b"\t") == 2 and not line.lstrip().startswith(b"{") else None
    return _by_fields(fields) if isinstance(fields, dict) else None


def _by_fields(fields: dict[str, Any]) -> str | None:
    if "shown" in fields or "clicked" in fields:
        return IMPRESSIONS
    if {"c", "s"} & set(fields):
        return TRIPLETS
    document = unwrapped(fields)
    if "action_name" in document:
        return UBI_EVENTS
    if {"user_query", "query_response_hit_ids", "query_id"} & set(document):
        return UBI_QUERIES
    return None


_FIELDS_NAMED = 20


def unmapped_table(path: str) -> FeedError:
    """For a table that is fed without a mapping."""
    try:
        table = Table(path)
        fits = [name for name in recipes() if not RowSource(path, load_mapping(name)).missing]
    except TableError as error:
        return FeedError(error.message, error.remedy)
    said = f"{path} is a table, and nothing says what its columns mean: {column_list(table)}"
    return FeedError(said, _remedy(fits))


def unmapped_lines(name: str, line: bytes, formats: str) -> FeedError:
    """For a file whose first line is that of no format known."""
    message = f"{name}: its first line is not that of any format known"
    try:
        fields = read_json(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not fields:
        return FeedError(message, formats)
    names = ", ".join(list(unwrapped(fields))[:_FIELDS_NAMED])
    return FeedError(f"{message}; it has the fields {names}", f"{formats}, or {_remedy([])}")


def _remedy(fits: list[str]) -> str:
    if fits:
        return f"it looks like that of {' or '.join(fits)}: add --mapping {fits[0]}"
    return (
        "say it in a TOML file, --mapping FILE.toml: `tripletd init` writes one of your files. A row for each"
        ' list needs five lines (docs/recipes.md, "Your own mapping"); for events --show-mapping NAME prints'
        f" one ({', '.join(recipes())})"
    )
