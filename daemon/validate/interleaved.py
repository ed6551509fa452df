"""From interleaved lists with their clicks to paired outcomes: what users preferred, list by list. Pure.

A list's outcome is the share of its credited clicks that one team got, less the other's:
`(n_one - n_other) / (n_one + n_other)`, in [-1, 1], and 0 where neither got one. A click on an object of
neither team credits nobody. Under a user without a preference between the two rankings the mean is 0 whatever
the bias of places, because each team stands in either place of a round with the same probability
(`daemon.serve.interleave`) and the outcome changes its sign with the teams: so these values are bets as they
are, beside the differences of `daemon.validate.preferences`, and need less to be true. Lists of one query are
alike: together they make one bet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from daemon.validate.measures import Float
from streams.event import FIRST, SECOND, Draft, DraftModel, Impression

State = tuple[int, int]
"""What a model was: the newest version at or before it, and the records it had applied since version 0."""


def outcomes(impressions: Sequence[Impression], reference: State, of: State | None = None) -> Float:
    """What each list says of a later state against the reference, float64[n]: above 0 where users preferred
    what was learned later, NaN where the list is not of these two.

    of: the later state; any that had applied more records where it is None. Two models in one state can only
    tie, so such a list says nothing.
    """
    found = np.full(len(impressions), np.nan)
    for place, impression in enumerate(impressions):
        draft = impression.draft
        if draft is None or len(draft.models) != 2:
            continue
        first, second = map(_state, draft.models)
        if reference not in (first, second):
            continue
        later = second if first == reference else first
        if later == of if of is not None else later[1] > reference[1]:
            sign = 1 if later is second else -1
            found[place] = sign * second_over_first(draft, impression.clicked)
    return found


def second_over_first(draft: Draft, clicked: Iterable[int]) -> float:
    """The outcome of a list for the second of its models."""
    credit = Counter(draft.teams[rank] for rank in clicked)
    both = credit[FIRST] + credit[SECOND]
    return (credit[SECOND] - credit[FIRST]) / both if both else 0.0


def _state(model: DraftModel) -> State:
    return model.version, model.records
