"""`/v1/similar` and `/v1/similar/batch`: from a checked request to queries, and from answers to JSON.

Lists made by chance are answers of `/v1/similar` too: two models asked, their draft, a random object, the
signed id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from daemon.serve.http.errors import JSON, Problem, from_refusal
from daemon.serve.http.guard import check_key, grant_of
from daemon.serve.http.indexed import Asking
from daemon.serve.http.limits import HttpLimits, RequestBodies
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.http.parts import Parts
from daemon.serve.http.pins import Pin, PinWaiter, asked_pin, require_reached
from daemon.serve.http.schemas import (
    EXPLAINED,
    BatchRequest,
    Filter,
    GivenObject,
    Question,
    SimilarRequest,
    SparseNumbers,
)
from daemon.serve.http.writes import ImpressionLog
from daemon.serve.interleave import EITHER, ListMaker, MadeList, Place, same_model, team_draft, with_explored
from daemon.serve.query import Answered, AnsweringModel, Answers, ExplainedId, Query, QueryError, ScoredId

_NO_FILTER = Filter()


def to_query(question: Question, limits: HttpLimits, prefix: str = "") -> Query:
    """One question as a query; Problem 422 for a k beyond the limit, with `prefix` before the field."""
    if question.k > limits.k_max:
        raise _too_many(f"{prefix}k", question.k, limits.k_max, "results", "serve.k_max")
    wanted = question.filter or _NO_FILTER
    return replace(
        object_query(question),
        k=question.k,
        include=None if wanted.include is None else frozenset(wanted.include),
        exclude=frozenset(wanted.exclude),
        tags=frozenset(wanted.tags),
        key=question.key,
    )


def object_query(given: GivenObject) -> Query:
    """A query about an object, whatever is asked of it."""
    views = None if given.views is None else {name: _numbers(one) for name, one in given.views.items()}
    return Query(id=given.id, x=_numbers(given.x), views=views)


def to_queries(questions: Sequence[Question], limits: HttpLimits) -> list[Query]:
    """A batch. Raises Problem 422 when it has too many queries or asks for too many results in all."""
    require_few("queries", len(questions), limits)
    queries = [to_query(question, limits, f"queries[{n}].") for n, question in enumerate(questions)]
    wanted = sum(query.k for query in queries)
    most = max(limits.results_max, limits.k_max)
    if wanted > most:
        message = f"queries: {wanted} results are asked for in all; at most {most} are given"
        raise Problem(422, "too_many", message, "queries", "ask for fewer per query, or in several requests")
    return queries


def require_few(field: str, found: int, limits: HttpLimits) -> None:
    """Raises Problem 422 for more than one request may have."""
    if found > limits.batch_max:
        raise _too_many(field, found, limits.batch_max, "of them", "serve.batch_max")


def _numbers(vector: list[float] | SparseNumbers | None) -> list[float] | Mapping[str, Any] | None:
    return vector.model_dump() if isinstance(vector, SparseNumbers) else vector


def origin_of(model: AnsweringModel, formed: int, alias: str, started: float) -> dict[str, Any]:
    """The values of `schemas.Origin`. started: by `time.perf_counter`."""
    return {
        "version": str(model),
        "base": model.version,
        "line": model.line or None,
        "records": model.total,
        "formed": formed,
        "watermark": model.watermark,
        "alias": alias,
        "took_ms": round((time.perf_counter() - started) * 1e3, 3),
    }


def known_alias(name: str | None, aliases: Sequence[str], field: str = "alias") -> str:
    """The alias meant by a field. Raises Problem 404 for one that is not followed here."""
    if name is None:
        return aliases[0]
    if name not in aliases:
        remedy = f"ask for one of {', '.join(aliases)}; serve.aliases names what is followed"
        raise Problem(404, "unknown_alias", "this alias is not served", field, remedy)
    return name


def _too_many(field: str, found: int, most: int, what: str, key: str) -> Problem:
    message = (
        f"{field}: {found if found < 10**12 else 'far too many'} {what} asked for, at most {most} are given"
    )
    return Problem(422, "too_many", message, field, f"ask for fewer, or raise {key}")


Details: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[str, Sequence[Query]], Awaitable[tuple[Answers, Details]]]
"""Takes an alias and queries; the answers and the values of `schemas.Origin`."""


@dataclass(frozen=True, slots=True)
class ChanceList:
    """What the HTTP side says of a list. origin, answers: those of the first model. exact: of all. details:
    the fields that only such a list has, its hits among them."""

    origin: Details
    answers: Answers
    exact: bool
    details: Details


CHANCES = 1_000_000
"""Of so many lists, those with a random object are drawn."""


class ChanceLists:
    """Makes them, where a key to sign them with is configured.

    lists: None where it is not. ask: the rankings.
    """

    def __init__(self, lists: ListMaker | None, ask: Ask, limits: HttpLimits) -> None:
        self._lists, self._ask = lists, ask
        self._drawing = BoundedThreads(1, limits.answer_s, limits.queue)

    @property
    def explore(self) -> int:
        """Random objects of the next list that does not name their number, drawn."""
        share = 0.0 if self._lists is None else self._lists.explore
        return int(share > 0 and self._lists is not None and self._lists.slot(CHANCES) < share * CHANCES)

    async def make(self, names: Sequence[str], query: Query, explore: int) -> ChanceList:
        """A list of one or two models, with a random object in it where `explore` is 1. Raises Problem."""
        lists = self._lists
        if lists is None:
            field = "interleave" if len(names) > 1 else "explore"
            remedy = "set interleaving.key for serve and feed, and restart serve"
            raise Problem(422, "not_signed", "lists made by chance are switched off", field, remedy)
        asked = await asyncio.gather(*(self._ask(name, [query]) for name in names))
        rankings = [_hits(answers) for answers, _ in asked]
        models = [(name, answers.model) for name, (answers, _) in zip(names, asked, strict=True)]
        if len(models) == 2 and not same_model(models[0][1], models[1][1]):
            places = team_draft(rankings[0], rankings[1], query.k, lists.coin)
        else:
            places = [Place(hit, EITHER) for hit in rankings[0]]
        details: Details = {}
        if len(models) == 2:
            details["tie"] = all(place.team == EITHER for place in places)
        made = MadeList(models, places)
        if explore and places:
            made = await self._explored(lists, made, query)
        details["results"] = [_written(place, made, explore) for place in made.places]
        details["impression"] = _signed(lists, query, made)
        details["models"] = [{name: origin[name] for name in _MODEL} for _, origin in asked]
        answers, origin = asked[0]
        return ChanceList(origin, answers, all(one.each[0].exact for one, _ in asked), details)

    async def _explored(self, lists: ListMaker, made: MadeList, query: Query) -> MadeList:
        """The list with a random object in a random place; as it is where no other object may be answered."""
        listed = [place.hit.id for place in made.places]
        drawn = await self._drawing.run(lambda: lists.draw(query, listed))
        if drawn is None:
            return made
        alone = replace(query, include=frozenset([drawn.id]), k=1, found=True)
        found = _hits((await self._ask(made.models[0][0], [alone]))[0])
        if not found:  # removed from the catalog meanwhile
            return made
        places = with_explored(made.places, lists.slot(len(listed)), found[0], drawn.eligible)
        return MadeList(made.models, places, drawn.eligible)


_MODEL = ("alias", "version", "base", "line", "records")


def _hits(answers: Answers) -> Sequence[ScoredId]:
    result = answers.results[0]
    if isinstance(result, QueryError):
        raise result
    return result


def _written(place: Place, made: MadeList, explore: int) -> Details:
    hit: Details = {"id": place.hit.id, "score": place.hit.score, **why_of(place.hit)}
    if len(made.models) > 1:
        hit["team"] = None if place.team == EITHER else made.models[place.team - 1][0]
    if explore:
        hit |= {"explored": place.explored, "propensity": place.chance}
    return hit


def why_of(hit: ScoredId) -> Details:
    """The reasons of an explained hit, as `schemas.Why`; nothing for another one."""
    if not isinstance(hit, ExplainedId):
        return {}
    shares = hit.shares
    return {
        "why": {
            "views": None if shares is None else [asdict(one) for one in shares],
            "rest": None if shares is None else hit.score - sum(one.contribution for one in shares),
            "version_0": {"score": hit.zero_score, "rank": hit.zero_rank},
            "clicks": None if hit.clicks is None else asdict(hit.clicks),
        }
    }


def _signed(lists: ListMaker, query: Query, made: MadeList) -> str | None:
    """The signed id; None for a list of nothing."""
    if not made.places:
        return None
    try:
        return lists.sign(query, made)
    except ValueError as error:
        raise Problem(422, "too_many", f"k: {error}", "k", "ask for fewer") from None


class SimilarEndpoints:
    """Queries in, nearest objects out; the first of `aliases` answers where none is named.

    search: answers them. kept: keeps what was shown, where a question asks for it.
    """

    def __init__(self, parts: Parts, search: Asking, bodies: RequestBodies, kept: ImpressionLog) -> None:
        self._search, self._bodies, self._kept = search, bodies, kept
        self._answered, self._aliases = parts.answered, parts.aliases
        self._limits, self._lists = parts.limits, parts.lists
        self._pins = PinWaiter(parts.current, parts.behind_s)
        self._chance = ChanceLists(parts.lists, self._ask, parts.limits)

    async def single(self, request: Request) -> Response:
        """GET /v1/similar?id=&k=&key=&alias=&interleave=&explore= and POST /v1/similar"""
        grant = grant_of(request.scope)
        if request.method != "POST":
            asked = SimilarRequest.of_address(request.query_params)
            check_key(grant, asked.key, "key")
            return await self._answer(asked, asked_pin(request.headers))
        async with self._bodies.read(request, SimilarRequest) as wanted:
            check_key(grant, wanted.key, "key")
            if wanted.log:
                holder = self._kept.check(request.headers, wanted.key, wanted.id is not None)
                wanted.source = wanted.source or holder
            return await self._answer(wanted, asked_pin(request.headers))

    async def batch(self, request: Request) -> Response:
        """POST /v1/similar/batch: a query that has no answer gets its error in its place."""
        async with self._bodies.read(request, BatchRequest) as wanted:
            for place, one in enumerate(wanted.queries):
                check_key(grant_of(request.scope), one.key, f"queries[{place}].key")
            alias, pin = known_alias(wanted.alias, self._aliases), asked_pin(request.headers)
            queries = to_queries(wanted.queries, self._limits)
            await self._pins.reach(pin, [alias])
            answers, origin = await self._ask(alias, queries)
            require_reached(pin, [origin])
            found = [_entry(one, place) for place, one in enumerate(answers.each)]
            return _json({**origin, "answers": found})

    async def _answer(self, wanted: SimilarRequest, pin: Pin | None) -> Response:
        explore = self._chance.explore if wanted.explore is None else wanted.explore
        if explore or wanted.interleave is not None:
            return await self._made_by_chance(wanted, explore, pin)
        alias = known_alias(wanted.alias, self._aliases)
        query = self._query(wanted)
        await self._pins.reach(pin, [alias])
        answers, origin = await self._ask(alias, [query])
        require_reached(pin, [origin])
        result = _hits(answers)
        details: Details = {}
        if wanted.log:
            shown = [hit.id for hit in result]
            details = await self._log(query, shown, self._id_of(query, result, alias, answers), wanted.source)
        return _json({**origin, **_hits_of(result), **_about(answers.each[0]), **details})

    def _id_of(self, query: Query, hits: Sequence[ScoredId], alias: str, answers: Answers) -> str | None:
        """The id of a list of one model; None for a list of nothing."""
        if self._lists is None:
            return self._kept.new_id() if hits else None
        places = [Place(hit, EITHER) for hit in hits]
        return _signed(self._lists, query, MadeList([(alias, answers.model)], places))

    async def _log(
        self, query: Query, shown: Sequence[str], impression: str | None, source: str | None
    ) -> Details:
        assert query.id is not None
        kept = impression is not None and await self._kept.keep(
            impression, query.id, shown, query.key, source
        )
        return {"impression": impression, "logged": kept}

    async def _made_by_chance(self, wanted: SimilarRequest, explore: int, pin: Pin | None) -> Response:
        """A list of two models by a team draft, or of one; with a random object where `explore` is 1."""
        query, names = self._query(wanted), self._models(wanted)
        await self._pins.reach(pin, names)
        made = await self._chance.make(names, query, explore)
        require_reached(pin, made.details["models"])
        details = _about(replace(made.answers.each[0], exact=made.exact, recall=None)) | made.details
        if wanted.log:
            ids = [hit["id"] for hit in details["results"]]
            details |= await self._log(query, ids, details["impression"], wanted.source)
        return _json({**made.origin, **details})

    def _query(self, wanted: SimilarRequest) -> Query:
        query = to_query(wanted, self._limits)
        if wanted.explain and query.k > EXPLAINED:
            message = f"k: {query.k} hits are not explained, at most {EXPLAINED} are"
            raise Problem(422, "too_many", message, "k", "ask for fewer, or without explain")
        return replace(query, explain=wanted.explain)

    def _models(self, wanted: SimilarRequest) -> list[str]:
        if wanted.interleave is None:
            return [known_alias(wanted.alias, self._aliases)]
        if wanted.alias is not None:
            remedy = "leave one of them out"
            raise Problem(422, "bad_value", "alias and interleave both name models", "alias", remedy)
        names = [known_alias(name, self._aliases, "interleave") for name in wanted.interleave.split(",")]
        if names[0] == names[1]:
            remedy = "name two of them"
            raise Problem(422, "bad_value", f"interleave names {names[0]} twice", "interleave", remedy)
        return names

    async def _ask(self, alias: str, queries: Sequence[Query]) -> tuple[Answers, dict[str, Any]]:
        """The answers, and the values of `schemas.Origin` that every answer has."""
        start = time.perf_counter()
        answers = await self._search(alias, queries)
        model = answers.model
        if not all(isinstance(result, QueryError) for result in answers.results):
            self._answered(alias, model)
        return answers, origin_of(model, answers.formed, alias, start)


def _entry(answered: Answered, place: int) -> dict[str, Any]:
    if isinstance(answered.result, QueryError):
        return {"error": from_refusal(answered.result, f"queries[{place}].").body()}
    return _hits_of(answered.result) | _about(answered)


def _hits_of(hits: Sequence[ScoredId]) -> dict[str, Any]:
    return {"results": [{"id": hit.id, "score": hit.score, **why_of(hit)} for hit in hits]}


def _about(answered: Answered) -> dict[str, Any]:
    told: dict[str, Any] = {"exact": answered.exact}
    if answered.recall is not None:
        told["recall"] = round(answered.recall, 3)
    more = {"ordered_by": answered.ordered_by, "key": answered.by, "index": answered.index}
    return told | {name: one for name, one in more.items() if one is not None}


def _json(content: dict[str, Any]) -> Response:
    return Response(to_json(content), media_type=JSON)
