"""Raw JSON records -> the join: impressions and clicks of our own, CloudEvents, or rows of a mapping.

Of our own are `{"event": "impression", "impression", "ts", "query", "shown", ...}` and `{"event": "click",
"impression", "ts", "object"}`, as the write routes of `serve` keep them; either may name a `session` instead
of the impression, which then joins the clicks of a session and query to its lists. A click may say whose
lists it belongs to: `key`, one or a list of them. The lines of the format `impressions` are read too; their
clicks may come apart. Objects are ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic_core import from_json

from streams.feed import items as reasons
from streams.feed.follow.bots import BotClicks
from streams.feed.follow.join import EventTimeJoin
from streams.feed.items import BadItemError, Dropped, FeedError, Ignored, Placed
from streams.feed.mapping.mapping import EVENTS, SHOWN, ClickLogMapping
from streams.feed.mapping.pieces import JoinedEvents, ShownObjects
from streams.feed.mapping.rows import LineRows
from streams.feed.mapping.window import Keys, Piece, Said
from streams.feed.options import ReaderOptions
from streams.feed.parse import json_map, timestamp, unwrapped
from streams.feed.readers.native import clicked_ranks, propensities
from streams.limits import MAX_SHOWN, MAX_TEXT_BYTES
from streams.poison import REASONS as POISON
from streams.source import Headers
from streams.text_files import MAX_LINE_BYTES, check_json

IMPRESSION, CLICK = "impression", "click"
_CLOUD = "ce_"
Moves = list[tuple[str, Callable[[], None]]]
"""What goes into a join, with what messages call its record."""


class RawRecord(NamedTuple):
    """One record: what messages call it, and its bytes, what they were decoded to, or what is wrong with
    them; `headers` are those of a topic's record."""

    place: str
    value: Any
    headers: Headers = ()


def suspected() -> BadItemError:
    """The value of a record at which the process died twice: nobody touches what it says."""
    return BadItemError(reasons.SUSPECT, POISON[reasons.SUSPECT])


