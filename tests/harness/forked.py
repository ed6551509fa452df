"""`tripletd` as a child process that starts in hundredths of a second: the client of `fork_server.py`.

`Popen` and `run` are those of `subprocess`. `[sys.executable, "-m", "daemon", ...]` is forked from a server,
which this process starts at its first use and which ends with it. Any other command, and one with an
environment that an import would see, is started as ever; with TRIPLETD_TESTS_START=real, everything is.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from daemon.memory.cores import limit_pools
from tests.harness.fork_server import LENGTH

ROOT = Path(__file__).resolve().parents[2]
START = "TRIPLETD_TESTS_START"
"""The variable by which nothing is forked: `real`."""
FORKED = ("daemon", "tests.harness.kill.patched", "tests.harness.kill.server")
"""The modules of `python -m` that are forked."""
SEEN_BY_IMPORTS = (
    *("PYTHON", "NUMBA_", "OMP_", "OPENBLAS_", "XDG_CACHE_HOME", "LD_", "MALLOC_"),
    "_TYPER_COMPLETE_TEST",
)
"""How the names of variables begin that matter while modules are imported and the command line is made: those
of the server must do."""
limit_pools()  # as `up` does, whose roles are forked where their environment is that of the server
_BEFORE = {name: value for name, value in os.environ.items() if name.startswith(SEEN_BY_IMPORTS)}
"""Those of this process before any test changed one."""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_libc = ctypes.CDLL(None, use_errno=True)


class _Server:
    """The server of this process."""

    def __init__(self) -> None:
        self._of = 0
        self._lock = threading.Lock()

    def fork(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """The new process's id; it is a child of this process."""
        text = json.dumps(order).encode()
        with self._lock:
            if self._of != os.getpid():
                self._start()
            _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._orders, [LENGTH.pack(len(text))], descriptors)
                self._orders.sendall(text)
                answer = self._orders.recv(LENGTH.size)
            finally:
                _libc.prctl(_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the server of forks has ended"
        return int(LENGTH.unpack(answer)[0])

    def _start(self) -> None:
        self._orders, theirs = socket.socketpair()
        environment = {**os.environ, **_BEFORE, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.harness.fork_server", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT, env=environment)
        theirs.close()
        self._of = os.getpid()
        atexit.register(self._end, self._of)

    def start_from_a_fork(self, obey: Callable[[socket.socket], None]) -> None:
        """The server is a fork of this process, which has everything loaded; it ends with this process."""
        self._orders, theirs = socket.socketpair()
        if os.fork() == 0:
            os.setpgid(0, 0)  # a signal to this process and its group is not for the server
            self._orders.close()
            try:
                obey(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self._of = os.getpid()

    def _end(self, of: int) -> None:
        if of == os.getpid():
            self._orders.close()
            self._process.wait()


_server = _Server()


def serve_from_a_fork(obey: Callable[[socket.socket], None]) -> None:
    """Have a server from now on that is a fork of this process: `obey` is what it does with its socket."""
    _server.start_from_a_fork(obey)


class Popen(subprocess.Popen[Any]):
    """A child process; `tripletd` is forked from a server."""

    def _execute_child(self, *given: Any) -> None:
        named = dict(zip(_PARAMETERS, given, strict=True))
        if not _can_be_forked(named):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        ends = [named[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if end == -1 else end for number, end in enumerate(ends)]
        kept = sorted(named["pass_fds"])
        args, cwd, env = (named[name] for name in ("args", "cwd", "env"))
        module, words = _module_and_words(args) or ("", [])
        order = {
            "module": module,
            "words": words,
            "safe_path": "-P" in args,
            "cwd": os.path.abspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
            "numbers": [0, 1, 2, *kept],
            "session": bool(named["start_new_session"]),
            "group": None if named["process_group"] in (None, -1) else named["process_group"],
        }
        self.pid = _server.fork(order, [*streams, *kept])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[name] for name in pipes))  # type: ignore[attr-defined]


_PARAMETERS = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


def run(
    args: Any, input: Any = None, timeout: float | None = None, check: bool = False, **given: Any
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`."""
    if given.pop("capture_output", False):
        given |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        given["stdin"] = subprocess.PIPE
    with Popen(args, **given) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            process.communicate()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _can_be_forked(named: dict[str, Any]) -> bool:
    """Whether it is `tripletd`, and nothing is asked for that a fork cannot give."""
    if os.environ.get(START) == "real" or _module_and_words(named["args"]) is None:
        return False
    others = ("preexec_fn", "executable", "shell", "gid", "gids", "uid")
    if any(named[name] not in (None, False, -1) for name in others) or not named["close_fds"]:
        return False
    environment = dict(os.environ if named["env"] is None else named["env"])
    return _seen_by_imports(environment) == _seen_by_imports(_BEFORE)


def _module_and_words(args: Any) -> tuple[str, list[str]] | None:
    """What comes after `python -m` or `python -P -m`, where it is one that is forked."""
    words = list(args) if isinstance(args, list | tuple) else []
    if words[:1] == [sys.executable]:
        rest = words[2:] if words[1:2] == ["-P"] else words[1:]
        if rest[:1] == ["-m"] and rest[1:2] and rest[1] in FORKED:
            return rest[1], rest[2:]
    return None


def _seen_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter while modules are imported. The tests' own folder is on every path."""
    told = {name: value for name, value in environment.items() if name.startswith(SEEN_BY_IMPORTS)}
    if told.get("PYTHONPATH", str(ROOT)) in (str(ROOT), _BEFORE.get("PYTHONPATH")):
        told.pop("PYTHONPATH", None)
    # OpenCV puts a folder of its own there when it is imported, for its windows
    libraries = [one for one in told.pop("LD_LIBRARY_PATH", "").split(":") if one and "/cv2/" not in one]
    return {**told, "LD_LIBRARY_PATH": ":".join(libraries)}
