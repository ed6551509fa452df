"""What one batch does to the state: known ids are dropped, caps hold, the kernel learns, dead letters
remain. Pure.

Objects named by id are rows of the catalog, mapped once at the start: a gather per role. Objects with
features of their own go through the frozen map.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.catalogs import as_blocks, map_catalog, overlay
from daemon.learn.state import Applied, LearnState
from daemon.versions.contents import ASIDE, CAPPED, DUPLICATE, EVICTED, LIMITED, POISON, REJECTED
from learners.arms import takes
from learners.block import Block, TripletBatch
from learners.caps import NAMES, REASONS, learn_capped
from learners.maps import FittedSpaceMap
from learners.outcome import PASSIVE, Outcome, Reason, StepInfo, joined
from streams.catalog import Catalog, RoleColumns
from streams.compiled.hashing import hash_each
from streams.decode import BatchDecoder, DecodedBatch
from streams.event import Column, DenseColumn
from streams.poison import DeadLetter
from streams.source import RecordBatch


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    """One decoded batch of one partition; `triplets` is None when every record of it is poison. `alone`: one
    record that the process may have died at."""

    polled: RecordBatch
    decoded: DecodedBatch
    triplets: TripletBatch | None
    poll_seconds: float
    decode_seconds: float
    alone: bool = False

    @property
    def records(self) -> int:
        """Records of the batch, poison included."""
        return len(self.polled.offsets)


class Assembler:
    """Turns records into triplets. Holds the mapped catalog, float32."""

    def __init__(self, decoder: BatchDecoder, fitted: FittedSpaceMap, catalog: Catalog | None) -> None:
        self._decoder = decoder
        self._map = fitted
        self._catalog = None if catalog is None else map_catalog(catalog, fitted)

    def __call__(self, batch: RecordBatch) -> tuple[DecodedBatch, TripletBatch | None]:
        """The decoded batch and its events in order; None for those when every record is poison."""
        decoded = self._decoder.decode(batch)
        if not len(decoded.offsets):
            return decoded, None
        roles = (self._role(role) for role in (decoded.query, decoded.clicked, decoded.skipped))
        return decoded, TripletBatch(*roles, keys=decoded.keys)

    def _role(self, role: RoleColumns) -> Block:
        if role.inline is None:
            assert self._catalog is not None, "the decoder resolves ids only in a catalog"
            return self._catalog.take(role.rows)
        mapped = self._map.transform(as_blocks(role.inline))
        named = role.rows >= 0
        if self._catalog is None or not named.any():
            return mapped
        return overlay(mapped, self._catalog, role.rows, named)


Names = npt.NDArray[np.uint64]

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number: joined hashes of several parts differ when the parts change places."""
NUMBER = 4
"""Bytes of an index, and of a value."""


def event_ids(decoded: DecodedBatch, at: slice) -> Names:
    """uint64 [k], of the decoded events `at`: what each is known by when it is sent again.

    That is its id; where one model per key is learned, its id and its key: nobody's ids are taken by another
    key, and an event that named none or a wrong one is learned when it is sent again with its own.
    """
    ids = decoded.ids[at]
    return ids if decoded.keys is None else ids * FACTOR + _of_keys(decoded.keys[at])


def event_names(decoded: DecodedBatch) -> Names:
    """uint64 [n, 4], in the order of `learners.caps.NAMES`.

    Events without a `src` have one source in common, 0. An object of the catalog is known by its row, since a
    version's catalog never changes; one that brings its features by their bytes (xxh64), whatever its id:
    the features are what is learned. Where one model per key is learned, each key has names of
    its own: what its events do to its model uses up no other's cap.
    """
    names = np.empty((len(decoded), NAMES), np.uint64)
    names[:, 0] = decoded.sources
    for place, role in enumerate((decoded.query, decoded.clicked, decoded.skipped), start=1):
        names[:, place] = _objects(role)
    if decoded.keys is not None:
        names = names * FACTOR + _of_keys(decoded.keys)[:, None]
    return names


