"""The named steps of a learner, and a fuse that ends or freezes the process at one of them.

The product has no hooks: what it calls is wrapped here, in a process that is forked for it (`server.py`).
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from checkpoints.local import Files, Folders, Fs
from checkpoints.publisher import AsyncPublisher
from daemon import dead_letters
from daemon.learn import loop
from daemon.learn.housekeeping import Housekeeper, VersionCleanup
from daemon.learn.state import Progress
from streams.ids import IdWindow
from streams.kafka.source import KafkaSink, KafkaSource
from streams.log.source import LogSink, LogSource
from tests.harness.kill.seams import Seams

ROOT = Path(__file__).resolve().parents[3]
KILLED = 9
STEPS_ON_DISK = "create lock allocate write fsync open_append make sync link unlink remove".split()  # noqa: SIM905
Act = Literal["die", "die late", "freeze"]
LATE_SECONDS = 0.5
FREEZER = """
import sqlite3, sys
root, pid, *logs = sys.argv[1:]
sys.path.insert(0, root)
from tests.harness.signals import freeze
connections = [sqlite3.connect(log, timeout=10, isolation_level=None) for log in logs]
for connection in connections:
    connection.execute("BEGIN IMMEDIATE")
freeze(int(pid))
for connection in connections:
    connection.execute("ROLLBACK")
    connection.close()
"""


class Fuse:
    """Counts named steps; the process ends or freezes at the `nth` passing of `name`, or never (nth = 0).

    `record`: a file that the names are written to. `log`: the path of an embedded log.
    """

    def __init__(self, name: str, nth: int, act: Act, record: str | None, log: str | None = None) -> None:
        self.name, self.nth, self.act, self.record, self.log = name, nth, act, record, log
        self.passed: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        self.passed[name] += 1
        if self.record is not None:
            with open(self.record, "a", encoding="utf-8") as record:
                record.write(f"{name}\n")
        if name == self.name and self.passed[name] == self.nth:
            if self.act == "die late":  # whoever should wait for this step, and does not, gets far meanwhile
                time.sleep(LATE_SECONDS)
            if self.act != "freeze":
                os._exit(KILLED)
            if self.log is not None:
                freeze_while_nobody_writes(os.getpid(), self.log)
            else:  # to this thread: sent to the process, another takes it, and this one runs on for a moment
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self(f"before {name}")
            result = call(*args, **kwargs)
            self(f"after {name}")
            return result

        return wrapped


def freeze_while_nobody_writes(pid: int, log: str) -> None:
    """Freeze a process while none of its threads is writing to the embedded log or to that of its steps.

    Frozen amid a write it would hold a log's lock, and everybody else would wait for it.

    Another process takes the locks, stops it and lets go: none of its threads can begin to write in between.
    """
    logs = [one for one in (log, f"{log}.steps") if Path(one).exists()]
    subprocess.run([sys.executable, "-S", "-c", FREEZER, str(ROOT), str(pid), *logs], check=True)


class FusedDisk:
    """Half of an `Fs`: every step that changes the disk passes the fuse; a write also half done."""

    def __init__(self, real: Files | Folders, fuse: Fuse, open_files: dict[int, str]) -> None:
        self._real, self._fuse, self._open = real, fuse, open_files

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return functools.partial(self._call, name, real) if name in STEPS_ON_DISK else real

    def _call(self, name: str, real: Callable[..., Any], *args: Any) -> Any:
        where = self._open.get(args[0], "?") if isinstance(args[0], int) else kind(args[-1])
        self._fuse(f"before {name} {where}")
        if name == "write":
            real(args[0], args[1], memoryview(args[2])[: len(args[2]) // 2])
            self._fuse(f"half {name} {where}")
        if name == "write" and where in (
            "history",
            "tail",
        ):  # the other half: this file is only ever added to
            result = real(args[0], args[1], memoryview(args[2])[len(args[2]) // 2 :])
        else:
            result = real(*args)
        if name in ("create", "open_append"):
            self._open[result] = where
        self._fuse(f"after {name} {where}")
        return result


def kind(path: Path) -> str:
    """What a path of the store is, without its number and random part."""
    if path.suffix == ".tmp":
        return "temporary"
    if path.name[0].isdigit():
        return "ledger entry" if path.parent.name == "ledger" else "version folder"
    if path.name.startswith("folded-"):
        return "snapshot"
    if path.suffix or path.name in ("versions", "ledger", "tmp"):
        return path.stem.split("-")[0]
    return "root" if (path / "tmp").exists() else "above"


def fused_disk(fuse: Fuse) -> Fs:
    """A disk whose every changing step passes the fuse."""
    open_files: dict[int, str] = {}
    halves = (FusedDisk(real, fuse, open_files) for real in (Files(), Folders()))
    return Fs(*halves)  # type: ignore[arg-type]


def put_fuse_in(fuse: Fuse) -> None:
    """Let every step of this process's learner pass the fuse, and each version be written in its turn."""

    seams = Seams()
    seams.put(AsyncPublisher, "begin", fuse.around("capture", AsyncPublisher.begin))
    seams.write_each_version()
    seams.put_disk(fused_disk(fuse))
    for module, name in ((dead_letters, "send_durably"), (loop, "step")):
        seams.put(module, name, fuse.around(name.replace("_", " "), getattr(module, name)))
    for owner, name in (
        (IdWindow, "admit"),
        (IdWindow, "arrays"),
        (Progress, "advance"),
        (Housekeeper, "published"),
        (VersionCleanup, "_prune"),
    ):
        seams.put(owner, name, fuse.around(f"{owner.__name__} {name}", getattr(owner, name)))
    for source in (LogSource, KafkaSource):
        for name in ("poll", "commit"):
            seams.put(source, name, fuse.around(name, getattr(source, name)))
    for sink in (LogSink, KafkaSink):
        seams.put(sink, "send", fuse.around("send", sink.send))
