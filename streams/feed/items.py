"""What a reader yields, with the place it came from, and the closed list of reasons for dropping an item."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from streams.event import Event, Impression, ObjectRef
from streams.poison import REASONS as POISON
from streams.poison import SUSPECT as SUSPECT_RECORD
from streams.poison import TOO_LARGE as TOO_LARGE_VALUE


@dataclass(frozen=True, slots=True)
class Dropped:
    """An item that cannot be fed: a reason of `reasons` and what exactly was wrong."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A line that is no impression and none is lost with it (say, a page view in an event log)."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class LateClick:
    """A click on a list that was decided before: the list with the clicks it had by then, and the rank."""

    impression: Impression
    rank: int


class UnclickedList(NamedTuple):
    """A list that was closed without a click. Most are, and nothing is learned from them: it stands for the
    impression until somebody needs that. `shown` are ids in their order, at least one; a repeat counts once.
    """

    id: str
    ts: int
    query: str
    shown: Sequence[str]
    source: str | None
    key: str | None

    def impression(self) -> Impression:
        """The whole of it."""
        return Impression(
            id=self.id,
            ts=self.ts,
            query=ObjectRef(id=self.query),
            shown=tuple([ObjectRef(id=name) for name in dict.fromkeys(self.shown)]),
            clicked=(),
            source=self.source,
            key=self.key,
        )


Item = Event | Impression | Dropped | Ignored
Placed = tuple[str, Item]
"""("file:line", item); for a binary file ("file:byte n", item)."""
PlacedOrLate = tuple[str, Item | LateClick | UnclickedList]
"""What following gives; the last two are only there."""


def scoped(name: Hashable, key: str | None) -> Hashable:
    """What a list or a query is known by wherever it is remembered: under another key the same id is another,
    for ids are chosen by who sends them."""
    return name if key is None else (key, name)


class BadItemError(Exception):
    """Raised while parsing one item; the reader turns it into `Dropped` and continues."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def dropped(self) -> Dropped:
        """The item as the account wants it."""
        return Dropped(self.reason, self.detail)


class FeedError(Exception):
    """The feed cannot continue: an unreadable file or an unknown format. `remedy` says what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


NO_CLICK = "no_click"
ALL_CLICKED = "all_clicked"
NO_SKIPPED_ABOVE = "no_skipped_above"
NO_PAIR = "no_pair"
DUPLICATE = "duplicate"
QUERY_CAP = "query_cap"
UNKNOWN_OBJECT = "unknown_object"
IN_THE_FUTURE = "in_the_future"
BAD_SIGNATURE = "bad_signature"
MISSING_ID = "missing_id"
BAD_CLICKED_RANK = "bad_clicked_rank"
BAD_CLICKED_ID = "bad_clicked_id"
NO_SHOWN = "no_shown"
NO_LABEL = "no_label"

MALFORMED = "malformed:"
NOT_JSON = MALFORMED + "not_json"
NOT_UTF8 = MALFORMED + "not_utf8"
NOT_MSGPACK = MALFORMED + "not_msgpack"
TOO_LONG = MALFORMED + "too_long"
TOO_LARGE = MALFORMED + TOO_LARGE_VALUE
NOT_AN_OBJECT = MALFORMED + "not_an_object"
MISSING_FIELD = MALFORMED + "missing_field"
UNKNOWN_FIELD = MALFORMED + "unknown_field"
WRONG_TYPE = MALFORMED + "wrong_type"
BAD_VECTOR = MALFORMED + "bad_vector"
NOT_FINITE = MALFORMED + "not_finite"
BAD_TIMESTAMP = MALFORMED + "bad_timestamp"
BAD_PROPENSITY = MALFORMED + "bad_propensity"
BAD_WEIGHT = MALFORMED + "bad_weight"
BAD_ROW = MALFORMED + "bad_row"
BAD_LABELS = MALFORMED + "bad_labels"
NOT_AS_SCHEMA = MALFORMED + "not_as_schema"
UNREADABLE = MALFORMED + "unreadable"
UNKNOWN_SCHEMA = "unknown_schema"
SUSPECT = SUSPECT_RECORD

PROVED, TOO_LATE, NO_SECRET = "proved", "too_late", "no_secret"
"""What became of the draft that a signed id tells: it goes along; it is left out because the list was made
too long ago; or because no key is configured to check it with."""

