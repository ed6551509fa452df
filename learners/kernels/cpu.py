"""Fix the processor level kernels are compiled for. Imported before numba is.

Kernels are compiled for a stated level and never for "whatever this host has": two hosts of the same level
then run the same machine code, and a state replays to the same bits. The level is fixed through numba's own
environment variables; both are needed, because numba adds the *host's* features to a named CPU when only the
name is given. A value the user has set wins, and is what `CPU_LEVEL` then reports.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Collection

from llvmlite import binding

X86_64_V3 = "x86-64-v3"
GENERIC = "generic"
V3_FEATURES = frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})
"""What the x86-64 psABI adds in level v3, by LLVM's names."""


def best_level(machine: str, features: Collection[str]) -> str:
    """Name the level for a machine: `x86-64-v3` where all its instructions exist, else `generic`."""
    return X86_64_V3 if machine in ("x86_64", "AMD64") and set(features) >= V3_FEATURES else GENERIC


def _fix_level() -> str:
    if "numba" in sys.modules:
        from numba import config

        return _label(config.CPU_NAME, config.CPU_FEATURES)
    host = [name for name, present in binding.get_host_cpu_features().items() if present]
    name = os.environ.setdefault("NUMBA_CPU_NAME", best_level(platform.machine(), host))
    return _label(name, os.environ.setdefault("NUMBA_CPU_FEATURES", ""))


def _label(name: str | None, features: str | None) -> str:
    if name is None or features is None:
        return f"{name or 'host'}+host-features"
    return f"{name},{features}" if features else name


CPU_LEVEL: str = _fix_level()
"""What kernels of this process are compiled for; belongs into every manifest. It says so when numba was
imported first by someone else and compiles for this host."""
