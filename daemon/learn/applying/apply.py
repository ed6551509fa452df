"""Apply one batch to the state: what the step did, and the dead letters it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.learn.applying.learning import Learned, learn, names_of
from daemon.learn.applying.letters import NO_ROOM, capped_letters, rejected_letters
from daemon.learn.applying.progress import Applied
from daemon.learn.applying.ready import Ready
from daemon.learn.applying.state import State
from daemon.versions.counters import CAPPED, DUPLICATE, EVICTED, LIMITED, POISON, REJECTED
from learners.block import TripletBatch
from learners.caps import REASONS
from learners.outcome import Outcome, Reason, StepInfo
from streams.poison import DeadLetter


@dataclass(frozen=True, slots=True)
class Step:
    """One applied batch: its effect on the progress, dead letters of what the kernel rejected, in offset
    order, those of what the caps refused, and how many events were repetitions. Of the others: the triplets
    (None without any), their event times int64 [n] in ms, the weights [n] they were learned with, and the
    kernel's info."""

    applied: Applied
    rejected: list[DeadLetter]
    capped: list[DeadLetter]
    info: StepInfo
    duplicates: int
    learned: TripletBatch | None
    timestamps: npt.NDArray[np.int64]
    weights: npt.NDArray[Any]

    @property
    def letters(self) -> list[DeadLetter]:
        """All dead letters of the step, in offset order."""
        return sorted(self.rejected + self.capped, key=lambda letter: letter.offset)

    @property
    def damaged(self) -> int:
        """How many records were refused for what they are. That a key has no room is no fault of a record."""
        return sum(letter.reason != NO_ROOM for letter in self.rejected)


def step(state: State, ready: Ready, topic: str) -> Step:
    """Run the kernel over a batch in order. Poison never reaches it; what it rejects is a dead letter.

    An event whose id is known does not reach it either: it counts as a duplicate and changes nothing else. An
    id is known from its first event on that could be decoded, whatever the kernel made of that event: so what
    counts as a repetition depends on nothing but the ids in their order.
    """
    decoded = ready.decoded
    learned = learn(state, decoded, ready.triplets, names_of(state, decoded))
    info, timestamps = learned.info, decoded.timestamps[learned.rows]
    damaged = ready.polled.damaged is not None
    applied = Applied(
        partition=decoded.partition,
        next_offset=decoded.next_offset,
        last_digest=None if damaged else decoded.last_digest.hex(),
        records=ready.records,
        counts=count(info, decoded.poison, learned.duplicates) | _caps_count(learned) | _keys_count(info),
        losses=info.loss[info.outcome != Outcome.REJECTED],
        newest_ts=newest_ts(timestamps, info),
        damaged=damaged,
    )
    return Step(
        applied,
        rejected_letters(ready, learned, topic),
        capped_letters(ready, learned, topic),
        info,
        learned.duplicates,
        learned.triplets,
        timestamps,
        learned.weights,
    )


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


def _caps_count(learned: Learned) -> dict[str, int]:
    """Events that caps refused, also as `capped.<reason>`, and that they limited; nothing where none were."""
    counts = {LIMITED: learned.limited, CAPPED: len(learned.capped)}
    for fate, reason in REASONS.items():
        counts[f"{CAPPED}.{reason}"] = int(np.count_nonzero(learned.fates == fate))
    return {name: found for name, found in counts.items() if found}


def _keys_count(info: StepInfo) -> dict[str, int]:
    """Keys that lost their model; nothing where none did."""
    return {EVICTED: info.evicted} if info.evicted else {}


def newest_ts(timestamps: npt.NDArray[np.int64], info: StepInfo) -> int | None:
    """The newest of the event times (ms) of events that were not rejected."""
    kept = timestamps[info.outcome != Outcome.REJECTED]
    return int(kept.max()) if len(kept) else None
