"""Dead letters of events that could be decoded and were not learned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np

from daemon.learn.applying.learning import Learned
from daemon.learn.applying.ready import Ready
from learners.caps import REASONS
from learners.outcome import Outcome, Reason
from streams.deadletter import DeadLetter


def rejected_letters(ready: Ready, learned: Learned, topic: str) -> list[DeadLetter]:
    """A dead letter with the original bytes for every event the kernel rejected, in offset order."""
    info, offsets = learned.info, ready.decoded.offsets[learned.rows]
    rejected = np.flatnonzero(info.outcome == Outcome.REJECTED)
    reasons = (Reason(int(info.reason[row])).name.lower() for row in rejected)
    told = zip(offsets[rejected].tolist(), reasons, strict=True)
    return list(_letters(ready, topic, told, "refused by the learner's step"))


def capped_letters(ready: Ready, learned: Learned, topic: str) -> list[DeadLetter]:
    """The same for every event that a cap refused; the reasons are those of `learners.caps`."""
    offsets = ready.decoded.offsets[learned.capped].tolist()
    told = zip(offsets, (REASONS[fate] for fate in learned.fates.tolist()), strict=True)
    return list(_letters(ready, topic, told, "its steps within the window of [caps] are used up"))


def _letters(ready: Ready, topic: str, told: Any, detail: str) -> Iterator[DeadLetter]:
    records = ready.polled
    for offset, reason in told:
        value = records.values[bisect_left(records.offsets, offset)]
        yield DeadLetter(topic, records.partition, offset, reason, detail, value)
