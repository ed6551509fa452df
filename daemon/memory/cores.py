"""How many cores this process may use, and the pools of threads that libraries make by them.

A container of one core on a machine of sixty-four sees all of them: a pool of a thread for each is throttled
by the kernel as soon as it works, and costs memory and a start each.
"""

from __future__ import annotations

import math
import os
from collections.abc import MutableMapping
from pathlib import Path

from daemon.memory.groups import V2, lines_of, number_in, own_groups

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Roles and workers compute in one thread each, so that bits do not depend on cores; the last one is that of
Arrow's pool for work too."""
READ_THREADS = 2
"""Of Arrow: one file is read at a time, a piece ahead."""


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that this process may run on, at most those that its control groups let it fill, rounded up."""
    bounds = [float(len(os.sched_getaffinity(0)))]
    for group in own_groups(root, "cpu"):
        if group.kind == V2:
            quota, _, period = next(iter(lines_of(group.files / "cpu.max")), "max").partition(" ")
            filled, of = (int(one) if one.isdecimal() else 0 for one in (quota, period))
        else:
            filled, of = (number_in(group.files / f"cpu.cfs_{one}_us") or 0 for one in ("quota", "period"))
        if filled > 0 and of > 0:
            bounds.append(filled / of)
    return max(1, math.ceil(min(bounds)))


def limit_pools(environment: MutableMapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Have libraries that are loaded from now on, here and in children, make no more threads than are of use.

    What a user has set stays as it is.
    """
    sizes = dict.fromkeys(ONE_THREAD, 1) | {"ARROW_IO_THREADS": READ_THREADS}
    sizes["RAYON_NUM_THREADS"] = usable_cores(root)  # tokenizers
    for name, size in sizes.items():
        environment.setdefault(name, str(size))
