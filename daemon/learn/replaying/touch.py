"""Which event first touched a row of the state."""

from __future__ import annotations

from collections.abc import Iterable

from checkpoints.manifest import ScheduleEntry
from daemon.learn.applying.learning import learn, names_of
from daemon.learn.applying.ready import Ready
from daemon.learn.applying.state import State
from daemon.learn.replaying.difference import as_rows
from daemon.learn.replaying.disagree import EventPlace
from daemon.learn.replaying.rerun import Rerun, Told
from streams.codec import decode_event
from streams.poison import Poison


def first_touch(
    rerun: Rerun, schedule: Iterable[ScheduleEntry], array: str, row: int, told: Told
) -> EventPlace | None:
    """The first event of the schedule that changes the row of the named array; None when none does.

    Moves `rerun` along, one event at a time.
    """
    for entry in schedule:
        if isinstance(entry, dict):
            rerun.follow(entry, told)
            continue
        for ready in rerun.batches(*entry):
            touched = _in_batch(rerun.state, ready, array, row)
            if touched is not None:
                return _place(ready, touched)
            rerun.pass_over(ready)
            told(ready.records)
    return None


def _in_batch(state: State, ready: Ready, array: str, row: int) -> int | None:
    """Learn the batch's events one by one up to the first that changes the row: its place among them."""
    decoded, triplets = ready.decoded, ready.triplets
    before, names = _row(state, array, row), names_of(state, decoded)
    for at in range(len(decoded)):
        learn(state, decoded, triplets, names, slice(at, at + 1))
        if _row(state, array, row) != before:
            return at
    return None


def _row(state: State, array: str, row: int) -> bytes | None:
    """The row's bytes as they are now; None where the array has no such row yet."""
    found = state.arrays().get(array)
    if found is None or row >= (len(found) if found.ndim else 1):
        return None
    return bytes(as_rows(found)[row].tobytes())


def _place(ready: Ready, at: int) -> EventPlace:
    offset = int(ready.decoded.offsets[at])
    value = ready.polled.values[ready.polled.offsets.index(offset)]
    try:
        identifier = None if value is None else decode_event(value).id
    except Poison:
        identifier = None
    return EventPlace(ready.decoded.partition, offset, identifier)