def _of_keys(keys: npt.NDArray[np.bytes_]) -> Names:
    texts = np.ascontiguousarray(keys)
    bounds = np.arange(len(texts) + 1, dtype=np.int64) * texts.itemsize
    return _hash_each(texts.view(np.uint8), bounds)


def _objects(role: RoleColumns) -> Names:
    rows = role.rows.astype(np.uint64)
    if role.inline is None:
        return rows
    hashes = np.zeros(len(role), np.uint64)
    for column in role.inline.values():
        for part in _hashes(column):
            hashes = hashes * FACTOR + part
    named: Names = np.where(role.rows >= 0, rows, hashes)
    return named


def _hashes(column: Column) -> list[Names]:
    """Hashes of the bytes of each row: its values, and its indices where it has any."""
    if isinstance(column, DenseColumn):
        n, dim = column.values.shape
        return [_hash_each(column.values, np.arange(n + 1, dtype=np.int64) * (dim * NUMBER))]
    bounds = column.indptr * NUMBER
    return [_hash_each(column.indices, bounds), _hash_each(column.values, bounds)]


def _hash_each(
    array: npt.NDArray[np.float32] | npt.NDArray[np.int32] | npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
) -> Names:
    hashes = np.empty(len(bounds) - 1, np.uint64)
    hash_each(np.ascontiguousarray(array).reshape(-1).view(np.uint8), bounds, hashes)
    return hashes


