"""Online kernel similarity (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), equations (17) to (19)).

Every triplet with tau > 0 is kept until it is told to be forgotten, and every kernel value computed anew: no
cache.
"""

from __future__ import annotations

from typing import TypeAlias

from .oracle_step import Doubles, Kernel, Step, hinge, passive_aggressive

Triple: TypeAlias = tuple[bytes, bytes, bytes]
"""Query, clicked and skipped by their numbers: two objects are one where all of them are equal."""


def triple(q: Doubles, c: Doubles, s: Doubles) -> Triple:
    """By its numbers; -0 is 0."""
    return (q + 0.0).tobytes(), (c + 0.0).tobytes(), (s + 0.0).tobytes()


class OksOracle:
    """S(q, p) = k(q, p) + sum_l tau_l k(q, q_l) (k(c_l, p) - k(s_l, p)).

    tau = min(C, l / (k(q, q) (k(c, c) - 2 k(c, s) + k(s, s)))).
    """

    def __init__(self, kernel: Kernel, C: float = 0.1) -> None:
        self.support: dict[Triple, tuple[float, Doubles, Doubles, Doubles]] = {}
        self._k, self._C = kernel, C

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        k = self._k
        margin = self.score(q, c) - self.score(q, s)
        loss = hinge(margin)
        norm = k(q, q) * (k(c, c) - 2 * k(c, s) + k(s, s))
        tau = passive_aggressive(loss, norm, weight * self._C)
        if tau > 0:
            before = self.support.get(triple(q, c, s), (0.0,))[0]
            self.support[triple(q, c, s)] = before + tau, q.copy(), c.copy(), s.copy()
        return Step(margin, loss, tau)

    def forget(self, gone: Triple) -> None:
        """Keep a triplet no longer."""
        self.support.pop(gone, None)

    def score(self, q: Doubles, p: Doubles) -> float:
        k = self._k
        kept = (tau * k(q, query) * (k(c, p) - k(s, p)) for tau, query, c, s in self.support.values())
        return k(q, p) + sum(kept)
