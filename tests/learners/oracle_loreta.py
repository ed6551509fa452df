"""LORETA-1 on W_0 + U V^T (Shalit, Weinshall, Chechik, JMLR 13 (2012), section 4), with a correction that
begins at rank 0."""

from __future__ import annotations

import numpy as np

from .oracle_step import Doubles, Step, hinge, passive_aggressive


class LoretaOracle:
    """Steps of OASIS on W_0 + A B^T. Below rank r a new direction is a new column; a vector that lies in the
    columns of its factor changes the other factor alone; else the tangent step and the retraction by M.

    Pseudo-inverses by SVD; the retraction written out with matrices, as in the paper's Theorem 1.
    """

    def __init__(self, dim: int, C: float = 0.1, rank: int = 16, start: Doubles | None = None) -> None:
        self.start = np.eye(dim) if start is None else start
        self._C, self._rank = C, rank
        self.A, self.B = np.zeros((dim, 0)), np.zeros((dim, 0))

    @property
    def W(self) -> Doubles:
        return np.asarray(self.start + self.A @ self.B.T)

    def step(self, q: Doubles, c: Doubles, s: Doubles, weight: float = 1.0) -> Step:
        e = c - s
        margin = float(q @ self.W @ e)
        loss = hinge(margin)
        tau = passive_aggressive(loss, float((q @ q) * (e @ e)), weight * self._C)
        if tau > 0:
            self._take(tau, q, e)
        return Step(margin, loss, tau)

    def _take(self, tau: float, q: Doubles, e: Doubles) -> None:
        A, B = self.A, self.B
        A_inv, B_inv = np.linalg.pinv(A), np.linalg.pinv(B)
        q_out, e_out = q - A @ (A_inv @ q), e - B @ (B_inv @ e)
        q_new, e_new = q_out @ q_out > 1e-6 * (q @ q), e_out @ e_out > 1e-6 * (e @ e)
        if q_new and e_new and A.shape[1] < self._rank:
            balance = np.sqrt(tau * np.sqrt((e @ e) / (q @ q)))
            self.A = np.column_stack([A, balance * q])
            self.B = np.column_stack([B, tau / balance * e])
        elif not q_new:
            self.B = B + tau * np.outer(e, A_inv @ q)
        elif not e_new:
            self.A = A + tau * np.outer(q, B_inv @ e)
        else:
            shared = abs(float((A_inv @ q) @ (B_inv @ e)))
            eta = min(tau, 1 / shared) if shared > 0 else tau
            gradient = eta * np.outer(q, e)
            eye = np.eye(A.shape[1])
            M = A_inv @ gradient @ B_inv.T
            out_A, out_B = np.outer(q_out, e) @ B_inv.T * eta, np.outer(e_out, q) @ A_inv.T * eta
            self.A = A @ (eye + M / 2 - M @ M / 8) + out_A @ (eye - M / 2)
            self.B = B @ (eye + M.T / 2 - M.T @ M.T / 8) + out_B @ (eye - M.T / 2)

    def score(self, q: Doubles, p: Doubles) -> float:
        return float(q @ self.W @ p)
