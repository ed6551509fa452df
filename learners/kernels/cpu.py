"""The processor level that kernels are compiled for.

Kernels are compiled for a stated level and never for "whatever this host has": two hosts of the same level
then run the same machine code, and a state replays to the same bits. `NUMBA_CPU_NAME` and
`NUMBA_CPU_FEATURES`, where a user has set them, win, and are what `CPU_LEVEL` then reports. Nothing of the
process is changed: `learners.kernels.compile` keeps a target of its own for the kernels.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection

from llvmlite import binding

X86_64_V3 = "x86-64-v3"
GENERIC = "generic"
V3_FEATURES = frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})
"""What the x86-64 psABI adds in level v3, by LLVM's names."""


def best_level(machine: str, features: Collection[str]) -> str:
    """Name the level for a machine: `x86-64-v3` where all its instructions exist, else `generic`."""
    return X86_64_V3 if machine in ("x86_64", "AMD64") and set(features) >= V3_FEATURES else GENERIC


def _chosen() -> tuple[str, str]:
    host = [name for name, present in binding.get_host_cpu_features().items() if present]
    name = os.environ.get("NUMBA_CPU_NAME") or best_level(platform.machine(), host)
    return name, os.environ.get("NUMBA_CPU_FEATURES") or ""


CPU_NAME, CPU_FEATURES = _chosen()
"""As LLVM takes them. The features are stated even where there are none: numba adds the *host's* to a named
processor when only the name is given."""

CPU_LEVEL: str = f"{CPU_NAME},{CPU_FEATURES}" if CPU_FEATURES else CPU_NAME
"""What kernels are compiled for; belongs into every manifest."""
