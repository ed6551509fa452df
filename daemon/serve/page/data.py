"""What the page's data endpoints answer: live numbers, curves, versions, keys, objects, neighbours."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from checkpoints import Ledger, LedgerEntry, Manifest, VersionStore
from daemon.look.charts import csv_pieces, evenly
from daemon.look.curves import LOSS_TITLE, TITLES, CurveLine, CurveReader, Curves, Point
from daemon.look.overview import Readable, VersionRow, read_all, version_rows
from daemon.serve.http.errors import JSON, Problem
from daemon.serve.page.answers import HEADERS, Asked, CannotAnswer, answer, answer_json, json_of
from daemon.serve.page.objects import ShownObject, kind_of
from daemon.serve.page.sources import NearestObjects, PageSources
from daemon.serve.store import alias_answers

T = TypeVar("T")


class Cached(Generic[T]):
    """What `make` gives, kept for `seconds`; askers that come while it is made wait for it.

    What takes long to make is kept longer: making it takes at most `share` of the time.
    """

    def __init__(
        self,
        make: Callable[[], T],
        seconds: float,
        share: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._seconds, self._share, self._clock = make, seconds, share, clock
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None

    def get(self) -> T:
        """The value; raises what `make` raises, and keeps nothing then."""
        with self._lock:
            began = self._clock()
            if self._known is None or began >= self._known[0]:
                made = self._make()
                ended = self._clock()
                self._known = ended + max(self._seconds, (ended - began) / self._share), made
            return self._known[1]


MOST_POINTS = 1500
"""Of one line of one measure; longer ones are thinned evenly, their last point kept."""
MOST_LINES = 50
"""Lines drawn, the newest ones."""
MOST_MOVES = 12
MOST_MARKS = 200
"""Promotions and rollbacks marked on the curves, the newest ones."""
_MARKED = ("PROMOTE", "ROLLBACK")
MOST_KEPT = 500
"""Versions offered to be compared, the newest ones."""
_DECISION = "decision"


@dataclass(frozen=True, slots=True)
class PageHistory:
    """Everything the store says: curves, kept versions, verdicts other than judgments (newest first), and
    what was promoted or gone back to, oldest first."""

    curves: Curves
    rows: Mapping[int, VersionRow]
    moves: Sequence[LedgerEntry]
    notes: Sequence[str]
    marks: Sequence[LedgerEntry] = ()


class HistoryReader:
    """Reads the history of one store. Not safe between threads."""

    def __init__(self, versions: VersionStore, ledger: Ledger) -> None:
        self._versions, self._ledger = versions, ledger
        self._curves = CurveReader(versions, ledger)
        self._manifests: dict[int, Manifest] = {}
        self._last: tuple[Readable, PageHistory] | None = None
        self._lost: list[str] = []

    def read(self) -> PageHistory:
        """As it is now; the same object where nothing has changed. Damaged when nothing can be listed."""
        found = read_all(self._versions, self._ledger, self._manifests)
        lost = [note for note in found.notes if note not in found.damaged.values()]  # each is shown once
        self._lost += lost
        if self._last is None or lost or replace(found, notes=[]) != self._last[0]:
            rows = version_rows(found.manifests, found.entries, found.newest, found.damaged)
            moves = [entry for entry in found.entries if entry.kind != "KEEP"]
            newest_first = tuple(reversed(moves[-MOST_MOVES:]))
            by_number = {row.number: row for row in rows}
            notes = [*found.damaged.values(), *self._lost]
            marks = [entry for entry in moves if entry.kind in _MARKED][-MOST_MARKS:]
            history = PageHistory(self._curves.read(), by_number, newest_first, notes, marks)
            self._last = replace(found, notes=[]), history
        return self._last[1]


def curves_data(history: PageHistory, own: str | None = None) -> dict[str, Any]:
    """Every measure's lines, the current one first, and the training loss in the same form; what was promoted
    and gone back to. own: the user's own similarity, where version 0 is exactly that."""
    curves = history.curves
    best = curves.best_point()
    marks = [{"version": one.version, "kind": one.kind, "alias": one.alias} for one in history.marks]
    return {
        "own": own,
        "marks": [one for one in marks if one["version"] is not None],
        "kinds": [
            {"name": kind, "title": TITLES.get(kind, LOSS_TITLE), "lines": _lines(curves.lines, kind)}
            for kind in curves.drawn()
        ],
        "best": None if best is None else {"version": best.version, "events": best.events},
        "stopped_by": curves.stopped_by,
        "verdict": None if curves.verdict is None else curves.verdict.to_json(),
        "stop": None if curves.stop is None else asdict(curves.stop),
        "lost": curves.lost,
        "judged": len(curves.judged),
    }


