"""Which sparse rows every step refuses, told without a step; of dense ones: `omks_blocks.fault_dense`."""

from __future__ import annotations

from typing import Any

from learners.kernels.checks import NONE, scan_sparse
from learners.kernels.compile import CSR, Csr, kernel

from numba import types  # isort: skip


@kernel(types.void(types.int64, CSR, types.uint8[::1]))
def fault_sparse(dim: int, rows: Csr, reason: Any) -> None:
    """reason[row], where it is NONE, becomes the fault of the CSR row in `dim` columns."""
    for row in range(len(rows[0]) - 1):
        if reason[row] == NONE:
            reason[row], _ = scan_sparse(dim, rows, row)
