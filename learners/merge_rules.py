"""How the states of each kind of learner are merged: the rules of its arrays (`learners.merge`), and what
needs more than a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.hedge import HedgeConfig, merged_by
from learners.merge import Arrays, MergeRule, State
from learners.pending import KIND, PAIRS, TAU
from learners.softmax import MEMORY
from learners.soml import SomlTg
from learners.tether import untethered

PENDING = {TAU: MergeRule.OWN, PAIRS: MergeRule.OWN, KIND: MergeRule.OWN}
"""Of a settled state: no step waits, and the kind of matrix is the same for all."""

OF_A_MATRIX = {"W": MergeRule.MEAN, "events": MergeRule.SUM, **PENDING}
OF_AN_AVERAGE = OF_A_MATRIX | {"sums": MergeRule.OWN}
OF_A_DIAGONAL = {"w": MergeRule.MEAN, "updates": MergeRule.SUM, "events": MergeRule.SUM}
OF_DUAL_AVERAGING = {
    "G": MergeRule.SUM,
    "rounds": MergeRule.SUM,
    "violated": MergeRule.SUM,
    "events": MergeRule.SUM,
}
OF_TRUNCATED_GRADIENT = {
    "w": MergeRule.SUM,
    "shrunk": MergeRule.SUM,
    "violations": MergeRule.SUM,
    "events": MergeRule.SUM,
}


def settle(learner: Any) -> None:
    """Have a learner's state hold what it has learned in arrays that may be added up: every pending step is
    added, every shrinking of truncated gradient is done."""
    inner = untethered(learner)
    if isinstance(inner, SomlTg):
        inner.forget(0.0)
    parts: list[Any] = [inner, getattr(inner, "learner", None), getattr(inner, "oasis", None)]
    for part in parts:
        if hasattr(part, "settled"):
            part.settled()


def all_shrunk(base: State, states: Sequence[State], _shares: Sequence[float], merged: Arrays) -> Arrays:
    """Of SOML-TG: every coordinate is shrunk for every violating round, and none of it beyond 0."""
    shrunk = np.full_like(base["shrunk"], int(merged["violations"]))
    return {"shrunk": shrunk, "w": _not_beyond_zero(merged["w"], [base["w"], *(one["w"] for one in states)])}


def all_shrunk_goes_on(current: State, counted: State, merged: State, own: Arrays) -> Arrays:
    """As `all_shrunk`."""
    shrunk = np.full_like(current["shrunk"], int(own["violations"]))
    return {"shrunk": shrunk, "w": _not_beyond_zero(own["w"], [current["w"], merged["w"]])}


def _not_beyond_zero(w: NDArray[Any], among: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """w where one of these is on the same side of 0, else 0: learners that each shrink a coordinate down to 0
    have shrunk it to 0 together, and their sum would be on the other side."""
    sides = [np.sign(one) for one in among]
    return np.where(np.any([side == np.sign(w) for side in sides], axis=0), w, 0.0)


def last_violated(base: State, states: Sequence[State], _shares: Sequence[float], merged: Arrays) -> Arrays:
    """Of SOML-DA, the last violating round: as long ago as that of the learner with the latest one."""
    after = [
        int(one["rounds"]) - int(one["violated"])
        for one in states
        if int(one["violated"]) > int(base["violated"])
    ]
    gap = min(after, default=int(merged["rounds"]) - int(base["violated"]))
    return {"violated": np.array(max(0, int(merged["rounds"]) - max(0, gap)), np.int64)}


def violated_goes_on(current: State, counted: State, merged: State, own: Arrays) -> Arrays:
    """Of SOML-DA, of a learner that goes on: its own last violating round, or else that of all."""
    violated = int(current["violated"]) > int(counted["violated"])
    gap = int(current["rounds"]) - int(current["violated"]) if violated else int(own["rounds"])
    of_all = int(merged["rounds"]) - int(merged["violated"]) + int(current["rounds"]) - int(counted["rounds"])
    gap = max(0, min(gap, of_all))
    return {"violated": np.array(max(0, int(own["rounds"]) - gap), np.int64)}


def averaged_sums(base: State, states: Sequence[State], _shares: Sequence[float], merged: Arrays) -> Arrays:
    """Of a running average: U such that the average is that over all events of all learners."""
    every = [base, *states]
    totals = [_whole(one) for one in every]
    total = totals[0] + sum((one - totals[0] for one in totals[1:]), np.zeros_like(totals[0]))
    return {"sums": _of_whole(merged, total)}


def averaged_goes_on(current: State, counted: State, merged: State, own: Arrays) -> Arrays:
    """Of a running average of a learner that goes on."""
    return {"sums": _of_whole(own, _whole(current) + (_whole(merged) - _whole(counted)))}


def _whole(state: State) -> NDArray[np.float64]:
    """T times the average: the sum of W after each event."""
    return int(state["events"]) * state["W"].astype(np.float64) - state["sums"].astype(np.float64)


def _of_whole(state: State, total: NDArray[np.float64]) -> NDArray[np.float32]:
    """U = T W - sum of W after each event."""
    return np.asarray(int(state["events"]) * state["W"].astype(np.float64) - total, np.float32)


OF_A_SOFTMAX = {
    "A": MergeRule.MEAN,
    "first": MergeRule.MOMENT,
    "second": MergeRule.MOMENT,
    **dict.fromkeys(MEMORY, MergeRule.OWN),
    "pairs": MergeRule.SUM,
    "steps": MergeRule.SUM,
}
"""Adam's means are convex mixtures of gradients, and so is their mean."""


