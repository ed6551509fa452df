"""Support sets merged: a similarity is a sum over triplets, so triplets are joined and their taus follow the
rule of a matrix.

What no longer fits the budget goes as in a step: the triplets that joined the longest ago, or whose taus add
up to the least, until triplets and objects have room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.hedge import merged_by
from learners.kernels.support_slots import EMPTY
from learners.kernels.tiles import LANES
from learners.merge import Arrays, MergeRule, State, StateMerge, shares_of
from learners.multikernel.config import OmksConfig
from learners.multikernel.support import SupportSet

Key: TypeAlias = tuple[bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Kept:
    """One triplet: its objects' bytes, taus float64 [m rounded up], and when it joined or was taken again."""

    tau: NDArray[np.float64]
    joined: int


Kept: TypeAlias = Mapping[Key, _Kept]


def merge_supports(config: OmksConfig) -> _MergedSupports:
    """The algebra of OMKS and OKS over a support set."""
    rules = {"standing": merged_by(config.hedge), "gamma": MergeRule.OWN, "counts": MergeRule.SUM}
    return _MergedSupports(config, StateMerge(dict, rules))


@dataclass(frozen=True, slots=True)
class _MergedSupports:
    """As `learners.merge.StateMerge`."""

    config: OmksConfig
    merge: StateMerge

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int], summed: bool = False
    ) -> Arrays:
        """As `StateMerge.states`."""
        others = self.merge.states(_others(base), [_others(one) for one in states], updates, summed)
        first, shares = _read(base), shares_of(updates)
        if not any(shares):
            return others | {name: np.array(base[name]) for name in SupportSet.names()}
        if sum(share > 0 for share in shares) == 1:
            only = states[int(np.argmax(shares))]
            return others | {name: np.array(only[name]) for name in SupportSet.names()}
        total = dict(first)
        for state, share in zip(states, shares, strict=True):
            total = _added(total, _read(state), first, 1.0 if summed else share)
        return others | self._written(base, total)

    def rebased(self, current: State, counted: State, merged: State) -> Arrays:
        """As `StateMerge.rebased`."""
        others = self.merge.rebased(_others(current), _others(counted), _others(merged))
        if all(np.array_equal(counted[name], merged[name]) for name in SupportSet.names()):
            return others | {name: np.array(current[name]) for name in SupportSet.names()}
        if all(np.array_equal(counted[name], current[name]) for name in SupportSet.names()):
            return others | {name: np.array(merged[name]) for name in SupportSet.names()}
        return others | self._written(current, _added(_read(current), _read(merged), _read(counted), 1.0))

    def _written(self, like: State, kept: Kept) -> Arrays:
        order = self._by_worth(kept)
        rows, triplets = np.zeros_like(like["rows"]), np.full_like(like["triplets"], EMPTY)
        tau, joined = np.zeros_like(like["tau"]), np.zeros_like(like["joined"])
        slots: dict[bytes, int] = {}
        room = min(rows.shape[0] * LANES, self.config.objects)
        chosen: list[Key] = []
        for key in order[: len(triplets)]:
            fresh = {one for one in key if one not in slots}
            if len(slots) + len(fresh) > room:
                break
            for one in sorted(fresh):
                slots[one] = len(slots)
            chosen.append(key)
        for place, key in enumerate(sorted(chosen, key=lambda one: (kept[one].joined, one))):
            triplets[place] = [slots[one] for one in key]
            tau[place], joined[place] = kept[key].tau, kept[key].joined
        for one, slot in slots.items():
            rows[slot // LANES, :, slot % LANES] = np.frombuffer(one, np.float32)
        return {"rows": rows, "triplets": triplets, "tau": tau, "joined": joined}

    def _by_worth(self, kept: Kept) -> list[Key]:
        if self.config.evict == "oldest":
            return sorted(kept, key=lambda key: (-kept[key].joined, key))
        return sorted(kept, key=lambda key: (-float(kept[key].tau.sum()), key))


def _others(state: State) -> Arrays:
    return {name: one for name, one in state.items() if name not in SupportSet.names()}


def _read(state: State) -> dict[Key, _Kept]:
    rows = state["rows"]
    found: dict[Key, _Kept] = {}
    objects: dict[int, bytes] = {}
    for place in np.flatnonzero(state["triplets"][:, 0] != EMPTY).tolist():
        slots = state["triplets"][place].tolist()
        for slot in slots:
            if slot not in objects:
                objects[slot] = np.ascontiguousarray(rows[slot // LANES, :, slot % LANES]).tobytes()
        key = (objects[slots[0]], objects[slots[1]], objects[slots[2]])
        tau, joined = state["tau"][place].astype(np.float64), int(state["joined"][place])
        before = found.get(key)
        if before is not None:
            tau, joined = tau + before.tau, max(joined, before.joined)
        found[key] = _Kept(tau, joined)
    return found


def _added(total: Mapping[Key, _Kept], state: Kept, base: Kept, share: float) -> dict[Key, _Kept]:
    """total + share (state - base), triplet by triplet; those whose taus are 0 by then are left out."""
    out = dict(total)
    for key in {*state, *base}:
        now, before, sum_ = state.get(key), base.get(key), out.get(key)
        zero = np.zeros_like((now or before).tau)  # type: ignore[union-attr]  # it is of one of them
        change = (now.tau if now else zero) - (before.tau if before else zero)
        if not change.any():
            continue
        tau = (sum_.tau if sum_ else zero) + share * change
        tau = np.maximum(tau, 0.0)
        ages = [one.joined for one in (now, sum_) if one is not None]
        if tau.any():
            out[key] = _Kept(tau, max(ages, default=0))
        else:
            out.pop(key, None)
    return out
