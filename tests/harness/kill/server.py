"""Learners forked from a process that has everything loaded: they start in milliseconds.

`python -m tests.harness.kill.server` reads one JSON order per line and answers each with one line, the
order's "number" and: to {"fork": "learn" | "judge" | "fold" | "follow", ...} the new process's id, to
{"wait": id, "seconds": s} its exit code, or null when time is up.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.retention import fold
from daemon.cli import main
from tests.harness.fork_server import load
from tests.harness.kill.joins import put_fuse_in_follower
from tests.harness.kill.points import Fuse, fused_disk, put_fuse_in


def serve() -> None:
    """Obey orders until stdin ends; then nothing that was forked is left."""
    load()
    alive: set[int] = set()
    codes: dict[int, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = codes.get(order["wait"])
            if answer is None:
                answer = wait(order["wait"], order["seconds"])
            if answer is not None:
                codes[order["wait"]] = answer
                alive.discard(order["wait"])
        else:
            answer = os.fork()
            if answer == 0:
                obey(order)
            alive.add(answer)
            codes.pop(answer, None)
        print(json.dumps([order["number"], answer]), flush=True)
    for child in alive:
        os.kill(child, signal.SIGKILL)


def wait(pid: int, seconds: float) -> int | None:
    """Its exit code, once it has ended; None when it does not in time."""
    process = os.pidfd_open(pid)
    try:
        select.select([process], [], [], seconds)
    finally:
        os.close(process)
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def obey(order: dict[str, Any]) -> None:
    """Carry out one order and end the process."""
    code = 1
    try:
        stdin = os.open(os.devnull, os.O_RDONLY)
        said = os.open(order["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for target, source in ((0, stdin), (1, said), (2, said)):
            os.dup2(source, target)
        os.setpgid(0, 0)
        fuse = Fuse(*order["fuse"]) if order["fuse"] else None
        if order["fork"] in ON_THE_LEDGER:
            assert fuse is not None
            ON_THE_LEDGER[order["fork"]](Path(order["path"]), fuse)
            code = 0
        else:
            if order["fork"] == "follow":
                if fuse is not None:
                    put_fuse_in_follower(fuse)
                code = main(["feed", "--follow", "--config", order["path"], *order["arguments"]])
                return
            if fuse is not None:
                put_fuse_in(fuse)
            code = main(["learn", "--config", order["path"], *order["arguments"]])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def fold_ledger(folder: Path, fuse: Fuse) -> None:
    """The ledger folded, all but its newest two entries."""
    store = LocalStore(folder, fused_disk(fuse))
    fold(store, Ledger(store), lambda: [0], every=4, leave=2)


def judge(folder: Path, fuse: Fuse) -> None:
    """One verdict into the ledger."""
    Ledger(LocalStore(folder, fused_disk(fuse))).append({"kind": "KEEP", "version": 0})


ON_THE_LEDGER = {"judge": judge, "fold": fold_ledger}

if __name__ == "__main__":
    serve()
