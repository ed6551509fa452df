"""Ratings as relevance judgments: TREC qrels, which `validate.judgments = "qrels:..."` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from daemon.exits import EX_DATAERR, UserError
from daemon.ratings.study import Rating

MAJORITY = 0.5
"""The share of raters that makes an object relevant: half of them are enough."""


def relevant_by_share(ratings: Sequence[Rating], share: float = MAJORITY) -> Mapping[str, Mapping[str, bool]]:
    """Per query, each object that was rated for it, and whether at least `share` of its raters, in (0, 1],
    marked it relevant. Both in the order of their ids."""
    marks: dict[str, dict[str, list[bool]]] = {}
    for rating in ratings:
        for one in rating.results:
            marks.setdefault(rating.query, {}).setdefault(one.id, []).append(one.relevant)
    return {
        query: {one: sum(given) >= share * len(given) for one, given in sorted(marks[query].items())}
        for query in sorted(marks)
    }


def qrels(ratings: Sequence[Rating], share: float = MAJORITY) -> Iterator[str]:
    """The lines `query 0 object 1` (or 0) without their ends. UserError for an id that has a space in it:
    such a line would be read as another one."""
    for query, objects in relevant_by_share(ratings, share).items():
        for one, relevant in objects.items():
            broken = next((part for part in (query, one) if part.split() != [part]), None)
            if broken is not None:
                message = f"the id {broken[:80]!r} holds white space, which a qrels file cannot say"
                raise UserError(message, "give your objects ids without spaces", EX_DATAERR)
            yield f"{query} 0 {one} {int(relevant)}"
