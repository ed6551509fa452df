"""Lists made by chance: of two rankings by a team draft, and of one or two with a random object in one place.

Team draft (Radlinski, Kurup, Joachims: How does clickthrough data reflect retrieval quality?, CIKM 2008,
section 4), in the form in which only a choice makes a team. Round by round, each ranking has a next object,
the best that is not in the list yet. Where both have the same one, it takes the next place for neither
team: a click on it says nothing about which ranking is better. Where they differ, a coin decides which of
the two stands first, and each place belongs to the ranking that put it there. So after every round the list
holds the same objects however the coin fell, and each team stands in either place of a round with
probability 1/2: a user who clicks by place alone, in whatever way, credits both teams alike on average.
In a last round with one place left, the coin decides whose object is shown. Two rankings that agree make a
list without teams: a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from daemon.serve.query import AnsweringModel, Query, ScoredId

EITHER, FIRST, SECOND = 0, 1, 2
"""Teams of a place, numbered as `streams.event.TEAMS` are."""


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a list. chance: the probability, given the list before a random object was put into
    it, that this object came to stand here; 1 where nothing was explored."""

    hit: ScoredId
    team: int
    explored: bool = False
    chance: float = 1.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random object, one of `eligible` that could as likely have been drawn."""

    id: str
    eligible: int


@dataclass(frozen=True, slots=True)
class MadeList:
    """A list and what made it: one or two (name, model), in the order of the teams. eligible: objects that
    could have stood in the explored place, 0 where there is none."""

    models: Sequence[tuple[str, AnsweringModel]]
    places: Sequence[Place]
    eligible: int = 0


class ListMaker(Protocol):
    """What a list made by chance needs beyond the rankings. explore: share of the lists with a random object,
    where a request names no number."""

    explore: float

    def coin(self) -> bool:
        """Either, each as likely."""

    def slot(self, places: int) -> int:
        """One of so many places, each as likely."""

    def draw(self, query: Query, left_out: Sequence[str]) -> Drawn | None:
        """An object that the query's filters allow and that is not left out, each as likely; None where
        there is none. May take a while."""

    def sign(self, query: Query, made: MadeList) -> str:
        """The list's signed id. Raises ValueError for a list too long for one."""


def team_draft(
    first: Sequence[ScoredId], second: Sequence[ScoredId], k: int, coin: Callable[[], bool]
) -> list[Place]:
    """At most k places of two rankings, no object twice. coin: asked once a round, True puts the second
    ranking's object first. Once a ranking has no more objects, the other's follow for neither team: nothing
    stands against them."""
    taken: set[str] = set()
    nexts = (_untaken(first, taken), _untaken(second, taken))
    places: list[Place] = []
    while len(places) < k:
        one, other = (next(ranking, None) for ranking in nexts)
        if one is None or other is None:
            left = one or other
            if left is None:
                break
            round_of = [Place(left, EITHER)]
        elif one.id == other.id:
            round_of = [Place(one, EITHER)]
        else:
            round_of = [Place(one, FIRST), Place(other, SECOND)]
            if coin():
                round_of.reverse()
        places += round_of
        taken.update(place.hit.id for place in round_of)
    return places[:k]


def _untaken(ranking: Sequence[ScoredId], taken: set[str]) -> Iterator[ScoredId]:
    return (hit for hit in ranking if hit.id not in taken)


def same_model(one: AnsweringModel, other: AnsweringModel) -> bool:
    """Whether two models are one state of one line."""
    return (one.line, one.version, one.total) == (other.line, other.version, other.total)


def with_explored(places: Sequence[Place], slot: int, hit: ScoredId, eligible: int) -> list[Place]:
    """The places with a random object in the place of that at `slot`, which each of them was as likely; with
    the probability of each object to stand where it does."""
    stays = 1 - 1 / len(places)
    put = [replace(place, chance=stays) for place in places]
    put[slot] = Place(hit, EITHER, explored=True, chance=1 / (len(places) * eligible))
    return put