class RecordReader:
    """Puts records into a join. `newest` is the latest time that they said, in ms; 0 before any.

    A record whose time lies past `latest_ms` is dropped. `ahead`: how many were, since one was not.
    """

    def __init__(
        self,
        join: EventTimeJoin,
        options: ReaderOptions,
        mapping: ClickLogMapping | None = None,
        bot_clicks: int = 30,
    ) -> None:
        self.newest = self.ahead = 0
        self.latest_ms = options.now_ms
        self._join, self._options = join, options
        self.bots = BotClicks(bot_clicks)
        self._moves: Moves = []
        self._rows = None if mapping is None else _rows(mapping, options, self)

    # What a mapping reads goes through here: its times are seen, and the join has nothing before all is read.
    timed = True

    def shown(self, said: Said, piece: Piece) -> None:
        """A piece of an impression."""
        self._moves.append((said.place, partial(self._show, said, piece)))

    def click(self, join: Any, place: str, clicked: str, ts: int, keys: Keys = None) -> None:
        """A click that came by itself."""
        self._moves.append((place, partial(self._click, join, place, clicked, ts, keys)))

    def take(self, records: Sequence[RawRecord]) -> None:
        """Put the records into the join; what is wrong with one is in its `done`, whatever it is."""
        if self._rows is not None:
            moves = self._read(records, self._rows)
        else:
            moves = [(record.place, partial(self._own, record)) for record in records]
        for place, move in moves:
            try:
                move()
            except Exception as error:  # noqa: BLE001
                self._drop(place, error)

    def _read(self, records: Sequence[RawRecord], rows: JoinedEvents | ShownObjects) -> Moves:
        """What a mapping would have in the join; of an error that nobody thought of, each is read alone."""
        self._moves = []
        try:
            self._join.done += list(self._mapped(records, rows))
        except Exception as error:  # noqa: BLE001
            if len(records) > 1 and not isinstance(error, MemoryError):
                return [move for record in records for move in self._read([record], rows)]
            self._drop(records[0].place, error)
            return []
        return self._moves

    def _drop(self, place: str, error: Exception) -> None:
        """No record ends the role."""
        if isinstance(error, MemoryError):  # another's doing, more often than a record's: see `Guard`
            raise error
        unexpected = Dropped(reasons.UNREADABLE, f"{type(error).__name__}: {error!s:.200}")
        self._join.done.append((place, error.dropped() if isinstance(error, BadItemError) else unexpected))

    def _show(self, said: Said, piece: Piece) -> None:
        if self._in_time(said.place, said.ts):
            self._join.shown(said, piece)

    def _click(self, join: Any, place: str, clicked: str, ts: int, keys: Keys = None) -> None:
        if self._in_time(place, ts):
            self.bots.click((join, keys), ts)
            self._join.click(join, place, clicked, ts, keys)

    def _in_time(self, place: str, ts: int) -> bool:
        if ts > self.latest_ms:
            self._join.done.append((place, Dropped(reasons.IN_THE_FUTURE, f"ts {ts}")))
            self.ahead += 1
            return False
        self.ahead = 0
        self.newest = max(self.newest, ts)
        return True

    def _mapped(self, records: Sequence[RawRecord], rows: JoinedEvents | ShownObjects) -> Iterator[Placed]:
        places: list[str] = []
        documents: list[dict[str, Any]] = []
        for record in records:
            try:
                documents.append(dict(unwrapped(_document(record))))
                places.append(record.place)
            except BadItemError as bad:
                yield record.place, bad.dropped()
        if documents:
            yield from rows.take(_RecordRows(places, documents))

    def _own(self, record: RawRecord) -> None:
        said, place = _document(record), record.place
        event = said.get("event")
        if event == IMPRESSION or (event is None and "shown" in said):
            self._impression(said, place)
        elif event == CLICK:
            self._own_click(said, place)
        else:
            detail = f"event is {str(event)[:40]!r}"
            self._join.done.append((place, Ignored(reasons.OTHER_ACTION, detail)))

    def _impression(self, said: Mapping[str, Any], place: str) -> None:
        get = said.get
        name = get("impression")
        if type(name) is not str or not name:
            name = _text(said, "id" if name is None and "id" in said else "impression")
        query = get("query")
        if type(query) is not str or not query:
            query = _text(said, "q" if query is None and "q" in said else "query")
        ts = _time(said)
        shown = get("shown")
        if type(shown) is not list or not _are_ids(shown):
            raise BadItemError(reasons.WRONG_TYPE, "shown is not a list of ids")
        if not shown:
            raise BadItemError(reasons.NO_SHOWN, "shown is empty")
        if len(shown) > MAX_SHOWN:
            raise BadItemError(reasons.TOO_LARGE, f"{len(shown):,} objects shown, the limit is {MAX_SHOWN:,}")
        chances = get("propensity") or get("prop") or ()
        if chances:
            propensities(chances, len(shown))
        session, key = _optional(said, "session"), _optional(said, "key")
        source = _optional(said, "source") or _optional(said, "src")
        if source is None and session and len(session.encode(errors="ignore")) <= MAX_TEXT_BYTES:
            source = session
        if self._in_time(place, ts):
            options, clicked = self._options, clicked_ranks(get("clicked") or [], shown)
            join = name if session is None else (session, query)
            about = Said(name, join, place, ts, query, source or options.source, key or options.key)
            self._join.shown_whole(about, shown, chances, [shown[rank] for rank in clicked])

    def _own_click(self, said: Mapping[str, Any], place: str) -> None:
        clicked = said.get("object")
        if type(clicked) is not str or not clicked:
            clicked = _text(said, "object")
        ts = _time(said)
        join: Any = said.get("impression")
        if type(join) is not str or not join:
            if join is not None:
                join = _text(said, "impression")
            else:
                join = (_text(said, "session"), _text(said, "query"))
        self._click(join, place, clicked, ts, _keys(said))


