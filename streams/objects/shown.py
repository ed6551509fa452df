"""What people see of an object, from the cells of its source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streams.items import Display, pack_display
from streams.limits import MAX_SHOWN_TEXT_BYTES
from streams.poison import Poison


def packed_display(display: Display) -> bytes:
    """Display data as kept beside vectors; ValueError naming the field that does not fit, and the remedy."""
    try:
        return pack_display(display)
    except Poison as error:
        raise ValueError(f"{error.detail}; shorten it, or leave it out") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half a character (a lone surrogate); leave it out") from None


def cut(text: str) -> str:
    """A text as long as may be shown."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_SHOWN_TEXT_BYTES:
        return text
    return encoded[: MAX_SHOWN_TEXT_BYTES - 3].decode(errors="ignore") + "…"


def tags_of(cells: Sequence[Any]) -> tuple[str, ...]:
    """Tags from cells: texts and numbers are one tag each, lists several, nothing none; each tag once.

    A text that is a list in JSON is that list, as CSV has no other.
    """
    found: list[str] = []
    for cell in cells:
        found += _tags(cell)
    return tuple(dict.fromkeys(found))


def _tags(cell: Any) -> list[str]:
    if isinstance(cell, str) and cell.startswith("[") and cell.endswith("]"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return [cell]
    if isinstance(cell, list | tuple):
        return [tag for one in cell for tag in _tags(one)]
    return [] if cell is None or cell == "" else [str(cell)]