WHOLE = slice(None)
NO_ROWS, NO_CODES = np.zeros(0, np.int64), np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What became of the decoded events of a batch, or of a slice of it.

    triplets: what the main learner's step saw, None when it saw nothing; info: what it did with each; weights
    [n]: what each was learned with; rows int64 [n]: which of the decoded events these are. duplicates: how
    many were known. limited: how many the caps left less than their weight. capped int64 [k]: the rows of
    those that a cap refused; fates uint8 [k]: which one, a key of `learners.caps.REASONS`. aside int64 [m]:
    the rows of those that arms alone may learn; faults uint8 [m]: the `Reason` why one is malformed, or 0.
    """

    triplets: TripletBatch | None
    info: StepInfo
    weights: npt.NDArray[Any]
    rows: npt.NDArray[np.int64]
    duplicates: int = 0
    limited: int = 0
    capped: npt.NDArray[np.int64] = field(default_factory=NO_ROWS.copy)
    fates: npt.NDArray[np.uint8] = field(default_factory=NO_CODES.copy)
    aside: npt.NDArray[np.int64] = field(default_factory=NO_ROWS.copy)
    faults: npt.NDArray[np.uint8] = field(default_factory=NO_CODES.copy)

    @property
    def known(self) -> npt.NDArray[np.int64]:
        """The rows of events that were learned, or left aside: each is known by its id from here on."""
        return np.concatenate([self.rows[self.info.outcome <= PASSIVE], self.aside[self.faults == 0]])

    def newest_ts(self, decoded: DecodedBatch) -> int | None:
        """The newest of the event times (ms) of events that were not rejected."""
        rows = [self.rows[self.info.outcome != Outcome.REJECTED], self.aside[self.faults == 0]]
        return max((int(decoded.timestamps[one].max()) for one in rows if len(one)), default=None)

    def counts(self, poison: list[DeadLetter]) -> dict[str, int]:
        """Events by what became of them, and dead letters by reason; what there is none of may be left out.
        Those that caps refused also as `capped.<reason>`."""
        faults, counts = self.faults[self.faults != 0], count(self.info, poison, self.duplicates)
        more = {ASIDE: len(self.aside) - len(faults), REJECTED: len(faults)}
        more |= {LIMITED: self.limited, CAPPED: len(self.capped), EVICTED: self.info.evicted}
        for prefix, codes, names in ((CAPPED, self.fates, REASONS), (REJECTED, faults, FAULTS)):
            more |= {f"{prefix}.{name}": int(np.count_nonzero(codes == code)) for code, name in names.items()}
        return counts | {name: counts.get(name, 0) + number for name, number in more.items() if number}


def names_of(state: LearnState, decoded: DecodedBatch) -> Names | None:
    """What the caps know events by; None where there are none."""
    return event_names(decoded) if state.caps.config.any else None


def learn(
    state: LearnState,
    decoded: DecodedBatch,
    triplets: TripletBatch | None,
    names: Names | None,
    at: slice = WHOLE,
) -> Learned:
    """Learn the decoded events `at`, a slice of step 1, in order. Raises the learner's errors.

    First the ids: what is known goes no further. Then the caps, then the step. What was learned is known from
    here on; what was refused is not, so that it can be sent again, corrected, under its own id. Whether a
    repetition within the batch is known depends on what became of the first: there the batch is cut.
    """
    start = at.indices(len(decoded))[0]
    ids, done, duplicates = event_ids(decoded, at), 0, 0
    parts: list[Learned] = []
    while triplets is not None and done < len(ids):
        stop, fresh = state.window.look(ids, done)
        rows = start + done + np.flatnonzero(fresh)
        duplicates += len(fresh) - len(rows)
        if len(rows):
            part = _learn_fresh(state, decoded, triplets, names, rows)
            known = rows if state.refused_known else np.sort(part.known)
            state.window.admit(ids[known - start])
            parts.append(part)
        done = stop
    if len(parts) == 1:
        return replace(parts[0], duplicates=duplicates)
    if not parts:
        return Learned(None, StepInfo.empty(0), decoded.weights[:0], NO_ROWS, duplicates)
    rows = np.concatenate([one.rows for one in parts])
    return Learned(
        None if triplets is None or not len(rows) else triplets.take(rows),
        joined([one.info for one in parts if len(one.info)]),
        np.concatenate([one.weights for one in parts]),
        rows,
        duplicates,
        sum(one.limited for one in parts),
        *(np.concatenate([getattr(one, name) for one in parts]) for name in BY_ROW),
    )


BY_ROW = ("capped", "fates", "aside", "faults")


def _learn_fresh(
    state: LearnState,
    decoded: DecodedBatch,
    triplets: TripletBatch,
    names: Names | None,
    rows: npt.NDArray[np.int64],
) -> Learned:
    """The main learner's events, and those of the arms, which learn nothing that it refuses: at the same
    time, unless there are caps, which its steps use up."""
    mine, done, weights = takes(state.pairs, decoded.pairs[rows]), list[Learned](), decoded.weights
    aside, faults, which = rows[~mine], np.zeros(len(decoded), np.uint8), rows

    def main() -> None:
        if mine.any():
            done.append(_learn_main(state, decoded, triplets, names, rows if mine.all() else rows[mine]))
        else:
            done.append(Learned(None, StepInfo.empty(0), decoded.weights[:0], NO_ROWS))

    if not state.arms.configs:
        main()
        return replace(done[0], aside=aside, faults=faults[aside])
    if names is not None:
        main()
        which, weights = np.sort(np.concatenate([done[0].rows, aside])), weights.astype(np.float64)
        weights[done[0].rows] = done[0].weights
    beside, threads = None if done else main, state.threads
    faults = state.arms.learn(triplets, weights, decoded.pairs, rows=which, threads=threads, beside=beside)
    return replace(done[0], aside=aside, faults=faults[aside])


def _learn_main(
    state: LearnState,
    decoded: DecodedBatch,
    triplets: TripletBatch,
    names: Names | None,
    rows: npt.NDArray[np.int64],
) -> Learned:
    seen = triplets if len(rows) == len(decoded) else triplets.take(rows)
    weights = decoded.weights[rows]
    if names is None:
        return Learned(seen, state.learner.learn_many(seen, weights), weights, rows)
    done = learn_capped(
        state.learner,
        state.caps,
        seen,
        weights.astype(np.float64),
        names[rows],
        full_step=state.full_step,
    )
    refused, let_in = np.flatnonzero(done.fates), done.rows
    whole = len(let_in) == len(seen)
    learned = seen if whole else seen.take(let_in) if len(let_in) else None
    return Learned(
        learned, done.info, done.weights, rows[let_in], 0, done.limited, rows[refused], done.fates[refused]
    )


FAULTS: Mapping[int, str] = {int(reason): reason.name.lower() for reason in Reason if reason}
NO_ROOM = FAULTS[Reason.KEY_REFUSED]
DETAILS: Mapping[str, str] = {
    FAULTS[Reason.KEY_MISSING]: "it names no key, and one model per key is learned",
    NO_ROOM: "its key has no model, and no slot of [keys] is free for another",
}
"""What is said of events that were refused for their key."""


def rejected_letters(ready: ReadyBatch, learned: Learned, topic: str) -> list[DeadLetter]:
    """A dead letter with the original bytes for every event that learners rejected, in offset order."""
    info, bad = learned.info, learned.faults != 0
    rejected = np.flatnonzero(info.outcome == Outcome.REJECTED)
    offsets = ready.decoded.offsets[np.concatenate([learned.rows[rejected], learned.aside[bad]])]
    reasons = [FAULTS[code] for code in [*info.reason[rejected].tolist(), *learned.faults[bad].tolist()]]
    refused = sorted(zip(offsets.tolist(), reasons, strict=True))
    return _letters(ready, topic, refused, "refused by the learner's step")


def capped_letters(ready: ReadyBatch, learned: Learned, topic: str) -> list[DeadLetter]:
    """The same for every event that a cap refused; the reasons are those of `learners.caps`."""
    offsets = ready.decoded.offsets[learned.capped].tolist()
    refused = zip(offsets, (REASONS[fate] for fate in learned.fates.tolist()), strict=True)
    return _letters(ready, topic, refused, "its steps within the window of [caps] are used up")


def _letters(
    ready: ReadyBatch, topic: str, refused: Iterable[tuple[int, str]], otherwise: str
) -> list[DeadLetter]:
    """Of (offset, reason); `otherwise`: the detail of a reason that has none of its own in `DETAILS`."""
    polled, found = ready.polled, []
    for offset, reason in refused:
        value = polled.values[bisect_left(polled.offsets, offset)]
        detail = DETAILS.get(reason, otherwise)
        found.append(DeadLetter(topic, polled.partition, offset, reason, detail, value))
    return found


@dataclass(frozen=True, slots=True)
class StepResult:
    """One applied batch: its effect on the progress, dead letters of what the kernel rejected, in offset
    order, those of what the caps refused, how many events were repetitions, and how many the main learner
    left aside. Of the others: the triplets (None without any), their event times int64 [n] in ms, the weights
    [n] they were learned with, and the kernel's info."""

    applied: Applied
    rejected: list[DeadLetter]
    capped: list[DeadLetter]
    info: StepInfo
    duplicates: int
    aside: int
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


