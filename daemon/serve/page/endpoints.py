"""What each of the page's data endpoints answers."""

from __future__ import annotations

import time
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from daemon.look.curves_csv import to_csv
from daemon.serve.page.answers import answer, answer_json, json_of, refuse
from daemon.serve.page.asked import BadField, moment, number_or_none, text, whole
from daemon.serve.page.cached import Cached
from daemon.serve.page.history import History, HistoryReader, curves_data, versions_data
from daemon.serve.page.images import kind_of
from daemon.serve.page.sides import ranked, shared
from daemon.serve.page.sources import CannotAnswer, Found, PageSources, Shown

HISTORY_SECONDS = 1.0
MOST_VERSIONS = 200
MOST_KEYS = 500
MOST_OBJECTS = 50
MOST_HITS = 50
MOST_TEXT = 512
MOST_DIGITS = 18
MOST_KEY = 64


class PageData:
    """The endpoints; each is called in a thread. They raise BadField, CannotAnswer and CheckpointError."""

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources
        self._history = Cached(HistoryReader(sources.versions, sources.ledger).read, HISTORY_SECONDS)
        self._drawn: tuple[History, bytes] | None = None

    def overview(self, request: Request) -> Response:
        """Roles, what each alias answers with, the newest live numbers and when they were taken, objects."""
        sources = self._sources
        return answer_json(
            request,
            {
                "now": time.time(),
                "sampled": sources.series.sampled(),
                "every": sources.series.every,
                "roles": [asdict(state) for state in sources.series.states()],
                "numbers": dict(sources.series.newest()),
                "served": [asdict(one) for one in sources.served()],
                "objects": sources.objects.count(),
                "aliases": list(sources.aliases),
            },
        )

    def curves(self, request: Request) -> Response:
        """Learning curves, as `curves_data`."""
        return answer(request, self._curves(self._history.get()), "application/json")

    def curves_csv(self, request: Request) -> Response:
        """The same as a table, every version and measure."""
        body = to_csv(self._history.get().curves).encode()
        response = answer(request, body, "text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = 'attachment; filename="curves.csv"'
        return response

    def series(self, request: Request) -> Response:
        """Live numbers of the newest hour; `after` leaves out what the asker has."""
        return answer_json(request, asdict(self._sources.series.after(moment(request.query_params, "after"))))

    def versions(self, request: Request) -> Response:
        """Versions below `before`, newest first, at most `limit`; verdicts and moves of aliases."""
        before = number_or_none(request.query_params, "before")
        most = whole(request.query_params, "limit", 25, MOST_VERSIONS)
        return answer_json(request, versions_data(self._history.get(), before, most))

    def keys(self, request: Request) -> Response:
        """The models of single keys with their verdicts, at most `limit`; `model` is null without any."""
        most = whole(request.query_params, "limit", 50, MOST_KEYS)
        found = self._sources.keys()
        if found is None:
            return answer_json(request, {"model": None, "slots": 0, "used": 0, "keys": [], "more": 0})
        rows = [asdict(row) for row in found.rows[:most]]
        told = {"model": found.model, "slots": found.slots, "used": found.used, "keys": rows}
        return answer_json(request, told | {"more": max(0, len(found.rows) - most)})

    def objects(self, request: Request) -> Response:
        """Objects whose id or text contains `text`, at most `limit`; random ones without it."""
        wanted = text(request.query_params, "text", MOST_TEXT)
        found = self._sources.objects.some(wanted, whole(request.query_params, "limit", 12, MOST_OBJECTS))
        return answer_json(request, {"objects": [asdict(one) for one in found]})

    def explore(self, request: Request) -> Response:
        """The nearest objects of `id` (by the models of `key`) under `left` and `right`, and what moved."""
        params = request.query_params
        query, k = text(params, "id", MOST_TEXT), whole(params, "k", 10, MOST_HITS)
        sides = [text(params, name, 64) for name in ("left", "right")]
        key = text(params, "key", MOST_KEY) or None
        found = [self._side(side, query, k, key) for side in sides]
        hits = [one.hits if isinstance(one, Found) else () for one in found]
        known = {one.id: one for one in self._sources.objects.shown(_ids(query, *hits))}
        answers = [
            _side_data(side, one, hits[place], hits[1 - place], known)
            for place, (side, one) in enumerate(zip(sides, found, strict=True))
        ]
        return answer_json(
            request,
            {"query": asdict(known[query]), "shared": shared(*hits), "left": answers[0], "right": answers[1]},
        )

    def diff(self, request: Request) -> Response:
        """What changed from `left` to `right`, aliases or versions; 202 while it is made: ask again."""
        before, after = (self._number(request, name) for name in ("left", "right"))
        if before == after:
            raise BadField("right", f"both are version {before}: name another one")
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
        body = self._sources.objects.image(text(request.query_params, "id", MOST_TEXT))
        kind = None if body is None else kind_of(body)
        if body is None or kind is None:
            return refuse(HTTPStatus.NOT_FOUND, "no_image", "this object has no picture that is shown", "id")
        return answer(request, body, kind)

    def _number(self, request: Request, name: str) -> int:
        """The kept version that a side means; of an alias the one it goes on from."""
        side = text(request.query_params, name, 64)
        if side.isascii() and side.isdecimal() and len(side) <= MOST_DIGITS:
            if int(side) not in self._history.get().rows:
                raise CannotAnswer("unknown_version", f"there is no version {int(side)}, or it was pruned")
            return int(side)
        served = {one.alias: one.base for one in self._sources.served()}
        if side not in served:
            raise BadField(name, "expected a version number or a name that is served")
        number = served[side]
        if number is None:
            raise CannotAnswer("not_serving", f"{side} answers with no version yet")
        return number

    def _curves(self, history: History) -> bytes:
        """The curves as JSON, put into words once per history: there may be a megabyte of them."""
        if self._drawn is None or self._drawn[0] is not history:
            self._drawn = history, json_of(curves_data(history.curves))
        return self._drawn[1]

    def _side(self, side: str, query: str, k: int, key: str | None) -> Found | CannotAnswer:
        try:
            return self._sources.explorer.neighbours(side, query, k, key)
        except CannotAnswer as error:
            return error


def _ids(query: str, *lists: tuple[tuple[str, float], ...]) -> list[str]:
    return list(dict.fromkeys([query, *(object_id for hits in lists for object_id, _ in hits)]))


def _side_data(
    side: str,
    found: Found | CannotAnswer,
    own: tuple[tuple[str, float], ...],
    other: tuple[tuple[str, float], ...],
    known: dict[str, Shown],
) -> dict[str, Any]:
    if isinstance(found, CannotAnswer):
        return {"side": side, "model": None, "problem": str(found), "code": found.code, "hits": []}
    hits = [hit | {"shown": asdict(known[hit["id"]])} for hit in ranked(own, other)]
    return {"side": side, "model": found.model, "problem": "", "code": "", "hits": hits}
