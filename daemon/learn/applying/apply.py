"""Apply one batch to the state: what the step did, and the dead letters it leaves."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.learn.applying.progress import Applied
from daemon.learn.applying.ready import Ready
from daemon.learn.applying.state import State
from daemon.versions.counters import DUPLICATE, POISON, REJECTED
from learners.batch import TripletBatch
from learners.outcome import Outcome, Reason, StepInfo
from streams.deadletter import DeadLetter


@dataclass(frozen=True, slots=True)
class Step:
    """One applied batch: its effect on the progress, dead letters of what the kernel rejected, in offset
    order, and how many events were repetitions. Of the others: the triplets (None without any), their event
    times int64 [n] in ms, and the kernel's info."""

    applied: Applied
    rejected: list[DeadLetter]
    info: StepInfo
    duplicates: int
    learned: TripletBatch | None
    timestamps: npt.NDArray[np.int64]


def step(state: State, ready: Ready, topic: str) -> Step:
    """Run the kernel over a batch in order. Poison never reaches it; what it rejects is a dead letter.

    An event whose id is known does not reach it either: it counts as a duplicate and changes nothing else. An
    id is known from its first event on that could be decoded, whatever the kernel made of that event: so what
    counts as a repetition depends on nothing but the ids in their order.
    """
    decoded = ready.decoded
    learned, info, kept = _learn(state, ready)
    timestamps, duplicates = decoded.timestamps[kept], len(decoded) - len(info)
    damaged = ready.polled.damaged is not None
    applied = Applied(
        partition=decoded.partition,
        next_offset=decoded.next_offset,
        last_digest=None if damaged else decoded.last_digest.hex(),
        records=ready.records,
        counts=count(info, decoded.poison, duplicates),
        losses=info.loss[info.outcome != Outcome.REJECTED],
        newest_ts=newest_ts(timestamps, info),
        damaged=damaged,
    )
    rejected = rejected_letters(ready, kept, info, topic)
    return Step(applied, rejected, info, duplicates, learned, timestamps)


def _learn(state: State, ready: Ready) -> tuple[TripletBatch | None, StepInfo, Any]:
    """What the kernel saw, its info, and which of the decoded events that is: a slice or an array of rows."""
    triplets, weights = ready.triplets, ready.decoded.weights
    if triplets is None:
        return None, StepInfo.empty(0), slice(0)
    fresh = state.window.admit(ready.decoded.ids)
    if fresh.all():
        return triplets, state.learner.learn_many(triplets, weights), slice(None)
    kept = np.flatnonzero(fresh)
    if len(kept) == 0:
        return None, StepInfo.empty(0), slice(0)
    taken = triplets.take(kept)
    return taken, state.learner.learn_many(taken, weights[kept]), kept


def rejected_letters(ready: Ready, kept: Any, info: StepInfo, topic: str) -> list[DeadLetter]:
    """A dead letter with the original bytes for every event the kernel rejected; `kept`: its rows."""
    letters = []
    records = ready.polled
    offsets = ready.decoded.offsets[kept]
    for row in np.flatnonzero(info.outcome == Outcome.REJECTED):
        offset = int(offsets[row])
        value = records.values[bisect_left(records.offsets, offset)]
        reason = Reason(int(info.reason[row])).name.lower()
        letters.append(
            DeadLetter(topic, records.partition, offset, reason, "refused by the learner's step", value)
        )
    return letters


def count(info: StepInfo, poison: list[DeadLetter], duplicates: int) -> dict[str, int]:
    """Events by outcome, and dead letters by reason as `rejected.<reason>` and `poison.<reason>`."""
    counts = {outcome.name.lower(): info.count(outcome) for outcome in Outcome}
    counts[DUPLICATE] = duplicates
    counts[POISON] = len(poison)
    for letter in poison:
        key = f"{POISON}.{letter.reason}"
        counts[key] = counts.get(key, 0) + 1
    for reason in Reason:
        found = int(np.count_nonzero(info.reason == reason)) if reason else 0
        if found:
            counts[f"{REJECTED}.{reason.name.lower()}"] = found
    return counts


def newest_ts(timestamps: npt.NDArray[np.int64], info: StepInfo) -> int | None:
    """The newest of the event times (ms) of events that were not rejected."""
    kept = timestamps[info.outcome != Outcome.REJECTED]
    return int(kept.max()) if len(kept) else None
