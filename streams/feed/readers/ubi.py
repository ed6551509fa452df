"""OpenSearch User Behavior Insights (schema 1.3) query and event logs -> impressions.

A query line (index `ubi_queries`) holds `query_id`, `user_query`, `timestamp` and
`query_response_hit_ids`; an event line (`ubi_events`) holds `action_name`, `query_id`,
`timestamp` and `event_attributes` with `object.object_id` and `position.ordinal`.  They are joined
by `query_id`: one query is one impression, its id the query_id, its source the query's `client_id`.  A line
may be wrapped in `_source`, as index exports write it.

The clicks are read first and kept in memory (about 300 bytes each) until their query comes; the queries
stream by.  Feed very large logs in pieces, each with the queries and events of the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.event import Impression, ObjectRef
from streams.feed import items as reasons
from streams.feed.inputs import Input, InputLine
from streams.feed.items import BadItemError, Ignored, Placed
from streams.feed.options import ReaderOptions, UbiOptions
from streams.feed.parse import read_json_lines, text, timestamp, unwrapped


@dataclass(frozen=True, slots=True)
class Interaction:
    """One event on one object: where it was logged and the names its object goes by."""

    place: str
    names: tuple[str, ...]
    ordinal: float


@dataclass(slots=True)
class QueryClicks:
    """Events waiting for their query, by query_id."""

    clicks: dict[str, list[Interaction]] = field(default_factory=dict)
    shown: dict[str, list[Interaction]] = field(default_factory=dict)


def read_ubi(queries: list[Input], events: list[Input], options: ReaderOptions) -> Iterator[Placed]:
    """An Impression per query line, in order, after what was wrong with the event lines.

    Clicks whose query never comes follow at the end as Ignored, one each.
    """
    joined = QueryClicks()
    for source in events:

        def take(line: dict[str, Any], at: InputLine, name: str = source.name) -> Ignored | None:
            return _take_event(unwrapped(line), f"{name}:{at.number}", joined, options.ubi)

        with source:
            yield from read_json_lines(source, take)
    for source in queries:
        with source:
            yield from _impressions(source, joined, options)
    for name, clicks in joined.clicks.items():
        for click in clicks:
            detail = f"no query with query_id {name[:80]!r}"
            yield click.place, Ignored(reasons.CLICK_WITHOUT_QUERY, detail)


def _take_event(
    event: Mapping[str, Any], place: str, joined: QueryClicks, options: UbiOptions
) -> Ignored | None:
    action = text(event.get("action_name"), "action_name")
    clicked = action in options.click_actions
    if not clicked and action not in options.shown_actions:
        return Ignored(reasons.OTHER_ACTION, f"action_name {action[:80]!r}")
    query_id = event.get("query_id")
    if not query_id:
        return Ignored(reasons.CLICK_WITHOUT_QUERY, "query_id is missing")
    attributes = _map(event.get("event_attributes"), "event_attributes")
    target = _map(attributes.get("object"), "event_attributes.object")
    names = tuple(
        _object_name(target[key], f"event_attributes.object.{key}")
        for key in ("object_id", "internal_id")
        if target.get(key) is not None
    )
    if not names:
        raise BadItemError(reasons.MISSING_FIELD, "field 'event_attributes.object.object_id' is missing")
    position = attributes.get("position")
    ordinal = position.get("ordinal") if isinstance(position, dict) else None
    at: float = ordinal if isinstance(ordinal, int | float) else math.inf
    at = math.inf if at != at else at  # noqa: PLR0124  not a number; math.isnan fails on whole ones too large
    kept = joined.clicks if clicked else joined.shown
    kept.setdefault(text(query_id, "query_id"), []).append(Interaction(place, names, at))
    return None


def _impressions(source: Input, joined: QueryClicks, options: ReaderOptions) -> Iterator[Placed]:
    lost: list[tuple[str, Ignored]] = []
    found = read_json_lines(source, lambda line, at: _impression(unwrapped(line), joined, options, lost))
    for placed in found:
        yield placed
        yield from lost
        lost.clear()


def _impression(
    query: Mapping[str, Any], joined: QueryClicks, options: ReaderOptions, lost: list[tuple[str, Ignored]]
) -> Impression:
    if not query.get("query_id"):
        raise BadItemError(reasons.MISSING_ID, "field 'query_id' is missing")
    name = text(query["query_id"], "query_id")
    clicks = joined.clicks.pop(name, [])
    shown = _shown(query, joined.shown.pop(name, []))
    rank_of = {item: rank for rank, item in reversed(list(enumerate(shown)))}
    ranks = set()
    for click in clicks:
        rank = next((rank_of[known] for known in click.names if known in rank_of), None)
        if rank is None:
            detail = f"object {click.names[0][:80]!r} is not among the {len(shown)} shown for {name[:80]!r}"
            lost.append((click.place, Ignored(reasons.CLICK_NOT_SHOWN, detail)))
        else:
            ranks.add(rank)
    when, client = query.get("timestamp"), query.get("client_id")
    return Impression(
        id=name,
        ts=timestamp(when, "timestamp") if when is not None else options.now_ms,
        query=ObjectRef(id=_query_object(query, options.ubi.query_field)),
        shown=tuple(ObjectRef(id=item) for item in shown),
        clicked=tuple(sorted(ranks)),
        source=client if client and isinstance(client, str) else options.source,
        key=options.key,
    )


def _shown(query: Mapping[str, Any], events: list[Interaction]) -> list[str]:
    """The hits of the query; where none were logged, the impression events in order of position."""
    hits = query.get("query_response_hit_ids")
    if hits:
        if not isinstance(hits, list):
            raise BadItemError(reasons.WRONG_TYPE, "query_response_hit_ids is not a list")
        return [_object_name(hit, f"query_response_hit_ids[{rank}]") for rank, hit in enumerate(hits)]
    if not events:
        raise BadItemError(reasons.NO_SHOWN, "no query_response_hit_ids and no impression event")
    ordered = sorted(events, key=lambda event: event.ordinal)
    return list(dict.fromkeys(event.names[0] for event in ordered))


def _query_object(query: Mapping[str, Any], path: str) -> str:
    value: Any = query
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        raise BadItemError(reasons.MISSING_FIELD, f"field {path!r} is missing")
    return _object_name(value.strip() if isinstance(value, str) else value, path)


def _object_name(value: Any, field_name: str) -> str:
    """An id as text; the schema allows integers too."""
    return str(value) if type(value) is int else text(value, field_name)


def _map(value: Any, field_name: str) -> Mapping[str, Any]:
    if value is None:
        raise BadItemError(reasons.MISSING_FIELD, f"field {field_name!r} is missing")
    if not isinstance(value, dict):
        raise BadItemError(reasons.WRONG_TYPE, f"{field_name} is not a map")
    return value
