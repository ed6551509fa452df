"""Lists made by chance, for `/v1/similar`: two models asked, their draft, a random object, the signed id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from daemon.serve.http.errors import Problem, from_refusal
from daemon.serve.http.limits import HttpLimits
from daemon.serve.http.offload import BoundedThreads
from daemon.serve.interleave import (
    EITHER,
    ListMaker,
    MadeList,
    Place,
    same_model,
    team_draft,
    with_explored,
)
from daemon.serve.query import Answers, ExplainedId, Query, QueryError, ScoredId

Told: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[str, Sequence[Query]], Awaitable[tuple[Answers, Told]]]
"""Takes an alias and queries; the answers and the values of `schemas.Origin`."""


@dataclass(frozen=True, slots=True)
class ChanceList:
    """What the HTTP side says of a list. origin, answers: those of the first model. exact: of all. told: the
    fields that only such a list has, its hits among them."""

    origin: Told
    answers: Answers
    exact: bool
    told: Told


class ChanceLists:
    """Makes them, where a key to sign them with is configured.

    lists: None where it is not. ask: the rankings. explore: random objects where a request does not say.
    """

    def __init__(self, lists: ListMaker | None, ask: Ask, limits: HttpLimits) -> None:
        self._lists, self._ask = lists, ask
        self._drawing = BoundedThreads(1, limits.answer_s, limits.queue)
        self.explore = 0 if lists is None else lists.explore

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
        told: Told = {}
        if len(models) == 2:
            told["tie"] = all(place.team == EITHER for place in places)
        made = MadeList(models, places)
        if explore and places:
            made = await self._explored(lists, made, query)
        told["results"] = [_written(place, made, explore) for place in made.places]
        told["impression"] = _signed(lists, query, made)
        told["models"] = [{name: origin[name] for name in _MODEL} for _, origin in asked]
        answers, origin = asked[0]
        return ChanceList(origin, answers, all(one.exact[0] for one, _ in asked), told)

    async def _explored(self, lists: ListMaker, made: MadeList, query: Query) -> MadeList:
        """The list with a random object in a random place; as it is where no other object may be answered."""
        listed = [place.hit.id for place in made.places]
        drawn = await self._drawing.run(lambda: lists.draw(query, listed))
        if drawn is None:
            return made
        alone = replace(query, include=frozenset([drawn.id]), k=1)
        found = _hits((await self._ask(made.models[0][0], [alone]))[0])
        if not found:  # removed from the catalog meanwhile
            return made
        places = with_explored(made.places, lists.slot(len(listed)), found[0], drawn.eligible)
        return MadeList(made.models, places, drawn.eligible)


_MODEL = ("alias", "version", "base", "line", "records")


def _hits(answers: Answers) -> Sequence[ScoredId]:
    result = answers.results[0]
    if isinstance(result, QueryError):
        raise from_refusal(result)
    return result


def _written(place: Place, made: MadeList, explore: int) -> Told:
    hit: Told = {"id": place.hit.id, "score": place.hit.score, **why_of(place.hit)}
    if len(made.models) > 1:
        hit["team"] = None if place.team == EITHER else made.models[place.team - 1][0]
    if explore:
        hit |= {"explored": place.explored, "propensity": place.propensity}
    return hit


def why_of(hit: ScoredId) -> Told:
    """The reasons of an explained hit, as `schemas.Why`; nothing for another one."""
    if not isinstance(hit, ExplainedId):
        return {}
    views, rest = None, None
    if hit.shares is not None:
        views = [{"views": list(one.views), "contribution": one.contribution} for one in hit.shares]
        rest = hit.score - sum(one.contribution for one in hit.shares)
    return {
        "why": {
            "views": views,
            "rest": rest,
            "version_0": {"score": hit.zero_score, "rank": hit.zero_rank},
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
