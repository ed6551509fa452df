"""Dead letters of events that could be decoded and were not learned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from daemon.learn.applying.learning import Learned
from daemon.learn.applying.ready import Ready
from learners.caps import REASONS
from learners.outcome import Outcome, Reason
from streams.poison import DeadLetter

BY_THE_STEP = "refused by the learner's step"
NO_ROOM = Reason.KEY_REFUSED.name.lower()
DETAILS: Mapping[str, str] = {
    Reason.KEY_MISSING.name.lower(): "it names no key, and one model per key is learned",
    NO_ROOM: "its key has no model, and no slot of [keys] is free for another",
}
"""What is said of events that were refused for their key."""


def rejected_letters(ready: Ready, learned: Learned, topic: str) -> list[DeadLetter]:
    """A dead letter with the original bytes for every event the learner rejected, in offset order."""
    info, offsets = learned.info, ready.decoded.offsets[learned.rows]
    rejected = np.flatnonzero(info.outcome == Outcome.REJECTED)
    reasons = (Reason(int(info.reason[row])).name.lower() for row in rejected)
    told = zip(offsets[rejected].tolist(), reasons, strict=True)
    return list(_letters(ready, topic, told, lambda reason: DETAILS.get(reason, BY_THE_STEP)))


def capped_letters(ready: Ready, learned: Learned, topic: str) -> list[DeadLetter]:
    """The same for every event that a cap refused; the reasons are those of `learners.caps`."""
    offsets = ready.decoded.offsets[learned.capped].tolist()
    told = zip(offsets, (REASONS[fate] for fate in learned.fates.tolist()), strict=True)
    return list(_letters(ready, topic, told, lambda _: "its steps within the window of [caps] are used up"))


def _letters(ready: Ready, topic: str, told: Any, detail: Callable[[str], str]) -> Iterator[DeadLetter]:
    records = ready.polled
    for offset, reason in told:
        value = records.values[bisect_left(records.offsets, offset)]
        yield DeadLetter(topic, records.partition, offset, reason, detail(reason), value)