def softmax_memory(base: State, states: Sequence[State], _shares: Sequence[float], merged: Arrays) -> Arrays:
    """The newest pairs of all learners: the base's, then what each kept since, in turns by age."""
    kept, before, total = len(base["weights"]), int(base["pairs"]), int(merged["pairs"])
    news = [(at, int(one["pairs"])) for at, one in enumerate(states)]
    recent = [
        (last - number, at, number) for at, last in news for number in range(max(before, last - kept), last)
    ]
    recent.sort(reverse=True)  # by age, then by learner: the oldest first
    places: list[tuple[int | None, int]] = [(None, n) for n in range(max(0, before - kept), before)]
    places += [(at, number) for _, at, number in recent]
    places = places[-min(kept, total) :] if total else []
    out = {name: np.zeros_like(base[name]) for name in MEMORY}
    for back, (at, number) in enumerate(reversed(places), start=1):
        source = base if at is None else states[at]
        for name, rows in out.items():
            rows[(total - back) % kept] = source[name][number % kept]
    return out


def softmax_goes_on(current: State, counted: State, merged: State, own: Arrays) -> Arrays:
    """A learner that goes on keeps its own pairs, and counts these and its steps alone."""
    return {name: np.array(current[name]) for name in ("pairs", "steps")}


def of_maps(hedge: HedgeConfig) -> dict[str, MergeRule]:
    """Of OMKS over maps: a matrix for each block, and their standing."""
    return {"W": MergeRule.MEAN, "standing": merged_by(hedge), "events": MergeRule.SUM, **PENDING}


OF_A_CORRECTION = dict.fromkeys(("start", "U", "V", "gram", "counts"), MergeRule.OWN)
"""What `corrections` and `correction_goes_on` then put in their place."""

NOTHING = 1e-7
"""A singular value below this part of the largest is rounding."""


def corrections(base: State, states: Sequence[State], shares: Sequence[float], merged: Arrays) -> Arrays:
    """Of LORETA, as `StateMerge.also`: the mean of U_k V_k^T by `shares`, brought back to the nearest matrix
    of rank r by a decomposition of its small core (Eckart and Young, 1936), also where other learners take
    the sum of all steps; that of one learner where only one moved, to the bit; the base where none did."""
    moved = [(one, share) for one, share in zip(states, shares, strict=True) if share]
    if len(moved) < 2:
        return {}
    updates = int(base["counts"][1]) + sum(int(one["counts"][1] - base["counts"][1]) for one in states)
    return _nearest(moved, updates)


def correction_goes_on(current: State, counted: State, merged: State, own: Arrays) -> Arrays:
    """current + merged - counted, as `StateMerge.goes_on`."""
    if np.array_equal(counted["counts"], merged["counts"]) and np.array_equal(counted["U"], merged["U"]):
        return {}
    if np.array_equal(current["counts"], counted["counts"]) and np.array_equal(current["U"], counted["U"]):
        return {name: np.array(merged[name]) for name in OF_A_CORRECTION}
    updates = max(0, int(current["counts"][1] + merged["counts"][1] - counted["counts"][1]))
    return _nearest([(current, 1.0), (merged, 1.0), (counted, -1.0)], updates)


def _nearest(parts: Sequence[tuple[State, float]], updates: int) -> Arrays:
    used = [(one, by, int(one["counts"][0])) for one, by in parts]
    U = np.concatenate([by * one["U"][:k].astype(np.float64) for one, by, k in used])
    V = np.concatenate([one["V"][:k].astype(np.float64) for one, _, k in used])
    rank, dim = parts[0][0]["U"].shape
    out_U, out_V = np.zeros((rank, dim), np.float32), np.zeros((rank, dim), np.float32)
    kept = 0
    if len(U):
        left, R = np.linalg.qr(U.T)
        right, S = np.linalg.qr(V.T)
        u, sizes, v = np.linalg.svd(R @ S.T)
        kept = min(rank, updates, int((sizes > NOTHING * sizes[0]).sum()))
        roots = np.sqrt(sizes[:kept])
        out_U[:kept] = ((left @ u[:, :kept]) * roots).T
        out_V[:kept] = ((right @ v[:kept].T) * roots).T
    gram = np.zeros((2, rank, rank))
    for place, rows in zip(gram, (out_U, out_V), strict=True):
        place[...] = rows.astype(np.float64) @ rows.T.astype(np.float64)
    return {"U": out_U, "V": out_V, "gram": gram, "counts": np.array([kept, updates], np.int64)}
