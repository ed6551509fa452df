"""Small studies and ratings that several tests take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from daemon.ratings.study import RatedSystem, Rating, Study, StudyQuery, StudySettings, rated

SYSTEMS = (RatedSystem("stable", "12+340"), RatedSystem("0", "0"))


def study(lists: dict[str, tuple[Sequence[str], Sequence[str]]], name: str = "first") -> Study:
    """A study with these lists by query."""
    queries = tuple(StudyQuery(query, (tuple(one), tuple(other))) for query, (one, other) in lists.items())
    return Study(name, StudySettings(("stable", "0"), len(queries), 0), SYSTEMS, queries, 1_000)


def rating(of: Study, query: str, rater: str, relevant: Iterable[str], at: int = 2_000) -> Rating:
    """What a rater marked."""
    found = of.lists_of(query)
    assert found is not None
    return rated(of, found, rater, relevant, at=at)
