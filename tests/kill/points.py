"""A learner that dies (`os._exit`) at one named step, run in a fork of a process that has everything loaded.

`python -m tests.kill.points` reads one JSON order per line, runs it in a fork, and answers with its exit
code. The product has no hooks: what it calls is wrapped here, in the fork alone.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn.preprocessing  # noqa: F401 - what the forks would otherwise each import

from checkpoints.fs import Files, Folders, Fs
from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.publisher import AsyncPublisher
from daemon.config import load_config
from daemon.learn import crew, inputs, role
from daemon.learn.acknowledge import Acknowledger
from daemon.learn.options import LearnOptions
from daemon.learn.progress import Progress
from learners.oasis import Oasis
from streams.log.sink import LogSink
from streams.log.source import LogSource

KILLED = 9
STEPS_ON_DISK = "create lock allocate write fsync open_append make sync link unlink remove".split()  # noqa: SIM905


class Fuse:
    """Counts named steps; the process ends at the `nth` passing of `name`, or never (nth = 0)."""

    def __init__(self, name: str, nth: int, record: str | None) -> None:
        self.name, self.nth, self.record = name, nth, record
        self.passed: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        self.passed[name] += 1
        if self.record is not None:
            with open(self.record, "a", encoding="utf-8") as record:
                record.write(f"{name}\n")
        if name == self.name and self.passed[name] == self.nth:
            os._exit(KILLED)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self(f"before {name}")
            result = call(*args, **kwargs)
            self(f"after {name}")
            return result

        return wrapped


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
        if name == "write" and where == "history":  # the other half: this file is only ever added to
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
    if path.suffix or path.name in ("versions", "ledger", "tmp"):
        return path.stem.split("-")[0]
    return "root" if (path / "tmp").exists() else "above"


def learn(config: Path, fuse: Fuse) -> int:
    """The learn role up to the end of the stream, every version written before the next event."""
    open_files: dict[int, str] = {}
    fs = Fs(
        FusedDisk(Files(), fuse, open_files),  # type: ignore[arg-type]
        FusedDisk(Folders(), fuse, open_files),  # type: ignore[arg-type]
    )

    def begin_and_wait(publisher: AsyncPublisher, *args: Any) -> bool:
        # Else the cadence would skip versions by luck, and with them steps that are to be reached.
        began = begin(publisher, *args)
        if publisher._thread is not None:
            publisher._thread.join()
        return began

    begin = fuse.around("capture", AsyncPublisher.begin)
    AsyncPublisher.begin = begin_and_wait  # type: ignore[method-assign]
    inputs.LocalStore = functools.partial(LocalStore, fs=fs)  # type: ignore[misc,assignment]
    crew.AsyncPublisher = functools.partial(AsyncPublisher, copy_below=0)  # type: ignore[misc,assignment]
    role.send_durably = fuse.around("dead letters", role.send_durably)
    for owner, name in (
        (Oasis, "learn_many"),
        (Progress, "advance"),
        (LogSink, "send"),
        (LogSource, "commit"),
        (Acknowledger, "published"),
    ):
        setattr(owner, name, fuse.around(name, getattr(owner, name)))
    return role.run(load_config(config), LearnOptions(exit_when_caught_up=True))


def judge(folder: Path, fuse: Fuse) -> int:
    """One verdict into the ledger."""
    open_files: dict[int, str] = {}
    halves = (FusedDisk(real, fuse, open_files) for real in (Files(), Folders()))
    Ledger(LocalStore(folder, Fs(*halves))).append({"kind": "KEEP", "version": 0})  # type: ignore[arg-type]
    return 0


def serve() -> None:
    """Orders {what, path, name, nth, record, stderr} from stdin, exit codes to stdout."""
    Oasis.warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            obey(order)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def obey(order: dict[str, Any]) -> None:
    """Carry out one order and end the process."""
    code = 1
    try:
        said = os.open(order["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        fuse = Fuse(order["name"], order["nth"], order["record"])
        code = {"learn": learn, "judge": judge}[order["what"]](Path(order["path"]), fuse)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
