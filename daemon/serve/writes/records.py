"""Raw records of impressions and clicks: a JSON object each, which the mapping `http` of `feed` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import to_json


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One record to be kept. impression: its id, the same for an impression and its clicks. line: a JSON
    object in one line, without its end."""

    impression: str
    line: bytes


def impression_record(
    impression: str,
    ts: int,
    query: str,
    shown: Sequence[str],
    *,
    propensity: Sequence[float] | None = None,
    source: str | None = None,
    key: str | None = None,
) -> SpoolRecord:
    """A shown list, best place first. ts: Unix milliseconds. propensity: for each place, the probability in
    (0, 1] that the user looked at it."""
    said = {"event": "impression", "impression": impression, "ts": ts, "query": query, "shown": shown}
    more = {"propensity": propensity, "source": source, "key": key}
    return _record(impression, said | {name: value for name, value in more.items() if value is not None})


def click_record(impression: str, ts: int, clicked: str) -> SpoolRecord:
    """A click on an object of an impression. ts: Unix milliseconds."""
    said = {"event": "click", "impression": impression, "ts": ts, "object": clicked}
    return _record(impression, said)


def _record(impression: str, said: dict[str, object]) -> SpoolRecord:
    return SpoolRecord(impression, to_json(said))
