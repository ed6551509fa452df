"""A small disk that a test fills: a real tmpfs where mounting is allowed, else a limit on file sizes."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.kill.learners import Learner

SIZE = 4 << 20


class SmallDisk:
    """A folder on a file system of `SIZE` bytes."""

    stand_in = False

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self, learner: Learner | None) -> None:
        """Leave no byte free."""
        with open(self._filler, "ab", buffering=0) as file:
            for size in (1 << 16, 1 << 10, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self, learner: Learner | None) -> None:
        """Make space again."""
        self._filler.unlink()


class LimitedProcess(SmallDisk):
    """A stand-in: the learner may not make any file grow. It is not a full disk: nothing else is refused."""

    stand_in = True

    def fill(self, learner: Learner | None) -> None:
        self._limit(learner, 0)

    def free(self, learner: Learner | None) -> None:
        self._limit(learner, resource.RLIM_INFINITY)

    def _limit(self, learner: Learner, size: int) -> None:
        resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """A small file system at `folder`, or the stand-in, which a warning tells."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        warnings.warn("NO REAL FULL DISK WAS TRIED: mounting is not allowed here", stacklevel=3)
        yield LimitedProcess(folder)
        return
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