OTHER_ACTION = "other_action"
CLICK_WITHOUT_QUERY = "click_without_query"
CLICK_NOT_SHOWN = "click_not_shown"
CLICK_WITHOUT_IMPRESSION = "click_without_impression"
REPEATED_CLICK = "repeated_click"
OTHER_ROW = "other_row"
AFTER_WINDOW = "after_window"
LATE_HELD_OUT = "late_held_out"
NO_PARTNER = "no_partner"
NO_REST = "no_rest"

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        NO_CLICK: "nothing to learn from; normal for a share of every click log",
        ALL_CLICKED: "no unclicked object to compare with; a random negative per click makes it usable for"
        " training",
        NO_SKIPPED_ABOVE: "every object above the clicks was clicked; use random negatives or another rule",
        NO_PAIR: "the rule finds no pair here; use random negatives or another rule",
        DUPLICATE: "the id was already fed within the dedupe window; give every impression its own id",
        QUERY_CAP: "this query has reached feed.query_cap; raise it, or set it to 0 for no cap",
        UNKNOWN_OBJECT: "add the object to the catalog, or write its features inline",
        IN_THE_FUTURE: "its time lies ahead by more than stream.max_future: microseconds, or a wrong clock;"
        " write milliseconds or ISO 8601",
        BAD_SIGNATURE: "log id, query and objects of an interleaved list as they were answered, all of them"
        " and in their order; and feed with the key that serve signs with",
        MISSING_ID: "give every impression an 'id' (a string), so that feeding it twice changes nothing",
        BAD_CLICKED_RANK: "clicked ranks are integers from 0 to the number shown - 1",
        BAD_CLICKED_ID: "clicked ids must be among the ids of 'shown'",
        NO_SHOWN: "the shown list is empty or absent; log query_response_hit_ids, or impression events",
        NOT_JSON: "write one JSON object per line",
        NOT_UTF8: "encode the file as UTF-8",
        NOT_MSGPACK: "the rest of this file cannot be parsed; write it again as whole msgpack maps",
        TOO_LONG: "split the line; one impression or triplet per line",
        NOT_AN_OBJECT: "an object is a string id, or a map with 'x' or 'views' (and perhaps 'id')",
        MISSING_FIELD: "write the missing field",
        UNKNOWN_FIELD: "remove or rename the field",
        WRONG_TYPE: "write the field with the stated type; ids are strings",
        BAD_VECTOR: "a vector is a list of numbers, or {'indices': [ascending], 'values': [numbers]}",
        NOT_FINITE: "vectors hold finite numbers only (no NaN, no Infinity)",
        BAD_TIMESTAMP: "a time is an integer of milliseconds since 1970, or ISO 8601 text",
        BAD_PROPENSITY: "'prop' holds one number in (0, 1] per shown object",
        NOT_AS_SCHEMA: "write records with a serializer that the schema registry knows",
        UNKNOWN_SCHEMA: "feed.follow.registry.url names a registry that has it not, or cannot be used by it",
        SUSPECT: "`feed --follow` died twice over it; please report it with the record and the log",
        UNREADABLE: "this is a bug; please report it with the record",
        BAD_ROW: "a row is query TAB object TAB count, the count a finite number >= 0",
        BAD_LABELS: "a row is id TAB label [TAB label ...]",
        NO_LABEL: "give it a label, or leave the line out: nothing is known of it",
        BAD_WEIGHT: "'w' is a finite number > 0",
        OTHER_ACTION: "only the configured click and impression actions are read",
        CLICK_WITHOUT_QUERY: "no query with this query_id was fed; give both files, covering the same time",
        CLICK_NOT_SHOWN: "the clicked object is not in the query's shown list; check object_id_field",
        CLICK_WITHOUT_IMPRESSION: "no impression agrees with it in the columns of `join` within the time of"
        " `within`; give both, covering the same time",
        REPEATED_CLICK: "the object was clicked in this impression before; it counts once",
        OTHER_ROW: "only the rows that `where` of the mapping names are read",
        LATE_HELD_OUT: "its list was held out with the clicks it had; where there are many, raise"
        " feed.follow.window",
        NO_PARTNER: "no other object has one of its labels; it is skipped for others, and never a query",
        NO_REST: "it shares a label with every other object, so none can be skipped for it",
        AFTER_WINDOW: "its impression was closed to make room; sort the file by time or by impression, or"
        " raise `window` of the mapping",
    }
)


MAPPED_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        UNKNOWN_OBJECT: "add it to the catalog with its vector, also where it is a query: a mapping"
        " carries ids alone",
        DUPLICATE: "the id was fed before: leave `id` out of the mapping, or name several columns, which are"
        " one id together",
        MISSING_ID: "leave `id` out of the mapping, or name a column that every row fills",
    }
)
"""Where rows come through a mapping, which says what an id is and knows no features."""


def remedy(reason: str, mapped: bool = False) -> str:
    """What to do about a reason; for one of the event format's own, what the format asks for."""
    if mapped and reason in MAPPED_REMEDIES:
        return MAPPED_REMEDIES[reason]
    if reason in REMEDIES:
        return REMEDIES[reason]
    refused = POISON.get(reason.removeprefix(MALFORMED))
    return f"the event format refuses it: {refused}" if refused else ""
