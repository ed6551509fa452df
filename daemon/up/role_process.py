"""One role as a child process: its own group, its name before its log lines, an end with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from daemon.exits import LAST_WORDS
from daemon.runtime.leaving import LIFELINE, open_lifeline
from daemon.runtime.logs import wants_colour

TRIPLETD = (sys.executable, "-P", "-m", "daemon")
"""-P: a folder called `checkpoints` or `streams` in the working directory must not be imported."""
_NAME_WIDTH = 8
_MOST_WORDS = 4096
_COLOURS = {"learn": "36", "validate": "35", "serve": "33", "feed": "32"}


class RoleProcess:
    """A started role.

    It is its own process group, so that Ctrl-C reaches it once, through its parent, and not a second
    time from the terminal (a second signal means "at once"). It ends when this process ends.

    Args:
        name: role name, put before its log lines.
        arguments: command line after `tripletd`.
        prefix: write its stderr line by line with its name, for a terminal; otherwise it goes through
            untouched (JSON lines name their role themselves).
        stdin: what it reads, instead of nothing.
        log: an open file its stderr goes to instead; `prefix` must be False then.
        program: what is run with the arguments: `tripletd` by this very interpreter, whatever is on the PATH.
        inherited: descriptors that it gets under the same numbers.

    Attributes:
        last_words: after `finish`, the message and remedy with which it ended; "" where it left none.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        prefix: bool,
        stdin: IO[bytes] | None = None,
        log: IO[bytes] | None = None,
        *,
        program: Sequence[str] = TRIPLETD,
        inherited: Sequence[int] = (),
    ) -> None:
        self.name = name
        self._reader: threading.Thread | None = None
        self.last_words = ""
        read_end, self._keep_open = open_lifeline()
        self._words, words_end = os.pipe()
        os.set_blocking(self._words, False)
        environment = {**os.environ, LIFELINE: str(read_end), LAST_WORDS: str(words_end)}
        if prefix:
            environment["TRIPLETD_LOG__FORMAT"] = "console"
            if wants_colour():
                environment["FORCE_COLOR"] = "1"
        try:
            self._process = subprocess.Popen(
                [*program, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stderr=subprocess.PIPE if prefix else log,
                pass_fds=(read_end, words_end, *inherited),
                process_group=0,
            )
        finally:
            os.close(read_end)
            os.close(words_end)
        if self._process.stderr is not None:
            reader = threading.Thread(target=_relay, args=(self._process.stderr, name), daemon=True)
            reader.start()
            self._reader = reader

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return code (minus the signal that killed it), None while it runs."""
        return self._process.poll()

    def reload(self) -> None:
        """Ask it to read its configuration again."""
        self._process.send_signal(signal.SIGHUP)

    def checkpoint(self) -> None:
        """SIGUSR1: `learn` writes a version now, several processes of `serve` are started again in turn."""
        self._process.send_signal(signal.SIGUSR1)

    def terminate(self) -> None:
        """Ask it to stop: finish the batch, checkpoint, exit 0."""
        self._process.terminate()

    def finish(self, timeout_s: float) -> int:
        """Wait for its end, kill it after `timeout_s`; its last lines are out when this returns."""
        try:
            returncode = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            returncode = self._process.wait()
        if self._reader is not None:
            self._reader.join(1.0)
        with suppress(BlockingIOError):  # nothing, and what it has started lives on
            self.last_words = os.read(self._words, _MOST_WORDS).decode(errors="replace")
        os.close(self._words)
        os.close(self._keep_open)
        return returncode


def _relay(stream: IO[bytes], name: str) -> None:
    label = name.ljust(_NAME_WIDTH)
    if wants_colour():
        label = f"\x1b[{_COLOURS.get(name, '34')}m{label}\x1b[0m"
    for line in stream:
        # One write per line: two roles' lines may interleave, never mix.
        sys.stderr.write(f"{label} | {line.decode(errors='replace').rstrip()}\n")
        sys.stderr.flush()
