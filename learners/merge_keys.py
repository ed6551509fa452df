"""Models by key merged: key by key, with the model that a key is given where a learner does not have it.

A key is known by who had an event of it last. Where there are more keys than slots, those stay whose last
events are the newest; each learner counts its own events, so newest means: the fewest events ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from learners.keyed import CLOCK, KEY_ARRAYS
from learners.merge import Arrays, State, StateMerge


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """The algebra of a model for each key. one: of a model. untrained: its state before any event. slots:
    most keys. shared: names of arrays that all models have one copy of."""

    one: StateMerge
    untrained: Callable[[State], State]
    slots: int
    shared: tuple[str, ...] = ()

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int], summed: bool = False
    ) -> Arrays:
        """As `StateMerge.states`; a key's learners weigh by its events."""
        first, each = self._keys(base), [self._keys(one) for one in states]
        fresh = self.untrained(base)
        models: dict[bytes, State] = {}
        events: dict[bytes, int] = {}
        for key in self._kept([first, *each]):
            # Who gave the key up, or did so and let it in again, goes on from no model of the base.
            known = [one for one in each if one.events(key)]
            again = any(one.events(key) < first.events(key) for one in known)
            before = 0 if again else first.events(key)
            began = fresh if again else first.model(key, fresh)
            moved = [one for one in known if one.events(key) > before]
            counts = [one.events(key) - before for one in moved]
            states_of = [one.model(key, fresh) for one in moved]
            models[key] = self.one.states(began, states_of, counts, summed) if moved else began
            events[key] = before + sum(counts)
        clock = first.clock + sum(one.clock - first.clock for one in each)
        return self._written(base, models, events, [first, *each], clock)

    def rebased(self, current: State, counted: State, merged: State) -> Arrays:
        """As `StateMerge.rebased`."""
        now, known, of_all = self._keys(current), self._keys(counted), self._keys(merged)
        fresh = self.untrained(current)
        models, events = {}, {}
        for key in self._kept([now, of_all]):
            if now.events(key) < known.events(key):  # given up meanwhile, and perhaps let in again
                models[key] = (now if now.events(key) else of_all).model(key, fresh)
                events[key] = now.events(key) or of_all.events(key)
                continue
            three = [one.model(key, fresh) for one in (now, known, of_all)]
            models[key] = self.one.rebased(three[0], three[1], three[2])
            events[key] = max(1, now.events(key) + of_all.events(key) - known.events(key))
        return self._written(current, models, events, [now, of_all], now.clock + of_all.clock - known.clock)

    def _keys(self, state: State) -> _Keys:
        return _Keys(state, self.shared)

    def _kept(self, all_keys: Sequence[_Keys]) -> list[bytes]:
        """The keys that stay, in the order of their slots: those there were first, then by name."""
        ages: dict[bytes, int] = {}
        for keys in all_keys:
            for key in keys.slots:
                ages[key] = min(keys.age(key), ages.get(key, keys.age(key)))
        stay = sorted(ages, key=lambda key: (ages[key], key))[: self.slots]
        first = all_keys[0].slots
        return sorted(stay, key=lambda key: (first.get(key, self.slots), key))

    def _written(
        self,
        like: State,
        models: Mapping[bytes, State],
        events: Mapping[bytes, int],
        all_keys: Sequence[_Keys],
        clock: int,
    ) -> Arrays:
        out = {name: array if name in self.shared else np.zeros_like(array) for name, array in like.items()}
        fresh = self.untrained(like)
        for name, one in fresh.items():
            if name not in self.shared and one.any():
                out[name][len(models) :] = one
        by_age = sorted(models, key=lambda key: (min(k.age(key) for k in all_keys if key in k.slots), key))
        rank = {key: at for at, key in enumerate(by_age)}
        clock = max(clock, len(models))
        for slot, (key, model) in enumerate(models.items()):
            for name, array in model.items():
                if name not in self.shared:
                    out[name][slot] = array
            out["key_name"][slot, : len(key)] = np.frombuffer(key, np.uint8)
            out["key_last"][slot] = clock - 1 - rank[key]
            out["key_events"][slot] = max(1, events[key])
        out[CLOCK] = np.array(clock, np.int64)
        return out


class _Keys:
    """The models of a state, by key."""

    def __init__(self, state: State, shared: tuple[str, ...] = ()) -> None:
        self._state, self._shared = state, shared
        names = [row.tobytes().rstrip(b"\0") for row in state["key_name"]]
        self.slots = {name: slot for slot, name in enumerate(names) if name}
        self.clock = int(state[CLOCK])

    def events(self, key: bytes) -> int:
        """How many events its model had."""
        return int(self._state["key_events"][self.slots[key]]) if key in self.slots else 0

    def age(self, key: bytes) -> int:
        """How many events ago its last one was."""
        return self.clock - int(self._state["key_last"][self.slots[key]])

    def model(self, key: bytes, fresh: State) -> State:
        """Its arrays, those of an untrained model where there is none."""
        if key not in self.slots:
            return fresh
        slot = self.slots[key]
        return {
            name: one if name in self._shared else one[slot, ...]
            for name, one in self._state.items()
            if name not in KEY_ARRAYS
        }
