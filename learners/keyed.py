"""One model per key: each key of the events has a learner of its own, all of one kind, bounded in number.

The models share nothing, so learning a batch key by key is learning it in order, bit for bit (SOML's
experiments learn one metric per landmark: Gao, Hoi, Zhang, Wan, Li, AAAI 2014, section 4). A directory says
which key has which slot: who is let in, who goes, and whose events are refused. It sees no vectors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.base import BaseLearner, Doubles, Learner, Weights, checked_weights, one_triplet
from learners.block import MAX_KEY_BYTES, Float32s, Int64s, TripletBatch, as_keys, key_bytes
from learners.errors import BlockError, ConfigError, StateError, array_named, require_whole, saved, to_write
from learners.faults import faults_of
from learners.forms.quadratic import ServedForm
from learners.outcome import REJECTED, Reason, StepInfo
from learners.steps import Steps, TripletSteps, taken_triplets

WhenFull: TypeAlias = Literal["refuse", "evict"]


@dataclass(frozen=True, slots=True)
class KeyedConfig:
    """Settings of one model per key.

    make: dim -> the model of a key before any event. restore: (its arrays) -> the model that continues from
    them, taking over what it writes in place. slots: most models at once, > 0. when_full: what befalls a key
    that comes when all are taken: "refuse" its events, or "evict" the key whose last event is the longest
    ago, if that was at least evict_after events ago (and refuse otherwise). shared: names of arrays that no
    step changes; all models have one copy of each. Raises ConfigError.
    """

    make: Callable[[int], Learner]
    restore: Callable[[Mapping[str, NDArray[Any]]], Learner]
    slots: int
    when_full: WhenFull = "refuse"
    evict_after: int = 0
    shared: tuple[str, ...] = ()

    @classmethod
    def of(cls, learner: Any, config: Any = None, *, slots: int, **settings: Any) -> Self:
        """Of a class of learners, such as Oasis, and its settings; `settings` are others of these."""
        return cls(
            lambda dim: learner(dim, config),
            lambda arrays: learner.from_state(arrays, config, copy=False),
            slots,
            shared=learner.SHARED,
            **settings,
        )

    def __post_init__(self) -> None:
        require_whole("slots", self.slots)
        require_whole("evict_after", self.evict_after)
        if self.slots < 1:
            raise ConfigError(f"slots must be at least 1, not {self.slots}")
        if self.when_full not in ("refuse", "evict"):
            raise ConfigError(f'when_full must be "refuse" or "evict", not {self.when_full!r}')
        if self.evict_after < 0:
            raise ConfigError(f"evict_after must be 0 or a number of events, not {self.evict_after}")


def repeated(array: NDArray[Any], slots: int) -> NDArray[Any]:
    """[slots, ...] of copies of an array; pages of zeros stay untouched."""
    repeated = np.zeros((slots, *array.shape), array.dtype)
    if array.any():
        repeated[...] = array
    return repeated


CLOCK = "key_clock"
KEY_ARRAYS = ("key_name", "key_last", "key_events", CLOCK)
"""Names of a directory's arrays."""


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A slot while one key has it. fresh: the key was let in just now, so that its model starts over."""

    slot: int
    fresh: bool


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """Where the events of a batch go.

    tenancies: in the order in which they begin; those of one slot follow each other. tenancy: int64 [n], the
    place of each event's among them, -1 where it has none. reason: uint8 [n], why it has none. evicted: how
    many keys lost their slot.
    """

    tenancies: list[Tenancy]
    tenancy: Int64s
    reason: NDArray[np.uint8]
    evicted: int

    def by_tenancy(self) -> tuple[Int64s, list[int]]:
        """(the rows that have a tenancy, one's after the other's, each one's in order; where each ends)."""
        order = np.argsort(self.tenancy, kind="stable")[np.count_nonzero(self.tenancy < 0) :]
        places = np.arange(len(self.tenancies))
        return order, np.searchsorted(self.tenancy[order], places, side="right").tolist()


class Directory:
    """The keys that have a slot, in the order of their last events.

    name uint8 [slots, 64]: the key of each slot, filled up with zeros; all zero where it is free. last int64
    [slots]: the number of its last event. events int64 [slots]: how many it had since it was let in. clock:
    how many sound events named a key, refused ones too: each of them has its number. Slots are taken in order
    and given away, never freed. A key is let in by a sound event alone: what a step refuses moves nobody.
    What is decided depends on the events in their order, not on where batches end.
    """

    def __init__(self, config: KeyedConfig) -> None:
        self._config = config
        self.name = np.zeros((config.slots, MAX_KEY_BYTES), np.uint8)
        self.last = np.zeros(config.slots, np.int64)
        self.events = np.zeros(config.slots, np.int64)
        self.clock = 0
        self._slot_of: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        """The number of slots in use."""
        return len(self._slot_of)

    def slot_of(self, key: bytes) -> int | None:
        """The slot of a key, None where it has none."""
        return self._slot_of.get(key)

    def listed(self) -> list[bytes]:
        """The keys in the order of their slots."""
        return sorted(self._slot_of, key=self._slot_of.__getitem__)

    def check_new(self, keys: list[bytes]) -> None:
        """Raises BlockError for a key that has no slot and could not be read back from one."""
        for key in {*keys}:
            if key not in self._slot_of:
                key_bytes(key)

    def next_numbers(self, keys: list[bytes], reason: NDArray[np.uint8]) -> Int64s:
        """The numbers of events that come next, as `assign` takes them."""
        named = np.fromiter(map(bool, keys), np.bool_, len(keys))
        return self.clock + np.cumsum((reason == Reason.NONE) & named) - 1

    def assign(self, keys: list[bytes], reason: NDArray[np.uint8], numbers: Int64s) -> Assigned:
        """Give each event its key's slot, and let keys in.

        keys: of each event, b"" without one. reason: uint8 [n], 0 for each event that a step will take.
        numbers: int64 [n], of each event that a step will take and that names a key: its own, ascending.
        """
        reasons, tenancy = reason.copy(), np.full(len(keys), -1, np.int64)
        tenancies: list[Tenancy] = []
        current: dict[int, int] = {}
        used = len(self)
        for row in np.flatnonzero(reason == Reason.NONE).tolist():
            key, number = keys[row], int(numbers[row])
            if key:
                self.clock = number + 1
            slot = self._slot_of.get(key)
            fresh = slot is None
            if slot is None:
                slot = self._let_in(key, number) if key else None
            if slot is None:
                reasons[row] = Reason.KEY_REFUSED if key else Reason.KEY_MISSING
                continue
            if fresh or slot not in current:
                current[slot] = len(tenancies)
                tenancies.append(Tenancy(slot, fresh))
            tenancy[row] = current[slot]
            self._slot_of.move_to_end(key)
            self.last[slot] = number
            self.events[slot] += 1
        evicted = sum(one.fresh for one in tenancies) - (len(self) - used)
        return Assigned(tenancies, tenancy, reasons, evicted)

    def _let_in(self, key: bytes, number: int) -> int | None:
        """The slot that a new key gets at this event; None where there is none for it."""
        slot = len(self._slot_of)
        if slot == self._config.slots:
            oldest, slot = next(iter(self._slot_of.items()))
            if self._config.when_full == "refuse" or number - self.last[slot] < self._config.evict_after:
                return None
            del self._slot_of[oldest]
        self._slot_of[key] = slot
        self.name[slot] = 0
        self.name[slot, : len(key)] = np.frombuffer(key, np.uint8)
        self.events[slot] = 0
        return slot

    def arrays(self) -> dict[str, NDArray[Any]]:
        """{"key_name": uint8 [slots, 64], "key_last", "key_events": int64 [slots], "key_clock": int64 []}."""
        clock = np.array(self.clock, np.int64)
        return dict(zip(KEY_ARRAYS, (self.name, self.last, self.events, clock), strict=True))

    @classmethod
    def from_arrays(cls, config: KeyedConfig, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Continue from `arrays`, copied. Raises StateError naming the one that does not fit."""
        directory = cls(config)
        for name, own in directory.arrays().items():
            given = saved(arrays, name, own.dtype, own.shape)
            if own.ndim:
                own[...] = given
        directory.clock = int(arrays[CLOCK])
        directory._list_keys()
        return directory

    def _list_keys(self) -> None:
        """Read the keys back. Raises StateError where they are none."""
        names = [row.tobytes().rstrip(b"\0") for row in self.name]
        used = next((slot for slot, name in enumerate(names) if not name), len(names))
        if any(names[used:]) or len(set(names[:used])) < used:
            raise StateError("array key_name holds a key twice, or behind a free slot: it was altered")
        try:
            self.check_new(names)
        except BlockError as error:
            raise StateError(f"array key_name holds what is no key: {error}") from error
        if (self.events[:used] < 1).any() or self.events[used:].any():
            raise StateError("array key_events does not fit the slots in use by key_name: it was altered")
        last = self.last[:used].tolist()
        if self.last[used:].any() or len(set(last)) < used or not all(0 <= n < self.clock for n in last):
            raise StateError(
                f"array key_last is not one event below key_clock, {self.clock}, for each slot of key_name"
            )
        for slot in sorted(range(used), key=last.__getitem__):
            self._slot_of[names[slot]] = slot


Arrays = dict[str, NDArray[Any]]


class Keyed(BaseLearner[KeyedConfig]):
    """Learners by key. Its arrays are those of one learner with an axis of slots in front, those that all
    share as they are, and the directory (`learners.keyed`); a free slot holds the untrained model.
    Without a key it is the untrained model: `similarity` is that of version 0.
    """

    directory: Directory
    untrained: Learner
    """The model of a key before any event; never taught."""

    def _start(self, dim: int) -> None:
        self.directory, self.untrained = Directory(self.config), self.config.make(dim)
        self._arrays: Arrays = {
            name: array if name in self.config.shared else repeated(array, self.config.slots)
            for name, array in self.untrained.state().items()
        }
        self._learners: dict[int, Learner] = {}

    @classmethod
    def added_later(cls, config: KeyedConfig, dim: int) -> Arrays:
        """Those of a model, for each slot."""
        one = config.make(dim)
        later = type(one).added_later(one.config, dim)
        return {name: repeated(array, config.slots) for name, array in later.items()}

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.untrained.dim

    def names(self) -> list[str]:
        """The keys that have a model, in the order of their slots."""
        return [key.decode() for key in self.directory.listed()]

    def events(self) -> dict[str, int]:
        """How many events each key's model had since it was let in, rejected ones not counted."""
        slots = map(self.directory.slot_of, self.directory.listed())
        return dict(zip(self.names(), (int(self.directory.events[slot]) for slot in slots), strict=True))

    def learner_of(self, key: str) -> Learner | None:
        """The model of a key, None where it has none (then `untrained` is what answers).

        It is the slot's own: read it only, while nobody learns; it changes with the next step, and the next
        key that gets the slot changes it altogether. Raises BlockError for what can be no key.
        """
        slot = self.directory.slot_of(key_bytes(key))
        return None if slot is None else self._learner_in(slot)

    def learn_one(self, query: Any, clicked: Any, skipped: Any, key: str = "") -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each) of a key; the info holds one
        entry. Raises BlockError as `learn_many`, and for a key that is too long."""
        return self.learn_many(replace(one_triplet(query, clicked, skipped), keys=as_keys([key])))

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        return self._learn_numbered(batch, weights, None)

    def _learn_numbered(
        self, batch: TripletBatch, scale: Doubles, numbers: NDArray[np.int64] | None
    ) -> StepInfo:
        """Each event to its key's model. One without a key is rejected by KEY_MISSING, one whose key finds
        no room by KEY_REFUSED. numbers: of the events, where they are not the next ones."""
        reason = faults_of(batch, scale)
        keys = [b""] * len(batch) if batch.keys is None else batch.keys.tolist()
        self.directory.check_new(keys)
        if numbers is None:
            numbers = self.directory.next_numbers(keys, reason)
        info = StepInfo.empty(len(batch))
        info.first = self.directory.clock
        assigned = self.directory.assign(keys, reason, numbers)
        info.reason[...], info.evicted = assigned.reason, assigned.evicted
        info.outcome[assigned.reason != 0] = REJECTED
        self._learn_by_key(batch, scale, assigned, info)
        return info

    def _learn_by_key(
        self, batch: TripletBatch, weights: NDArray[np.float64], assigned: Assigned, info: StepInfo
    ) -> None:
        """Each tenancy's events, in order, by its own learner."""
        order, ends = assigned.by_tenancy()
        alone = len(order) == len(batch) and len(ends) == 1
        grouped, start = batch if alone else batch.take(order), 0
        for tenancy, end in zip(assigned.tenancies, ends, strict=True):
            if tenancy.fresh:
                self._begin(tenancy.slot)
            learner, rows = self._learner_in(tenancy.slot), order[start:end]
            step = learner.learn_many(grouped.slice(start, end), weights[rows] if len(weights) else None)
            self._keep(tenancy.slot, learner)
            start = end
            info.outcome[rows], info.loss[rows] = step.outcome, step.loss
            info.tau[rows], info.reason[rows] = step.tau, step.reason
            info.projected += [int(rows[at - 1]) + 1 for at in step.projected]
        info.projected.sort()

    def _begin(self, slot: int) -> None:
        self._learners.pop(slot, None)
        for name, array in self.untrained.state().items():
            if name not in self.config.shared:
                self._arrays[name][slot] = array

    def _learner_in(self, slot: int) -> Learner:
        learner = self._learners.get(slot)
        if learner is None:
            learner = self.config.restore(
                {
                    name: array if name in self.config.shared else array[slot, ...]
                    for name, array in self._arrays.items()
                }
            )
            self._learners[slot] = learner
        return learner

    def _keep(self, slot: int, learner: Learner) -> None:
        for name, array in learner.state().items():
            if not np.may_share_memory(array, self._arrays[name]):
                self._arrays[name][slot] = array

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Weights = None) -> list[TripletSteps]:
        """The accepted triplets with their keys, weights and numbers. Copies."""
        numbered = (info.outcome != REJECTED) | (info.reason == Reason.KEY_REFUSED)
        numbers = (info.first + np.cumsum(numbered) - 1)[info.outcome != REJECTED]
        return [replace(steps, numbers=numbers) for steps in taken_triplets(batch, info, weights)]

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy learned: its bits, but for the count of events that it refused
        after.

        Raises BlockError for steps of another kind, without numbers or keys, of numbers that do not follow on
        from here, and where one finds no room or is malformed: the others are applied then.
        """
        if not isinstance(steps, TripletSteps) or steps.numbers is None:
            raise BlockError("models by key take triplets with keys and numbers again: give those of `taken`")
        if not len(steps):
            return
        if steps.numbers[0] < self.directory.clock:
            raise BlockError(
                f"step {steps.numbers[0]} comes after event {self.directory.clock - 1}: it was taken before"
            )
        scale = checked_weights(steps.batch, self.dim, steps.weights)
        info = self._learn_numbered(steps.batch, scale, steps.numbers)
        wrong = np.flatnonzero(info.outcome == REJECTED)
        if len(wrong):
            raise BlockError(f"step {wrong[0]} of {len(steps)} is refused: the others are applied")

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """The untrained model's scores, float32 [queries, items]; those of a key: `learner_of`. Raises
        BlockError."""
        return self.untrained.similarity(queries, items)

    def form(self, normalised: bool = True, key: str = "") -> ServedForm:
        """What the model of a key is served as; that of the untrained model for a key without one."""
        return (self.learner_of(key) or self.untrained).form(normalised)

    def as_learned(self, copy: bool = True, key: str = "") -> ServedForm:
        """The scores of the model of a key as it learned them, or of the untrained model."""
        return (self.learner_of(key) or self.untrained).as_learned(copy)

    def _live(self) -> Arrays:
        return self._arrays | self.directory.arrays()

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        config = self.config
        self.directory, self._learners = Directory.from_arrays(config, arrays), {}
        first = {}
        for name in arrays:
            array = array_named(arrays, name)
            if name in config.shared:
                first[name] = array.copy() if copy else array
            elif array.ndim and len(array) != config.slots:
                raise StateError(f"array {name} has shape {array.shape}: it must have {config.slots} slots")
            elif array.ndim:
                first[name] = np.array(array[:1]).reshape(array.shape[1:])
        one = config.restore(first)
        self.untrained = one.fresh() if config.shared else config.make(one.dim)
        later = type(self.untrained).added_later(self.untrained.config, self.untrained.dim)
        lacking = set() if {*later} & {*arrays} else {*later}
        self._arrays = {
            name: one
            if name in config.shared
            else repeated(one, config.slots)
            if name in lacking
            else to_write(saved(arrays, name, one.dtype, (config.slots, *one.shape)), name, copy)
            for name, one in self.untrained.state().items()
        }
        for slot in range(len(self.directory)):
            self._learner_in(slot)  # it looks at its arrays

    def warm_up(self, sparse_rows: bool | None = None) -> None:  # type: ignore[override]  # of its own kind
        """Do now what the first event would otherwise wait for. Raises RuntimeError."""
        self.untrained.warm_up(sparse_rows)