def versions_data(history: PageHistory, before: int | None, most: int) -> dict[str, Any]:
    """The newest `most` versions below `before`, pruned ones too; older ones that bear a name; the moves."""
    points = {point.version: point for line in history.curves.lines for point in line.points}
    behind = {point.version for line in history.curves.lines[1:] for point in line.points}
    numbers = sorted({*points, *history.rows}, reverse=True)
    shown = [number for number in numbers if before is None or number < before]
    named = [n for n in shown[most:] if before is None and n in history.rows and history.rows[n].aliases]
    return {
        "versions": [
            _version(number, points.get(number), history.rows.get(number), number in behind)
            for number in [*shown[:most], *named]
        ],
        "more": max(len(shown) - most - len(named), 0),
        "count": len(numbers),
        "kept": [number for number in numbers if number in history.rows][:MOST_KEPT],
        "moves": [
            {"at": one.at, "kind": one.kind, "alias": one.alias, "version": one.version}
            | {"by": one.by, "reason": one.reason}
            for one in history.moves
        ],
        "notes": list(history.notes),
    }


def _lines(lines: Sequence[CurveLine], kind: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(lines[:MOST_LINES]):
        series = line.series(kind)
        drawn = line.points if line.left is None else (line.left, *line.points)
        written = {point.version: _seconds(point.created) for point in drawn}
        kept = evenly(range(len(series.events)), MOST_POINTS)
        columns: dict[str, Sequence[float | None]] = {
            one.name: getattr(series, one.name) for one in fields(series)
        }
        if kept:
            thinned = {name: [column[at] for at in kept] for name, column in columns.items()}
            times = [written.get(series.versions[at]) for at in kept]
            found.append({"current": number == 0, **thinned, "times": times})
    return found


def _seconds(created: str) -> float | None:
    """Unix seconds of a version's time, None where it is not known."""
    try:
        return datetime.fromisoformat(created).timestamp()
    except ValueError:
        return None


def _version(number: int, point: Point | None, row: VersionRow | None, behind: bool) -> dict[str, Any]:
    point = point or Point(number, 0 if row is None else row.events)
    return {
        "number": number,
        "created": point.created if row is None else row.created,
        "events": point.events,
        "names": [] if row is None else list(row.aliases),
        "kept": row is not None,
        "behind": behind,
        "size": None if row is None else row.size,
        "decision": point.measures.get(_DECISION),
        "decision_of_zero": point.reference.get(_DECISION),
        "training_loss": point.loss,
        "verdict": point.verdict,
        "marks": list(point.marks),
        "damaged": "" if row is None else row.damaged,
    }


Hits = Sequence[tuple[str, float]]


def ranked(own: Hits, other: Hits) -> list[dict[str, Any]]:
    """Each hit with its rank (from 1), and the rank it has in the other list, None when it is not there."""
    elsewhere = {object_id: rank for rank, (object_id, _) in enumerate(other, start=1)}
    return [
        {"id": object_id, "score": score, "rank": rank, "other_rank": elsewhere.get(object_id)}
        for rank, (object_id, score) in enumerate(own, start=1)
    ]


def shared(left: Hits, right: Hits) -> int:
    """How many objects both lists have."""
    return len({one for one, _ in left} & {one for one, _ in right})


HISTORY_SECONDS = 1.0
MOST_VERSIONS = 200
MOST_KEYS = 500
MOST_OBJECTS = 50
MOST_HITS = 50
MOST_TEXT, MOST_KEY = 512, 64  # as in streams.limits, which the page does not know
MOST_DIGITS = 18
Side = Annotated[str, Field(max_length=64)]
ObjectName = Annotated[str, Field(max_length=MOST_TEXT)]


class SeriesAsked(Asked):
    """Live numbers later than `after`, Unix seconds."""

    after: float = -math.inf


class VersionsAsked(Asked):
    """At most `limit` versions below `before`."""

    before: int | None = Field(None, ge=0, lt=10**MOST_DIGITS)
    limit: int = Field(25, ge=1, le=MOST_VERSIONS)


class KeysAsked(Asked):
    """At most `limit` models of single keys."""

    limit: int = Field(50, ge=1, le=MOST_KEYS)


class ObjectsAsked(Asked):
    """At most `limit` objects whose id or text contains `text`."""

    text: ObjectName = ""
    limit: int = Field(12, ge=1, le=MOST_OBJECTS)


class DiffAsked(Asked):
    """Two aliases or versions."""

    left: Side = ""
    right: Side = ""


class ExploreAsked(DiffAsked):
    """The `k` nearest of the object `id` under `left` and `right`, by the models of `key`."""

    id: ObjectName = ""
    k: int = Field(10, ge=1, le=MOST_HITS)
    key: str = Field("", max_length=MOST_KEY)


class ImageAsked(Asked):
    """The object of a picture."""

    id: ObjectName = ""


class PageData:
    """The endpoints; each is called in a thread. They raise Problem and CheckpointError."""

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources
        self._history = Cached(HistoryReader(sources.versions, sources.ledger).read, HISTORY_SECONDS)
        self._drawn: tuple[PageHistory, str | None, bytes] | None = None

    def overview(self, request: Request) -> Response:
        """Roles, what each alias answers with, the newest live numbers and when they were taken, objects."""
        sources, best = self._sources, self._history.get().curves.best
        return answer_json(
            request,
            {
                "now": time.time(),
                "sampled": sources.series.sampled(),
                "every": sources.series.every,
                "roles": [asdict(state) for state in sources.series.states()],
                "numbers": dict(sources.series.newest()),
                "served": [alias_answers(one, best) for one in sources.statuses()],
                "objects": sources.objects.count(),
                "aliases": list(sources.aliases),
                "own": sources.own(),
                "ratings": sources.ratings is not None,
            },
        )

    def curves(self, request: Request) -> Response:
        """Learning curves, as `curves_data`."""
        return answer(request, self._curves(self._history.get()), JSON)

    def curves_csv(self, request: Request) -> Response:
        """The same as a table, every measure, at most MOST_ROWS versions of a line; sent as it is written."""
        pieces = csv_pieces(self._history.get().curves)
        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="curves.csv"'}
        return StreamingResponse(pieces, media_type="text/csv; charset=utf-8", headers=headers)

    def series(self, request: Request) -> Response:
        """Live numbers of the newest hour; `after` leaves out what the browser has."""
        asked = SeriesAsked.of_address(request.query_params)
        return answer_json(request, asdict(self._sources.series.after(asked.after)))

    def versions(self, request: Request) -> Response:
        """Versions below `before`, newest first, at most `limit`; verdicts and moves of aliases."""
        asked = VersionsAsked.of_address(request.query_params)
        return answer_json(request, versions_data(self._history.get(), asked.before, asked.limit))

    def keys(self, request: Request) -> Response:
        """The models of single keys with their verdicts, at most `limit`; `model` is null without any."""
        most = KeysAsked.of_address(request.query_params).limit
        found = self._sources.keys()
        if found is None:
            return answer_json(request, {"model": None, "slots": 0, "used": 0, "keys": [], "more": 0})
        rows = [asdict(row) for row in found.rows[:most]]
        shown = {"model": found.model, "slots": found.slots, "used": found.used, "keys": rows}
        return answer_json(request, shown | {"more": max(0, len(found.rows) - most)})

    def objects(self, request: Request) -> Response:
        """Objects whose id or text contains `text`, at most `limit`; random ones without it."""
        asked = ObjectsAsked.of_address(request.query_params)
        found = self._sources.objects.some(asked.text, asked.limit)
        return answer_json(request, {"objects": [asdict(one) for one in found]})

    def explore(self, request: Request) -> Response:
        """The nearest objects of `id` (by the models of `key`) under `left` and `right`, and what moved."""
        asked = ExploreAsked.of_address(request.query_params)
        sides = [asked.left, asked.right]
        found = [self._side(side, asked.id, asked.k, asked.key or None) for side in sides]
        hits = [one.hits if isinstance(one, NearestObjects) else () for one in found]
        ids = dict.fromkeys([asked.id, *(object_id for side in hits for object_id, _ in side)])
        known = {one.id: one for one in self._sources.objects.shown(list(ids))}
        left, right = (
            _side_data(side, one, hits[place], hits[1 - place], known)
            for place, (side, one) in enumerate(zip(sides, found, strict=True))
        )
        query = asdict(known[asked.id])
        return answer_json(request, {"query": query, "shared": shared(*hits), "left": left, "right": right})

    def diff(self, request: Request) -> Response:
        """What changed from `left` to `right`, aliases or versions; 202 while it is made: ask again."""
        asked = DiffAsked.of_address(request.query_params)
        before, after = self._number(asked.left, "left"), self._number(asked.right, "right")
        if before == after:
            message = f"both are version {before}: name another one"
            raise Problem(422, "bad_value", message, "right", "name two different versions")
        found = self._sources.comparer.difference(before, after)
        if found is None:
            return answer_json(
                request, {"state": "working", "diff": None, "objects": {}}, HTTPStatus.ACCEPTED
            )
        moved = () if found.queries is None else found.queries.moved
        ids = dict.fromkeys(one for query in moved for one in (query.id, *query.entered, *query.left))
        shown = {one.id: asdict(one) for one in self._sources.objects.shown(list(ids))}
        return answer_json(request, {"state": "done", "diff": asdict(found), "objects": shown})

    def image(self, request: Request) -> Response:
        """The picture of the object `id`."""
        body = self._sources.objects.image(ImageAsked.of_address(request.query_params).id)
        kind = None if body is None else kind_of(body)
        if body is None or kind is None:
            raise Problem(404, "no_image", "this object has no picture that is shown", "id")
        return answer(request, body, kind)

    def _number(self, side: str, name: str) -> int:
        """The kept version that a side means; of an alias the one it is based on."""
        if side.isascii() and side.isdecimal() and len(side) <= MOST_DIGITS:
            if int(side) not in self._history.get().rows:
                raise CannotAnswer("unknown_version", f"there is no version {int(side)}, or it was pruned")
            return int(side)
        models = {one.alias: one.model for one in self._sources.statuses()}
        if side not in models:
            message = "expected a version number or a name that is served"
            raise Problem(422, "bad_value", message, name, "correct the field")
        model = models[side]
        if model is None:
            raise CannotAnswer("not_serving", f"{side} answers with no version yet")
        return model.version

    def _curves(self, history: PageHistory) -> bytes:
        """The curves as JSON, put into words once per history: there may be a megabyte of them."""
        own = self._sources.own()
        if self._drawn is None or self._drawn[0] is not history or self._drawn[1] != own:
            self._drawn = history, own, json_of(curves_data(history, own))
        return self._drawn[2]

    def _side(self, side: str, query: str, k: int, key: str | None) -> NearestObjects | Problem:
        try:
            return self._sources.explorer.neighbours(side, query, k, key)
        except Problem as problem:
            return problem


def _side_data(
    side: str,
    found: NearestObjects | Problem,
    own: tuple[tuple[str, float], ...],
    other: tuple[tuple[str, float], ...],
    known: dict[str, ShownObject],
) -> dict[str, Any]:
    if isinstance(found, Problem):
        return {"side": side, "model": None, "problem": str(found), "code": found.code, "hits": []}
    hits = [
        hit | {"shown": asdict(known[hit["id"]]), "why": found.why.get(hit["id"])}
        for hit in ranked(own, other)
    ]
    return {"side": side, "model": found.model, "problem": "", "code": "", "hits": hits}
