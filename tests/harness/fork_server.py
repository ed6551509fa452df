"""A process that has the product loaded, and forks `tripletd`: `python -m tests.harness.fork_server SOCKET`.

A role spends most of its start on imports. What is forked here has them behind it, and differs from a process
of `python -m daemon` in nothing else: arguments, environment, folder, descriptors, signals, process group and
parent are those that were asked for. The roles of an `up` that is forked are forked, too. `forked.py` is the
client.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import traceback
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NoReturn

LOADED = (
    "sklearn.preprocessing",
    "river.drift",
    "scipy.sparse.linalg",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
    "encodings.idna",
    "encodings.utf_8_sig",
    "kafka",
    "streams.kafka.source",
    "streams.kafka.preflight",
    "streams.open",
    "streams.ids",
    "streams.compiled.reading",
    "streams.compiled.kafka_records",
    "daemon.cli",
    "daemon.learn.start",
    "daemon.validate.role",
    "daemon.serve.start",
    "daemon.follow.role",
    "daemon.up.supervisor",
)
ABOVE = 200
"""Descriptors of the server lie above; those that a process asks for, below."""
LENGTH = struct.Struct("!I")
MOST_DESCRIPTORS = 16


def load() -> None:
    """Have in this process whatever a role needs before it does anything, out of the reach of the garbage
    collector: it would touch every object, and so copy it into each process that is forked."""
    for name in LOADED:
        importlib.import_module(name)
    from threadpoolctl import ThreadpoolController

    from daemon.cli import command_line
    from daemon.learn.compatible import package_versions
    from learners.kernels.compile import load_all
    from streams.ids import IdWindow

    _read_options(command_line())
    package_versions()
    ThreadpoolController()  # it looks for the libraries anew in each process, and remembers where they lie
    IdWindow(1)
    load_all()
    gc.collect()
    gc.freeze()


def _read_options(command: Any) -> None:
    """Have made what reads each option of a command, and of all commands below it."""
    for parameter in command.params:
        if hasattr(parameter, "get_runtime_param"):
            parameter.get_runtime_param()
    for below in getattr(command, "commands", {}).values():
        _read_options(below)


def main() -> int:
    """Obey the orders that come through a socket until it is closed."""
    load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; what they start is theirs to end
    given = int(sys.argv[1])
    orders = socket.socket(fileno=fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, ABOVE))
    os.close(given)
    obey(orders)
    return 0


def obey(orders: socket.socket) -> None:
    """Fork what is ordered until the socket is closed."""
    while True:
        first, descriptors, _, _ = socket.recv_fds(orders, LENGTH.size, MOST_DESCRIPTORS)
        if not first:
            return
        (length,) = LENGTH.unpack(first)
        text = b""
        while len(text) < length:
            text += orders.recv(length - len(text))
        orders.sendall(LENGTH.pack(fork(json.loads(text), descriptors)))
        for number in descriptors:
            os.close(number)


def fork(order: dict[str, Any], descriptors: list[int]) -> int:
    """The id of a process that carries out the order.

    It is forked twice: as an orphan it becomes a child of the test process, the nearest that takes orphans,
    which can then wait for it like for any other child.
    """
    told, tell = os.pipe()
    between = os.fork()
    if between == 0:
        parent = os.getpid()
        if os.fork() == 0:
            become(order, descriptors, parent, tell)
        os._exit(0)
    os.close(tell)
    os.waitpid(between, 0)
    pid = LENGTH.unpack(os.read(told, LENGTH.size))[0]
    os.close(told)
    return int(pid)


def become(order: dict[str, Any], descriptors: list[int], parent: int, tell: int) -> NoReturn:
    """Be the process that was asked for; `tell` its id once it has its own group and another parent."""
    code: Any = 1
    try:
        if order["session"]:
            os.setsid()
        if order["group"] is not None:
            os.setpgid(0, order["group"])
        while os.getppid() == parent:  # until the process between has ended
            os.sched_yield()
        os.write(tell, LENGTH.pack(os.getpid()))
        _take(descriptors, order["numbers"])
        _settle_in(order)
        if order["words"][:1] == ["up"]:
            _fork_its_roles()
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _take(descriptors: list[int], numbers: list[int]) -> None:
    """Have what was sent under the numbers asked for, and nothing else."""
    above = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, ABOVE) for one in descriptors]
    for source, number in zip(above, numbers, strict=True):
        os.dup2(source, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in numbers:
            with suppress(OSError):
                os.close(int(name))


def _settle_in(order: dict[str, Any]) -> None:
    """Arguments, folder, environment, streams and signals as of an interpreter that has just started."""
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["-m", *order["words"]]
    sys.path[0:1] = [] if order["safe_path"] else [order["cwd"]]
    importlib.invalidate_caches()
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        lines = name == "stderr" or os.isatty(number)
        buffering = 1 if lines else -1
        stream = open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115  for good
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _fork_its_roles() -> None:
    """Let this process, which will be `up`, fork its roles: from a child that has all loaded as well, and no
    threads."""
    from daemon.up import role_process
    from tests.harness import forked

    forked.serve_from_a_fork(obey)
    names = vars(subprocess) | {"Popen": forked.Popen}
    role_process.subprocess = SimpleNamespace(**names)  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