def step(state: LearnState, ready: ReadyBatch, topic: str) -> StepResult:
    """Run the kernel over a batch in order. Poison never reaches it; what it rejects is a dead letter.

    An event whose id is known does not reach it either: it counts as a duplicate and changes nothing else.
    """
    decoded = ready.decoded
    learned = learn(state, decoded, ready.triplets, names_of(state, decoded))
    info, counts = learned.info, learned.counts(decoded.poison)
    unread = decoded.poison[0].reason if ready.polled.damaged is not None else None
    applied = Applied(
        partition=decoded.partition,
        next_offset=decoded.next_offset,
        last_digest=None if unread else decoded.last_digest.hex(),
        records=ready.records,
        counts=counts,
        losses=info.loss[info.outcome != Outcome.REJECTED],
        newest_ts=learned.newest_ts(decoded),
        unread=unread,
    )
    return StepResult(
        applied,
        rejected_letters(ready, learned, topic),
        capped_letters(ready, learned, topic),
        info,
        learned.duplicates,
        counts.get(ASIDE, 0),
        learned.triplets,
        decoded.timestamps[learned.rows],
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
    for reason, name in FAULTS.items():
        found = int(np.count_nonzero(info.reason == reason))
        if found:
            counts[f"{REJECTED}.{name}"] = found
    return counts