class _RecordRows(LineRows):
    def __init__(self, places: list[str], documents: list[dict[str, Any]]) -> None:
        super().__init__("", [], documents, [])
        self._places = places

    def place(self, row: int) -> str:
        return self._places[row]


def _rows(
    mapping: ClickLogMapping, options: ReaderOptions, into: RecordReader
) -> JoinedEvents | ShownObjects:
    if mapping.rows == EVENTS:
        return JoinedEvents(mapping, options, into)
    if mapping.rows == SHOWN:
        return ShownObjects(mapping, options, into)
    remedy = f'write rows = "{EVENTS}" or "{SHOWN}"; whole lists in the format impressions need no mapping'
    raise FeedError(f'{mapping.name} has rows = "{mapping.rows}"; what is followed comes apart', remedy)


def _document(record: RawRecord) -> dict[str, Any]:
    """The JSON object of a record; of a CloudEvent its data, with id, time and type where it has none."""
    value = record.value
    if type(value) is bytes:
        try:
            check_json(value)
            said = from_json(value, cache_strings="keys")  # looking for each id costs more than its memory
        except ValueError:
            said = json_map(value)  # says what is wrong with it
    elif value is None:
        raise BadItemError(reasons.NOT_JSON, f"the record is empty, or longer than {MAX_LINE_BYTES:,} bytes")
    elif isinstance(value, BadItemError):
        raise value
    else:
        said = value
    if type(said) is not dict:
        raise BadItemError(reasons.NOT_JSON, f"the record is a {type(said).__name__}, not an object")
    if "specversion" in said:
        data = said.get("data")
        if type(data) is not dict:
            raise BadItemError(reasons.NOT_JSON, "data of the CloudEvent is no JSON object")
        return _with_envelope(data, said)
    if record.headers and any(name.startswith(_CLOUD) for name, _ in record.headers):
        envelope = {
            name[len(_CLOUD) :]: (value or b"").decode(errors="replace")
            for name, value in record.headers
            if name.startswith(_CLOUD)
        }
        return _with_envelope(said, envelope)
    return said


def _with_envelope(data: dict[str, Any], envelope: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(data)
    if made.get("ts") is None and "time" in envelope:
        made["ts"] = envelope["time"]
    if made.get("event") is None and "type" in envelope:
        made["event"] = str(envelope["type"]).rpartition(".")[2]
    if made.get("event") == IMPRESSION and "impression" not in made and "id" not in made and "id" in envelope:
        made["impression"] = envelope["id"]
    return made


def _text(said: Mapping[str, Any], field: str) -> str:
    value = said.get(field)
    if type(value) is str and value:
        return value
    if value is None:
        raise BadItemError(reasons.MISSING_FIELD, f"field {field!r} is missing")
    if type(value) is int:
        return str(value)
    raise BadItemError(reasons.WRONG_TYPE, f"{field} is not a text")


def _optional(said: Mapping[str, Any], field: str) -> str | None:
    """A text; None where the field is absent or null, as those of a schema are that were not set."""
    return None if said.get(field) is None else _text(said, field)


def _keys(said: Mapping[str, Any]) -> Keys:
    value = said.get("key")
    if type(value) is list and all(type(one) is str for one in value):
        return tuple(value)
    key = _optional(said, "key")
    return None if key is None else (key,)


def _time(said: Mapping[str, Any]) -> int:
    value = said.get("ts")
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    if value is None:
        raise BadItemError(reasons.MISSING_FIELD, "field 'ts' is missing")
    return timestamp(value)


def _are_ids(values: list[Any]) -> bool:
    try:
        "".join(values)  # several times faster than to ask each for its type
    except TypeError:
        return False
    return "" not in values
