"""Impressions, one JSON object per line: `{"id", "ts", "q", "shown", "clicked"}` and,
optionally, `prop`, `src`, `sp`, `key`.

`shown` is the list as the user saw it, best place first; `clicked` holds ranks (from 0) or ids of
shown objects, in any order, repeated clicks counting once; `prop` one examination propensity in
(0, 1] per rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.event import ObjectRef
from streams.feed import reasons
from streams.feed.inputs import Input, Line
from streams.feed.items import BadItemError, Placed
from streams.feed.parse import check_fields, number, object_ref, text, timestamp
from streams.feed.readers.jsonl import read_json_lines
from streams.feed.readers.options import ReaderOptions
from streams.impression import Impression

REQUIRED = ("ts", "q", "shown", "clicked")
KNOWN = frozenset({*REQUIRED, "id", "prop", "src", "sp", "key"})


def read_impressions(source: Input, options: ReaderOptions) -> Iterator[Placed]:
    """An Impression per line, in order."""

    def parse(line: dict[str, Any], at: Line) -> Impression:
        return parse_impression(line, options)

    return read_json_lines(source, parse)


def parse_impression(line: dict[str, Any], options: ReaderOptions) -> Impression:
    """One line as an Impression; raises BadItemError naming the field."""
    if line.get("id") is None:
        raise BadItemError(reasons.MISSING_ID, "field 'id' is missing")
    check_fields(line, REQUIRED, KNOWN)
    name = text(line["id"], "id")
    shown = _shown(line["shown"])
    return Impression(
        id=name,
        ts=timestamp(line["ts"]),
        query=object_ref(line["q"], "q"),
        shown=shown,
        clicked=_clicked(line["clicked"], shown),
        propensity=_propensity(line["prop"], len(shown)) if "prop" in line else None,
        source=text(line["src"], "src") if "src" in line else options.source,
        space=text(line["sp"], "sp") if "sp" in line else None,
        key=text(line["key"], "key") if "key" in line else options.key,
    )


def _shown(value: Any) -> tuple[ObjectRef, ...]:
    if not isinstance(value, list):
        raise BadItemError(reasons.WRONG_TYPE, "shown is not a list")
    if not value:
        raise BadItemError(reasons.NO_SHOWN, "shown is empty")
    return tuple(
        ObjectRef(id=item) if type(item) is str and item else object_ref(item, f"shown[{rank}]")
        for rank, item in enumerate(value)
    )


def _clicked(value: Any, shown: tuple[ObjectRef, ...]) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise BadItemError(reasons.WRONG_TYPE, "clicked is not a list of ranks or ids")
    ranks = set()
    for click in value:
        if type(click) is int:
            if not 0 <= click < len(shown):
                raise BadItemError(reasons.BAD_CLICKED_RANK, f"clicked rank {click} of {len(shown)} shown")
            ranks.add(click)
        elif isinstance(click, str):
            ranks.add(_rank_of(click, shown))
        else:
            raise BadItemError(
                reasons.BAD_CLICKED_RANK, f"clicked holds {str(click)[:40]}: no rank and no id"
            )
    return tuple(sorted(ranks))


def _rank_of(name: str, shown: tuple[ObjectRef, ...]) -> int:
    for rank, item in enumerate(shown):
        if item.id == name:
            return rank
    raise BadItemError(reasons.BAD_CLICKED_ID, f"clicked id {name[:80]!r} was not shown")


def _propensity(value: Any, shown: int) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != shown:
        raise BadItemError(reasons.BAD_PROPENSITY, f"prop is not a list of {shown} numbers")
    return tuple(number(p, f"prop[{rank}]", reasons.BAD_PROPENSITY, 1.0) for rank, p in enumerate(value))
