"""Apply one batch to the learner: what the step did, and the dead letters it leaves."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from daemon.learn.pipeline import Ready
from daemon.learn.progress import Applied
from learners.outcome import Outcome, Reason, StepInfo
from learners.protocol import Learner
from streams.deadletter import DeadLetter

REJECTED = "rejected"
POISON = "poison"


@dataclass(frozen=True, slots=True)
class Step:
    """One applied batch: its effect on the progress, its dead letters in offset order, the kernel's info."""

    applied: Applied
    dead: list[DeadLetter]
    info: StepInfo


def step(learner: Learner, ready: Ready, topic: str) -> Step:
    """Run the kernel over a batch in order. Poison never reaches it; what it rejects is a dead letter."""
    decoded = ready.decoded
    if ready.triplets is None:
        info = StepInfo.empty(0)
    else:
        info = learner.learn_many(ready.triplets, decoded.weights)
    dead = [*decoded.poison, *rejected_letters(ready, info, topic)]
    dead.sort(key=lambda letter: letter.offset)
    applied = Applied(
        partition=decoded.partition,
        next_offset=decoded.next_offset,
        last_digest=decoded.last_digest.hex(),
        records=ready.records,
        counts=count(info, decoded.poison),
        losses=info.loss[info.outcome != Outcome.REJECTED],
        newest_ts=newest_ts(ready, info),
    )
    return Step(applied, dead, info)


def rejected_letters(ready: Ready, info: StepInfo, topic: str) -> list[DeadLetter]:
    """A dead letter with the original bytes for every event the kernel rejected."""
    letters = []
    records = ready.polled
    for row in np.flatnonzero(info.outcome == Outcome.REJECTED):
        offset = int(ready.decoded.offsets[row])
        value = records.values[bisect_left(records.offsets, offset)]
        reason = Reason(int(info.reason[row])).name.lower()
        letters.append(
            DeadLetter(topic, records.partition, offset, reason, "refused by the learner's step", value)
        )
    return letters


def count(info: StepInfo, poison: list[DeadLetter]) -> dict[str, int]:
    """Events by outcome, and dead letters by reason as `rejected.<reason>` and `poison.<reason>`."""
    counts = {outcome.name.lower(): info.count(outcome) for outcome in Outcome}
    counts[POISON] = len(poison)
    for letter in poison:
        key = f"{POISON}.{letter.reason}"
        counts[key] = counts.get(key, 0) + 1
    for reason in Reason:
        found = int(np.count_nonzero(info.reason == reason)) if reason else 0
        if found:
            counts[f"{REJECTED}.{reason.name.lower()}"] = found
    return counts


def newest_ts(ready: Ready, info: StepInfo) -> int | None:
    """The newest event time (ms) among the events that were not rejected."""
    kept = ready.decoded.timestamps[info.outcome != Outcome.REJECTED]
    return int(kept.max()) if len(kept) else None
