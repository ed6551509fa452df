"""Online multiple kernel similarity: m learners side by side and weights for their sum (Xia, Hoi, Jin, Zhao,
TPAMI 36 (2014), algorithm 2). The m learners are OKS on m kernels, or OASIS on m explicit maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .oracle_combination import Combination
from .oracle_oasis import OasisOracle
from .oracle_oks import Triple, triple
from .oracle_step import Doubles, Oracle, Step, hinge

Phi = Callable[[Doubles], Doubles]

ROUNDING = 1e-6
"""Margins below it may have another sign in float32."""


class OmksOracle:
    """f = sum_i theta_i S_i; every S_i takes its own step, then theta learns from the margins before it.

    views: the columns [start, stop) that each learner looks at, or None for all. A learner sleeps when its
    view of the query, of the clicked or of the skipped one is missing, that is all zero: it takes no step
    then, and the margin of f is that of those awake, their theta normalised. tau: the largest of all. idle:
    whether theta also learns from an event in which nobody steps.

    budget: of OKS members, which triplets they keep; None for all.

    tied: of each event, whether a margin was so near 0 that rounding decides what z_i is, as that of a cosine
    is where c and s lie in one direction.
    """

    def __init__(
        self,
        members: Sequence[Oracle],
        combination: Combination,
        views: Sequence[tuple[int, int]] | None = None,
        idle: bool = True,
        budget: Budget | None = None,
    ) -> None:
        self.members, self.combination, self._views = members, combination, views
        self._idle, self._budget = idle, budget
        self.wrong: list[list[int]] = []
        self.votes: list[bool] = []
        self.tied: list[bool] = []

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        margins = np.array([one.score(q, c) - one.score(q, s) for one in self.members])
        awake = self._awake(q, c, s)
        theta = self.combination.theta
        z = ((margins <= 0) & awake).astype(float)
        self.wrong.append(z.astype(int).tolist())
        self.votes.append(float(theta @ z) >= 0.5)
        margin = float((theta * awake) @ margins) / ((theta * awake).sum() or 1.0)
        self.tied.append(bool(np.any(awake & (np.abs(margins) < ROUNDING) & self._parts(c, s))))
        if weight == 0:
            return Step(margin, hinge(margin), 0.0)
        taus = [one.step(q, c, s, weight).tau for one, on in zip(self.members, awake, strict=True) if on]
        largest = max(taus, default=0.0)
        if self._idle or largest > 0:
            self.combination.update(margins, awake)
        if self._budget and largest > 0:
            for gone in self._budget.join(triple(q, c, s), sum(taus)):
                for one in self.members:
                    one.forget(gone)  # type: ignore[attr-defined]
        return Step(margin, hinge(margin), largest)

    def score(self, q: Doubles, p: Doubles) -> float:
        theta = self.combination.theta
        return float(sum(w * one.score(q, p) for w, one in zip(theta, self.members, strict=True)))

    def _awake(self, *event: Doubles) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if self._views is None:
            return np.ones(len(self.members), bool)
        return np.array([all(np.any(x[start:stop]) for x in event) for start, stop in self._views])

    def _parts(self, c: Doubles, s: Doubles) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Where c and s are not the same: equal ones tie in any arithmetic."""
        views = self._views or [(0, len(c))] * len(self.members)
        return np.array([bool(np.any(c[start:stop] != s[start:stop])) for start, stop in views])


class Budget:
    """At most so many triplets, of at most so many distinct objects.

    rule: who goes where a new one finds no room: "oldest", which joined or came again the longest ago;
    "smallest", whose taus add up to the least, the older of equals. One that comes again is not kept twice.
    """

    def __init__(self, triplets: int, objects: int, rule: str) -> None:
        self.kept: dict[Triple, float] = {}  # from the oldest to the newest
        self._triplets, self._objects, self._rule = triplets, objects, rule

    def join(self, new: Triple, tau: float) -> list[Triple]:
        """Those that go for a triplet that took steps of this sum."""
        before, gone = self.kept.pop(new, 0.0), []
        while before == 0 and self._full(new):
            sizes = list(self.kept.values()) if self._rule == "smallest" else [0.0] * len(self.kept)
            gone.append(list(self.kept)[int(np.argmin(sizes))])
            del self.kept[gone[-1]]
        self.kept[new] = before + tau
        return gone

    def _full(self, new: Triple) -> bool:
        objects = {one for kept in (*self.kept, new) for one in kept}
        return len(self.kept) == self._triplets or len(objects) > self._objects


class MappedOasisOracle:
    """OASIS on phi(x): OKS on the kernel phi(x)^T phi(y), without a support set."""

    def __init__(self, phi: Phi, dim: int, C: float = 0.1) -> None:
        self._phi, self.oasis = phi, OasisOracle(dim, C)

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        return self.oasis.step(self._phi(q), self._phi(c), self._phi(s), weight)

    def score(self, q: Doubles, p: Doubles) -> float:
        return self.oasis.score(self._phi(q), self._phi(p))
