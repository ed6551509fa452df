"""One model per key: each key of the events has a learner of its own, all of one kind, bounded in number.

The models share nothing, so learning a batch key by key is learning it in order, bit for bit (SOML's
experiments learn one metric per landmark: Gao, Hoi, Zhang, Wan, Li, AAAI 2014, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, TripletBatch
from learners.errors import BlockError
from learners.faults import faults_of
from learners.keyed.directory import Assigned, Directory, KeyedConfig, repeated, taken_over
from learners.matrix import checked_weights, one_triplet
from learners.outcome import REJECTED, Reason, StepInfo
from learners.protocol import Learner
from learners.steps import Steps, TripletSteps, taken_triplets

Arrays = dict[str, NDArray[Any]]


class Keyed:
    """Learners by key. Its arrays are those of one learner with an axis of slots in front, and the directory
    (`learners.keyed.directory`); a free slot holds the untrained model. Without a key it is the untrained
    model: `similarity` is that of version 0.

    Not safe for two threads at once.
    """

    config: KeyedConfig
    directory: Directory
    untrained: Learner
    """The model of a key before any event; never taught."""

    def __init__(self, dim: int, config: KeyedConfig) -> None:
        """No key yet. Raises ConfigError as the learner does."""
        self.config, self.directory, self.untrained = config, Directory(config), config.make(dim)
        self._arrays: Arrays = {
            name: repeated(array, config.slots) for name, array in self.untrained.state().items()
        }
        self._learners: dict[int, Learner] = {}

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
        key that gets the slot changes it altogether.
        """
        slot = self.directory.slot_of(key.encode())
        return None if slot is None else self._learner_in(slot)

    def learn_one(self, query: Any, clicked: Any, skipped: Any, key: str = "") -> StepInfo:
        """Apply one triplet of vectors (anything `as_block` reads, one row each) of a key; the info holds one
        entry. Raises BlockError as `learn_many`."""
        keys = np.array([key.encode()], "S64")
        return self.learn_many(replace(one_triplet(query, clicked, skipped), keys=keys))

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any] | None = None) -> StepInfo:
        """Apply a batch in order, each event to its key's model; bit for bit as `learn_one` of each would.

        An event without a key is rejected by KEY_MISSING, one whose key finds no room by KEY_REFUSED. Raises
        BlockError on another dimension or number of weights.
        """
        return self._learn(batch, weights, None)

    def _learn(
        self, batch: TripletBatch, weights: NDArray[Any] | None, numbers: NDArray[np.int64] | None
    ) -> StepInfo:
        """numbers: of the events, where they are not the next ones."""
        scale = checked_weights(batch, self.dim, weights)
        reason = faults_of(batch, scale)
        keys = [b""] * len(batch) if batch.keys is None else batch.keys.tolist()
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
            told = learner.learn_many(grouped.slice(start, end), weights[rows] if len(weights) else None)
            self._keep(tenancy.slot, learner)
            start = end
            info.outcome[rows], info.loss[rows] = told.outcome, told.loss
            info.tau[rows], info.reason[rows] = told.tau, told.reason
            info.projected += [int(rows[at - 1]) + 1 for at in told.projected]
        info.projected.sort()

    def _begin(self, slot: int) -> None:
        """The slot's model anew."""
        self._learners.pop(slot, None)
        for name, array in self.untrained.state().items():
            self._arrays[name][slot] = array

    def _learner_in(self, slot: int) -> Learner:
        """The learner on a slot's part of the arrays."""
        learner = self._learners.get(slot)
        if learner is None:
            learner = self.config.restore({name: array[slot, ...] for name, array in self._arrays.items()})
            self._learners[slot] = learner
        return learner

    def _keep(self, slot: int, learner: Learner) -> None:
        """Write down what of its state the learner does not keep in the arrays themselves."""
        for name, array in learner.state().items():
            if not np.may_share_memory(array, self._arrays[name]):
                self._arrays[name][slot] = array

    def taken(
        self, batch: TripletBatch, info: StepInfo, weights: NDArray[Any] | None = None
    ) -> list[TripletSteps]:
        """The accepted triplets with their keys, weights and numbers. Copies."""
        numbered = (info.outcome != REJECTED) | (info.reason == Reason.KEY_REFUSED)
        numbers = (info.first + np.cumsum(numbered) - 1)[info.outcome != REJECTED]
        return [replace(steps, numbers=numbers) for steps in taken_triplets(batch, info, weights)]

    def replay(self, steps: Steps) -> None:
        """Learn again what another copy learned: its bits, but for the count of events that it refused
        after.

        Raises BlockError for steps of another kind, without numbers or keys, of numbers that do not go on
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
        info = self._learn(steps.batch, steps.weights, steps.numbers)
        wrong = np.flatnonzero(info.outcome == REJECTED)
        if len(wrong):
            raise BlockError(f"step {wrong[0]} of {len(steps)} is refused: the others are applied")

    def similarity(self, queries: Any, items: Any) -> Float32s:
        """The untrained model's scores, float32 [queries, items]; those of a key: `learner_of`. Raises
        BlockError."""
        return self.untrained.similarity(queries, items)

    def state(self) -> Arrays:
        """The learner's arrays with an axis of slots in front, and those of the directory; read-only views,
        which change with the next step."""
        views = {name: array.view() for name, array in (self._arrays | self.directory.arrays()).items()}
        for view in views.values():
            view.flags.writeable = False
        return views

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], config: KeyedConfig, copy: bool = True) -> Self:
        """Go on from the arrays of `state`. copy=False takes those of the learners over without a copy (they
        must be writable).

        Raises StateError naming the array that is missing or does not fit.
        """
        keyed = cls.__new__(cls)
        keyed.directory, keyed._learners = Directory.from_arrays(config, arrays), {}
        first = config.restore(
            {
                name: np.array(array[:1]).reshape(array.shape[1:])
                for name, array in arrays.items()
                if array.ndim
            }
        )
        keyed.config, keyed.untrained = config, config.make(first.dim)
        keyed._arrays = {
            name: taken_over(arrays, name, array, config.slots, copy)
            for name, array in keyed.untrained.state().items()
        }
        for slot in range(len(keyed.directory)):
            keyed._learner_in(slot)  # it looks at its arrays
        return keyed

    def clone(self) -> Self:
        """An independent copy."""
        return self.from_state(self.state(), self.config)

    def warm_up(self) -> None:
        """Do now what the first event would otherwise wait for. Raises RuntimeError."""
        self.untrained.warm_up()
