"""What `tripletd models show` tells of one model per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from daemon.commands.common import console
from daemon.exits import EX_USAGE, UserError
from daemon.text import measure, safe

if TYPE_CHECKING:
    from checkpoints import LedgerEntry, VersionStore
    from daemon.look.overview import KeyRow

MOST = 20
"""Keys in the table of a version; all of them with --json, one with --key."""


def keys_of_version(
    store: VersionStore, number: int, entries: Sequence[LedgerEntry], key: str | None
) -> list[KeyRow] | None:
    """A version's keys with the verdicts in force for it, the one asked for alone; None where there is one
    model for all. UserError for a key that it does not know.
    """
    from daemon.look.overview import key_rows, read_events
    from daemon.versions.key_verdicts import KeyVerdicts

    events = read_events(store, number)
    if events is None:
        if key is not None:
            raise UserError(
                f"version {number} has one model for all", "leave --key out (see keys.slots)", EX_USAGE
            )
        return None
    rows = key_rows(events, KeyVerdicts.of(entries).at(number))
    if key is None:
        return rows
    found = [row for row in rows if row.key == key]
    if not found:
        raise UserError(
            f"version {number} has no model of the key {key!r}, so version 0 answers it",
            f"`tripletd models show {number} --json` lists its {len(events):,} keys",
            EX_USAGE,
        )
    return found


def print_keys(rows: Sequence[KeyRow]) -> None:
    """A table of the keys with most events."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("key", no_wrap=True)
    for title in ("events", "judged on", "decision", "version 0"):
        table.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    table.add_column("verdict")
    for row in rows[:MOST]:
        told = f"{row.verdict}: {row.why}" if row.why else row.verdict or "not judged"
        lists = "-" if row.impressions is None else f"{row.impressions:,}"
        key = Text(safe(row.key))
        table.add_row(
            key, f"{row.events:,}", lists, measure(row.decision), measure(row.version_0), Text(told)
        )
    console().print(table if rows else "no key has a model yet")
    if len(rows) > MOST:
        console().print(f"and {len(rows) - MOST:,} more (--json)")
