"""Several learners that began alike and learned from different events, as one; and one of them that goes on
from what they are together.

`base` is the state that all began from, x_k an array of learner k, u_k the updates it took since. Each array
of a state follows one of these rules:

    MEAN    base + sum_k w_k (x_k - base), w_k = u_k / sum u: what passive-aggressive steps move;
            or all w_k = 1, the sum of all steps
    SUM     base + sum_k (x_k - base): sums of gradients, and counts
    LOG     as SUM, of logarithms: the weights that Hedge keeps are multiplied
    FADING  as the mean, never the sum: what forgets. Each learner is drawn to the same place; the sum of
            their ways there ends beyond it, and farther from it after each merge
    WEIGHT  as FADING, of weights, of which none falls below 0
    MOMENT  as MEAN, and who goes on keeps its own: running means of gradients
    OWN     that of the learner with the most updates, and who goes on keeps its own

The mean is that of averaged rankers: the hinge loss is convex in W, so on any triplets the loss of the mean
is at most the mean of the losses (Chechik et al., JMLR 11 (2010), section 5.4). The sum of steps keeps what
each learned in full; it is what one learner would have, as far as steps do not depend on what the others
learned, so it is for short periods: a mistake that all correct is corrected once by each. The same holds for
sums of subgradients. With one learner that moved, the result is that learner's, bit for bit; with none, it is
the base.

Who has gone on from x_k to `current`, while the others' work became `merged`, continues with
current + (merged - x_k): its own work since, on top of everybody's.

Sums are taken in float64, learner by learner in the order given, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.block import row_blocks
from learners.errors import StateError

State: TypeAlias = Mapping[str, NDArray[Any]]
Arrays: TypeAlias = dict[str, NDArray[Any]]


class MergeRule(Enum):
    """How an array is merged; see the module."""

    MEAN = auto()
    SUM = auto()
    LOG = auto()
    FADING = auto()
    WEIGHT = auto()
    MOMENT = auto()
    OWN = auto()


MEANS = (MergeRule.MEAN, MergeRule.MOMENT, MergeRule.FADING, MergeRule.WEIGHT)
"""Rules by which learners weigh by their updates."""


@dataclass(frozen=True, slots=True)
class StateMerge:
    """The algebra of one kind of learner, with its settings.

    settled: a saved state as arrays that may be added up, such as W with the steps that wait for it. rules:
    of each array; one that has no rule is an error, so that nothing is merged by accident. also: (base,
    states, shares, merged arrays) -> arrays that need more than their own kind. goes_on: likewise, (current,
    counted, merged, arrays of who goes on).
    """

    settled: Callable[[State], Arrays]
    rules: Mapping[str, MergeRule]
    also: Callable[[State, Sequence[State], Sequence[float], Arrays], Arrays] = field(
        default=lambda _base, _states, _shares, _merged: {}
    )
    goes_on: Callable[[State, State, State, Arrays], Arrays] = field(
        default=lambda _current, _counted, _merged, _own: {}
    )

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int], summed: bool = False
    ) -> Arrays:
        """What learners that began from `base` are together. summed: as the sum of their steps where it would
        be the mean. Raises StateError for states of another kind or shape."""
        first, each = self.settled(base), [self.settled(state) for state in states]
        self._check(first, each)
        shares = shares_of(updates)
        rules = {
            name: MergeRule.SUM if summed and rule is MergeRule.MEAN else rule
            for name, rule in self.rules.items()
        }
        merged = {
            name: merged_array(rules.get(name), first[name], [one[name] for one in each], shares)
            for name in first
        }
        return merged | self.also(first, each, shares, merged)

    def rebased(self, current: State, counted: State, merged: State) -> Arrays:
        """What a learner goes on with: `current`, with `merged` in the place of `counted`, what that holds of
        the learner. Raises StateError as `states`."""
        now, known, all_of_it = self.settled(current), self.settled(counted), self.settled(merged)
        self._check(now, [known, all_of_it])
        own = {name: _rebased(self.rules.get(name), now[name], known[name], all_of_it[name]) for name in now}
        return own | self.goes_on(now, known, all_of_it, own)

    def _check(self, first: State, others: Sequence[State]) -> None:
        for other in others:
            if shapes_of(first) != shapes_of(other):
                raise StateError(
                    f"states to merge have other arrays or shapes: {sorted(first)}, {sorted(other)}"
                )
        unknown = sorted(set(first) - set(self.rules))
        if unknown:
            raise StateError(f"how the arrays {', '.join(unknown)} are merged is not known")


def shapes_of(state: State) -> dict[str, Any]:
    """The shape and type of each array."""
    return {name: (one.shape, one.dtype) for name, one in state.items()}


def shares_of(updates: Sequence[int]) -> list[float]:
    """w_k; all 0 where nobody moved."""
    total = sum(updates)
    return [count / total if total else 0.0 for count in updates]


def merged_array(
    rule: MergeRule | None, base: NDArray[Any], states: Sequence[NDArray[Any]], shares: Sequence[float]
) -> NDArray[Any]:
    """One array of a state merged, as a new one; shares: w_k. Arrays of one shape and type."""
    if rule is MergeRule.OWN:
        return np.array(states[int(np.argmax(shares))] if any(shares) else base)
    factors = shares if rule in MEANS else [1.0] * len(states)
    moved = [
        (one, by) for one, by in zip(states, factors, strict=True) if by and not np.array_equal(one, base)
    ]
    if not moved:
        return np.array(base)
    if len(moved) == 1 and moved[0][1] == 1.0:
        return np.array(moved[0][0])
    if base.dtype.kind == "i":
        whole = base + sum(one - base for one, _ in moved)
        return _counts(whole, base)
    out, rows = np.empty_like(base), base.reshape(len(base) if base.ndim else 1, -1)
    for part in row_blocks(len(rows), rows.shape[1]):
        first = rows[part].astype(np.float64)
        total = first.copy()
        with np.errstate(over="ignore" if rule is MergeRule.LOG else "warn"):  # see `_within`
            for one, by in moved:
                total += by * (one.reshape(rows.shape)[part].astype(np.float64) - first)
        out.reshape(rows.shape)[part] = _within(rule, total)
    return out


def _rebased(
    rule: MergeRule | None, current: NDArray[Any], counted: NDArray[Any], merged: NDArray[Any]
) -> NDArray[Any]:
    if rule in (MergeRule.OWN, MergeRule.MOMENT) or np.array_equal(counted, merged):
        return np.array(current)
    if np.array_equal(current, counted):
        return np.array(merged)
    if current.dtype.kind == "i":
        return _counts(current + (merged - counted), current)
    out, rows = np.empty_like(current), current.reshape(len(current) if current.ndim else 1, -1)
    for part in row_blocks(len(rows), rows.shape[1]):
        now, known, of_all = (
            one.reshape(rows.shape)[part].astype(np.float64) for one in (current, counted, merged)
        )
        out.reshape(rows.shape)[part] = _within(rule, now + (of_all - known))
    return out


def _counts(whole: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Counts as they are kept. None falls below 0: where a model was given up and begun again meanwhile, it
    has counted less than before."""
    return np.asarray(np.maximum(whole, 0), like.dtype)


def _within(rule: MergeRule | None, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of weights of 0 stay the lowest number there is, and weights 0 or above."""
    if rule is MergeRule.WEIGHT:
        return np.maximum(values, 0.0)
    return np.maximum(values, -np.finfo(np.float64).max) if rule is MergeRule.LOG else values
