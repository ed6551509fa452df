"""`/v1/page/ratings`: the next query for a rater, what he marked, and the report of all ratings.

Nothing that is sent to a rater says which system found what, at which rank, or which systems there are: a
query, and objects in an order that does not depend on that (`daemon.ratings.study.blind_order`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Annotated, Any, TypeVar

import structlog
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from daemon.exits import UserError
from daemon.ratings.kept import RatingsFile, RatingsRefused
from daemon.ratings.report import RatingsReport, report_of
from daemon.ratings.study import (
    LIST,
    MOST_RATERS,
    Rating,
    Study,
    blind_order,
    next_query,
    ranks_of,
    rated,
    rater_name,
)
from daemon.serve.http import schemas
from daemon.serve.http.errors import Problem
from daemon.serve.http.offload import Busy
from daemon.serve.page.answers import Asked, CannotAnswer, answer_json
from daemon.serve.page.objects import PageObjects

MOST_BODY = 64 << 10
"""Bytes of a rating: the ids of 20 objects and a name take at most some 40 KB when they are escaped."""
MOST_NAME = 200
"""Characters of a name as it is sent, which may have spaces around it."""
_ID = 512

log = structlog.get_logger("tripletd.serve")

Found = TypeVar("Found")
ObjectId = Annotated[str, Field(min_length=1, max_length=_ID)]


@dataclass(frozen=True, slots=True)
class RatingSources:
    """A study that people take part in. question: what they are asked. systems: as they are configured, for
    the report alone. make: finds the lists, once; raises Problem."""

    name: str
    question: str
    systems: tuple[str, str]
    file: RatingsFile
    make: Callable[[], Study]


class NextAsked(Asked):
    """The name under which somebody rates."""

    rater: str = Field(max_length=MOST_NAME)


class RatingSent(schemas.Request):
    """What a rater marked as relevant to a query; everything else that was shown is not."""

    rater: str = Field(max_length=MOST_NAME)
    query: ObjectId
    relevant: list[ObjectId] = Field(max_length=2 * LIST, fail_fast=True)


class RatingEndpoints:
    """The endpoints; each is called in a thread. They raise Problem."""

    def __init__(self, sources: RatingSources, objects: PageObjects) -> None:
        self._sources, self._objects = sources, objects
        self._making, self._reporting = Lock(), Lock()
        self._reported: tuple[int | None, int, RatingsReport] | None = None

    def next(self, request: Request) -> Response:
        """The first query that `rater` has not rated, with the objects of both lists; no query at the end."""
        rater = _name(NextAsked.of_address(request.query_params).rater)
        study = self._study()
        known = _kept(self._sources.file.known)
        done = known.done(study.name, rater)
        following = next_query(study, done)
        told: dict[str, Any] = {"rater": rater, "question": self._sources.question}
        told |= {"done": len(done), "of": len(study.queries), "query": None, "results": []}
        if following is not None:
            shown = blind_order(study.name, following.query, rater, ranks_of(following))
            query, *results = self._objects.shown([following.query, *shown])
            told |= {"query": asdict(query), "results": [asdict(one) for one in results]}
        return answer_json(request, told)

    def keep(self, request: Request, sent: RatingSent, token: str | None) -> Response:
        """Keep what was marked; it is on the disk before it is confirmed. The same sent again counts once."""
        rater, sources = _name(sent.rater), self._sources
        known = _kept(sources.file.known)
        study = known.studies.get(sources.name)
        query = None if study is None else study.lists_of(sent.query)
        if study is None or query is None:
            message, remedy = "this study does not ask about this object", "load the page again"
            raise Problem(422, "unknown_query", message, "query", remedy)
        try:
            rating = rated(study, query, rater, sent.relevant, at=time.time_ns() // 1_000_000, token=token)
        except ValueError as error:
            raise Problem(422, "not_shown", str(error), "relevant", "load the page again") from None
        try:
            new = _kept(lambda: sources.file.add(rating))
        except RatingsRefused as refused:
            remedy = "use another name, or go on with the next query"
            raise Problem(409, refused.code, str(refused), "rater", remedy) from None
        done = {*known.done(study.name, rater), sent.query}
        return answer_json(request, {"kept": new, "done": len(done), "of": len(study.queries)})

    def report(self, request: Request) -> Response:
        """What all ratings of the study say, see `daemon.ratings.report`."""
        known = _kept(self._sources.file.known)
        study = known.studies.get(self._sources.name)
        found = self._report(None if study is None else study.began, known.of(self._sources.name))
        about = {
            "began": None if study is None else study.began,
            "of": 0 if study is None else len(study.queries),
            "question": self._sources.question,
            "named": list(self._sources.systems),
            "most_raters": MOST_RATERS,
        }
        return answer_json(request, about | asdict(found))

    def _report(self, began: int | None, ratings: Sequence[Rating]) -> RatingsReport:
        """The report, made again when there is another rating: with many raters it takes seconds."""
        with self._reporting:
            if self._reported is None or self._reported[:2] != (began, len(ratings)):
                self._reported = began, len(ratings), report_of(self._sources.name, ratings)
            return self._reported[2]

    def _study(self) -> Study:
        """The study, which is made when the first rater comes. Raises Problem 503 until it is there."""
        study = _kept(self._sources.file.known).studies.get(self._sources.name)
        if study is not None:
            return study
        if not self._making.acquire(blocking=False):
            raise Busy("the questions are being prepared", 2.0)
        try:
            made = self._sources.make()
        except CannotAnswer as error:  # what it says may name a system
            log.warning("a study cannot begin", study=self._sources.name, problem=str(error))
            message = "the questions cannot be prepared now; the server's log says why"
            raise Problem(503, "not_prepared", message, retry_after=5) from None
        finally:
            self._making.release()
        begun = _kept(lambda: self._sources.file.begin(made))
        log.info("a study began", study=begun.name, queries=len(begun.queries))
        return begun


def _name(text: str) -> str:
    try:
        return rater_name(text)
    except ValueError as error:
        raise Problem(422, "bad_value", f"rater: {error}", "rater", "correct the name") from None


def _kept(ask: Callable[[], Found]) -> Found:
    """What the file answers. Raises Problem 503 where it cannot be read or written now."""
    try:
        return ask()
    except (OSError, UserError) as error:
        log.error("ratings are not kept", problem=str(error))
        message, remedy = "ratings cannot be kept now; the server's log says why", "send it again later"
        raise Problem(503, "ratings_unavailable", message, None, remedy, retry_after=10) from None
