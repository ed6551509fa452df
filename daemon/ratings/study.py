"""A study: the queries that people are asked about, with the lists of two systems, and what a rater answered.

After the human evaluation of OASIS (Chechik et al., JMLR 11, 2010, section 5.2.3): the ten nearest objects by
one system are mixed with ten others, and people mark which of them are relevant to the query. There the
others are random; here they may also be those of another version. Who rates is not told whose is whose.

Pure: what is written and read, and the order in which it is shown.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeAlias

LIST = 10
"""Places of each list."""
MOST_QUERIES = 200
MOST_RATERS = 50
"""Of a study. The paper had 25 queries and 20 raters; agreement is looked at for every pair of raters."""
LONGEST_NAME = 40
"""Characters of a rater's name."""

Ranks: TypeAlias = tuple[int | None, int | None]
"""Of an object in the two lists, from 1; None where a list does not have it."""


@dataclass(frozen=True, slots=True)
class RatedSystem:
    """One of the two that are compared. name: as it was configured. model: what answered, such as "12" or
    "12+340"; "" for random objects."""

    name: str
    model: str


@dataclass(frozen=True, slots=True)
class StudyQuery:
    """A query, the id of an object, and the ids that each system lists for it, best first."""

    query: str
    lists: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What a study was made by. systems: their names. queries: how many are drawn, by `seed`. key: whose
    model was asked, "" for no key. ids: digest of the file that names the queries instead; "" for none."""

    systems: tuple[str, str]
    queries: int
    seed: int
    key: str = ""
    ids: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """What is rated under `name`, for everybody the same from then on. began: Unix milliseconds."""

    name: str
    settings: StudySettings
    systems: tuple[RatedSystem, RatedSystem]
    queries: tuple[StudyQuery, ...]
    began: int
    record: Literal["study"] = "study"

    def lists_of(self, query: str) -> StudyQuery | None:
        """What was found for this query; None for one that is not asked about."""
        return next((one for one in self.queries if one.query == query), None)


@dataclass(frozen=True, slots=True)
class RatedObject:
    """An object that a rater was shown: where both lists have it, and whether it was marked relevant."""

    id: str
    ranks: Ranks
    relevant: bool


@dataclass(frozen=True, slots=True)
class Rating:
    """What one rater said of one query: complete in itself. results: in the order in which they were shown.
    at: Unix milliseconds. token: the name of the token it came with, None without tokens."""

    study: str
    query: str
    rater: str
    at: int
    systems: tuple[RatedSystem, RatedSystem]
    results: tuple[RatedObject, ...]
    token: str | None = None
    record: Literal["rating"] = "rating"

    @property
    def relevant(self) -> frozenset[str]:
        """The ids that were marked."""
        return frozenset(one.id for one in self.results if one.relevant)


def ranks_of(query: StudyQuery) -> dict[str, Ranks]:
    """Every object of both lists once, with its rank in each."""
    places = [{one: rank for rank, one in enumerate(ids, start=1)} for ids in query.lists]
    return {one: (places[0].get(one), places[1].get(one)) for one in {**places[0], **places[1]}}


def blind_order(study: str, query: str, rater: str, ids: Iterable[str]) -> list[str]:
    """The order in which a rater is shown these objects.

    It is by a hash of the object's id with the rater and the query, so it looks like chance, is another one
    for each rater, and stays when the page is loaded again. Whose list an object is on and at which rank does
    not go into it: the same objects come in the same order, whichever system found them.
    """

    def place(one: str) -> bytes:
        words = json.dumps([study, query, same_rater(rater), one]).encode()
        return blake2b(words, digest_size=16).digest()

    return sorted(set(ids), key=place)


def rated(
    study: Study, query: StudyQuery, rater: str, relevant: Iterable[str], *, at: int, token: str | None = None
) -> Rating:
    """The rating in which these objects were marked. Raises ValueError naming one that was not shown."""
    ranks, marked = ranks_of(query), set(relevant)
    foreign = sorted(marked - ranks.keys())
    if foreign:
        raise ValueError(f"{foreign[0][:80]!r} was not shown for this query")
    shown = blind_order(study.name, query.query, rater, ranks)
    results = tuple(RatedObject(one, ranks[one], one in marked) for one in shown)
    return Rating(study.name, query.query, rater, at, study.systems, results, token)


def rater_name(text: str) -> str:
    """A name as it is kept: one space between words. Raises ValueError for what is no name."""
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"expected a name or initials of 1 to {LONGEST_NAME} characters")
    return name


def same_rater(name: str) -> str:
    """Under which a rater is known: "Anna" and "anna" are one."""
    return name.casefold()


def next_query(study: Study, done: Sequence[str]) -> StudyQuery | None:
    """The first that is not done. All are asked in the same order, so that those who stop early have rated
    the same ones; None when nothing is left."""
    known = set(done)
    return next((one for one in study.queries if one.query not in known), None)
