"""Online kernel similarity (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), equations (17) to (19)).

Every triplet with tau > 0 is kept for ever and every kernel value computed anew: no budget, no cache.
"""

from __future__ import annotations

from .oracle_step import Doubles, Kernel, Step, hinge, passive_aggressive


class OksOracle:
    """S(q, p) = k(q, p) + sum_l tau_l k(q, q_l) (k(c_l, p) - k(s_l, p)).

    tau = min(C, l / (k(q, q) (k(c, c) - 2 k(c, s) + k(s, s)))).
    """

    def __init__(self, kernel: Kernel, C: float = 0.1) -> None:
        self.support: list[tuple[float, Doubles, Doubles, Doubles]] = []
        self._k, self._C = kernel, C

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        k = self._k
        margin = self.score(q, c) - self.score(q, s)
        loss = hinge(margin)
        norm = k(q, q) * (k(c, c) - 2 * k(c, s) + k(s, s))
        tau = passive_aggressive(loss, norm, weight * self._C)
        if tau > 0:
            self.support.append((tau, q.copy(), c.copy(), s.copy()))
        return Step(margin, loss, tau)

    def score(self, q: Doubles, p: Doubles) -> float:
        k = self._k
        kept = (tau * k(q, query) * (k(c, p) - k(s, p)) for tau, query, c, s in self.support)
        return k(q, p) + sum(kept)
