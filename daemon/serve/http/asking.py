"""From a checked request to queries, with the checks that depend on settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemon.serve.http.errors import Problem
from daemon.serve.http.limits import Limits
from daemon.serve.http.schemas import Filter, Question, SparseNumbers
from daemon.serve.query import Query

_NO_FILTER = Filter()


def to_query(question: Question, limits: Limits, prefix: str = "") -> Query:
    """One question as a query; Problem 422 for a k beyond the limit, with `prefix` before the field."""
    if question.k > limits.k_max:
        raise _too_many(f"{prefix}k", question.k, limits.k_max, "results", "serve.k_max")
    wanted = question.filter or _NO_FILTER
    views = question.views
    return Query(
        id=question.id,
        x=_plain(question.x),
        views=None if views is None else {name: _plain(vector) for name, vector in views.items()},
        k=question.k,
        include=None if wanted.include is None else frozenset(wanted.include),
        exclude=frozenset(wanted.exclude),
        tags=frozenset(wanted.tags),
        key=question.key,
    )


def to_queries(questions: Sequence[Question], limits: Limits) -> list[Query]:
    """A batch. Raises Problem 422 when it has too many queries or asks for too many results in all."""
    if len(questions) > limits.batch_max:
        raise _too_many("queries", len(questions), limits.batch_max, "queries", "serve.batch_max")
    queries = [to_query(question, limits, f"queries[{n}].") for n, question in enumerate(questions)]
    wanted = sum(query.k for query in queries)
    most = max(limits.results_max, limits.k_max)
    if wanted > most:
        message = f"queries: {wanted} results are asked for in all; at most {most} are given"
        raise Problem(422, "too_many", message, "queries", "ask for fewer per query, or in several requests")
    return queries


def known_alias(name: str | None, aliases: Sequence[str]) -> str:
    """The alias meant. Raises Problem 404 for one that is not followed here."""
    if name is None:
        return aliases[0]
    if name not in aliases:
        remedy = f"ask for one of {', '.join(aliases)}; serve.aliases names what is followed"
        raise Problem(404, "unknown_alias", "this alias is not served", "alias", remedy)
    return name


def _plain(vector: list[float] | SparseNumbers | None) -> list[float] | Mapping[str, Any] | None:
    if isinstance(vector, SparseNumbers):
        return {"indices": vector.indices, "values": vector.values}
    return vector


def _too_many(field: str, found: int, most: int, what: str, key: str) -> Problem:
    message = (
        f"{field}: {found if found < 10**12 else 'far too many'} {what} asked for, at most {most} are given"
    )
    return Problem(422, "too_many", message, field, f"ask for fewer, or raise {key}")
