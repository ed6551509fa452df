"""One model per key: each key of the events has a learner of its own, all of one kind, bounded in number.

The models share nothing, so learning a batch key by key is learning it in order, bit for bit (SOML's
experiments learn one metric per landmark: Gao, Hoi, Zhang, Wan, Li, AAAI 2014, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.base import BaseLearner, Doubles, Weights, checked_weights, one_triplet
from learners.block import Float32s, TripletBatch
from learners.errors import BlockError, saved, to_write
from learners.faults import faults_of
from learners.forms.quadratic import ServedForm
from learners.keyed.directory import Assigned, Directory, KeyedConfig, repeated
from learners.outcome import REJECTED, Reason, StepInfo
from learners.protocol import Learner
from learners.steps import Steps, TripletSteps, taken_triplets

Arrays = dict[str, NDArray[Any]]


class Keyed(BaseLearner[KeyedConfig]):
    """Learners by key. Its arrays are those of one learner with an axis of slots in front, and the directory
    (`learners.keyed.directory`); a free slot holds the untrained model. Without a key it is the untrained
    model: `similarity` is that of version 0.
    """

    directory: Directory
    untrained: Learner
    """The model of a key before any event; never taught."""

    def _start(self, dim: int) -> None:
        self.directory, self.untrained = Directory(self.config), self.config.make(dim)
        self._arrays: Arrays = {
            name: repeated(array, self.config.slots) for name, array in self.untrained.state().items()
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

    def _learn(self, batch: TripletBatch, weights: Doubles) -> StepInfo:
        return self._learn_numbered(batch, weights, None)

    def _learn_numbered(
        self, batch: TripletBatch, scale: Doubles, numbers: NDArray[np.int64] | None
    ) -> StepInfo:
        """Each event to its key's model. One without a key is rejected by KEY_MISSING, one whose key finds
        no room by KEY_REFUSED. numbers: of the events, where they are not the next ones."""
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

    def taken(self, batch: TripletBatch, info: StepInfo, weights: Weights = None) -> list[TripletSteps]:
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

    def _live(self) -> Arrays:
        return self._arrays | self.directory.arrays()

    def _restore(self, arrays: Mapping[str, NDArray[Any]], copy: bool) -> None:
        config = self.config
        self.directory, self._learners = Directory.from_arrays(config, arrays), {}
        first = {
            name: np.array(array[:1]).reshape(array.shape[1:]) for name, array in arrays.items() if array.ndim
        }
        self.untrained = config.make(config.restore(first).dim)
        self._arrays = {
            name: to_write(saved(arrays, name, one.dtype, (config.slots, *one.shape)), name, copy)
            for name, one in self.untrained.state().items()
        }
        for slot in range(len(self.directory)):
            self._learner_in(slot)  # it looks at its arrays

    def warm_up(self) -> None:  # type: ignore[override]  # of the kind that `config` makes
        """Do now what the first event would otherwise wait for. Raises RuntimeError."""
        self.untrained.warm_up()
