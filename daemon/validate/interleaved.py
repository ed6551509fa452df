"""From interleaved lists with their clicks to paired outcomes: which of two names users preferred.

A list's outcome is the share of its credited clicks that the challenger's team got, less the champion's:
`(n_challenger - n_champion) / (n_challenger + n_champion)`, in [-1, 1], and 0 where neither got one. A click
on an object of neither team credits nobody. Under a user without a preference between the two rankings the
mean is 0 whatever the bias of places, because each team stands in either place of a round with the same
probability (`daemon.serve.interleave`) and the outcome changes its sign with the teams: so these values go
into a test of the mean as they are. Lists of one query are alike, so a test needs its clusters: `query`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from streams.event import FIRST, SECOND, Draft, Impression
from streams.partitions import route_key


@dataclass(frozen=True, slots=True)
class ListOutcome:
    """What one list says. ts: ms since the epoch. query: id or hash of the query, the cluster. value: in
    [-1, 1], above 0 for the challenger. champion, challenger: (version, records since version 0) behind the
    names when the list was made.
    """

    id: str
    ts: int
    query: bytes
    value: float
    champion: tuple[int, int]
    challenger: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """lists: in order of time, then id. left_out: lists that say nothing here, by why: `NO_DRAFT` (not
    interleaved), `OTHER_NAMES`, `SAME_STATE` (both names were one state, so it can only tie), `REPEATED`
    (an id seen before)."""

    lists: tuple[ListOutcome, ...]
    left_out: Counter[str]


NO_DRAFT, OTHER_NAMES, SAME_STATE, REPEATED = "no_draft", "other_names", "same_state", "repeated"


def list_outcomes(impressions: Iterable[Impression], champion: str, challenger: str) -> Outcomes:
    """The outcomes of all lists that were drafted of these two names, in whichever order they were asked.

    Each id counts once, at its earliest: a list that is fed again says nothing new. With one model per key
    an id of another key is another list.
    """
    ordered = sorted(impressions, key=lambda one: (one.ts, one.id))
    found: list[ListOutcome] = []
    left_out: Counter[str] = Counter()
    seen: set[tuple[str, str | None]] = set()
    for impression in ordered:
        why = _why_not(impression.draft, champion, challenger)
        if not why and (impression.id, impression.key) in seen:
            why = REPEATED
        if why or impression.draft is None:
            left_out[why] += 1
            continue
        seen.add((impression.id, impression.key))
        states = {one.name: (one.version, one.records) for one in impression.draft.models}
        sign = 1 if impression.draft.models[1].name == challenger else -1
        value = sign * second_over_first(impression.draft, impression.clicked)
        query = route_key(impression.query)
        found.append(
            ListOutcome(impression.id, impression.ts, query, value, states[champion], states[challenger])
        )
    return Outcomes(tuple(found), left_out)


def second_over_first(draft: Draft, clicked: Iterable[int]) -> float:
    """The outcome of a list for the second of its models."""
    credit = Counter(draft.teams[rank] for rank in clicked)
    both = credit[FIRST] + credit[SECOND]
    return (credit[SECOND] - credit[FIRST]) / both if both else 0.0


def _why_not(draft: Draft | None, champion: str, challenger: str) -> str:
    if draft is None or len(draft.models) < 2:
        return NO_DRAFT
    first, second = draft.models
    if {first.name, second.name} != {champion, challenger}:
        return OTHER_NAMES
    same = (first.version, first.records) == (second.version, second.records)
    return SAME_STATE if same else ""
