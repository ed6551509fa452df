"""What is said of a click log that nobody has mapped yet: its columns, and how to say what they mean."""

from __future__ import annotations

import json

from streams.feed.items import FeedError
from streams.feed.mapping.mapping import load_mapping, recipes
from streams.feed.mapping.rows import RowSource, column_list
from streams.feed.parse import unwrapped
from streams.tables import Table, TableError

_FIELDS_TOLD = 20


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
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or not fields:
        return FeedError(message, formats)
    told = ", ".join(list(unwrapped(fields))[:_FIELDS_TOLD])
    return FeedError(f"{message}; it has the fields {told}", f"{formats}, or {_remedy([])}")


def _remedy(fits: list[str]) -> str:
    if fits:
        return f"it looks like that of {' or '.join(fits)}: add --mapping {fits[0]}"
    return (
        "say it in a TOML file: --mapping FILE.toml; "
        f"--show-mapping NAME prints one to begin with ({', '.join(recipes())})"
    )
