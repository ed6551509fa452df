"""Exit codes (BSD sysexits), the one error a user is meant to read, how other exceptions become one, and what
a check found.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from typing import Literal, NamedTuple

EX_OK = 0
EX_USAGE = 64
EX_DATAERR = 65
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_CANTCREAT = 73
EX_TEMPFAIL = 75
EX_CONFIG = 78
INTERRUPTED = 130
"""What a shell reports for a program ended by Ctrl-C: 128 + SIGINT."""

LAST_WORDS = "TRIPLETD_LAST_WORDS_FD"
"""Environment variable of a role started by `up`: the pipe for the reason why it ends."""


class UserError(Exception):
    """Something the user can put right: what happened, what to do about it, and the exit code.

    Args:
        message: one or a few lines naming the place (file, key, address) and what was found there.
        remedy: what to do; printed on a line of its own. Empty when the message already says it.
        code: a sysexits code, one of the constants of this module.
    """

    def __init__(self, message: str, remedy: str = "", code: int = EX_CONFIG) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


_CODES = {
    "AddressError": EX_CONFIG,
    "PartitionMissing": EX_CONFIG,
    "TopicMissing": EX_UNAVAILABLE,
    "StreamRefused": EX_CONFIG,
    "StreamUnavailable": EX_UNAVAILABLE,
    "LogNotWritable": EX_CANTCREAT,
    "StreamError": EX_DATAERR,
    "ThreadLimit": EX_TEMPFAIL,
    "CatalogAway": EX_UNAVAILABLE,
    "CatalogError": EX_DATAERR,
    "Superseded": EX_CANTCREAT,
    "WriteFailed": EX_TEMPFAIL,
    "Unreachable": EX_TEMPFAIL,
    "CheckpointError": EX_DATAERR,
    "JudgmentsError": EX_DATAERR,
    "LearnerError": EX_CONFIG,
}
_MOST_WORDS = 4096  # what a pipe takes at once, even while nobody reads
_PACKAGES = ("streams", "learners", "checkpoints", "daemon")


def not_installed(what: str, extra: str, error: ImportError) -> UserError:
    """For a package that does not come with tripletd itself. what: that needs it, in words."""
    remedy = f'pip install "tripletd[{extra}]"'
    return UserError(f"{what} needs a package that is not installed: {error}", remedy, EX_UNAVAILABLE)


def as_user_error(error: Exception) -> UserError | None:
    """The readable form of an error of the islands, the memory or the file system; None for a bug.

    The error's class decides, by name, nearest ancestor first: importing the islands here would cost every
    command their start-up.
    """
    if isinstance(error, UserError):
        return error
    if isinstance(error, BlockingIOError) and getattr(error, "characters_written", None) is not None:
        message = "what reads the output has set its pipe to non-blocking, and it is full"
        return UserError(message, "write to a file, or through `| cat`", EX_TEMPFAIL)
    if "can't start new thread" in str(error) or (isinstance(error, BlockingIOError) and not error.filename):
        from streams.threads import ThreadLimit

        error = ThreadLimit()
    for kind in type(error).__mro__:
        if kind.__name__ in _CODES and kind.__module__.partition(".")[0] in _PACKAGES:
            remedy = getattr(error, "remedy", "")  # where there is none apart, the message has it
            message = str(error).removesuffix(f" -- {remedy}") if remedy else str(error)
            return UserError(message, remedy, _CODES[kind.__name__])
    if isinstance(error, MemoryError):
        remedy = "a similarity of d dimensions takes 4 d^2 bytes or more: lower views' dim"
        return UserError(f"not enough memory: {error}", remedy, EX_CONFIG)
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and (full or error.filename):
        message = f"{error.filename or 'cannot write'}: {error.strerror}"
        cure = ("free some space", EX_TEMPFAIL) if full else ("check the path and its owner", EX_CANTCREAT)
        return UserError(message, *cure)
    return None


def report(error: Exception, debug: bool) -> int:
    """Write the error to stderr and return the exit code; a bug's details go to a file, not to the
    terminal."""
    readable = as_user_error(error)
    _leave_word(readable or UserError(f"{type(error).__name__}: {error}"))
    if readable is not None:
        _say(readable.message)
        if readable.remedy:
            tell("".join(f"  {line}\n" for line in readable.remedy.splitlines()))
        if debug:
            traceback.print_exception(error)
        return readable.code
    if debug:
        traceback.print_exception(error)
    where = "" if debug else f"; details are in {_crash_file(error)}"
    _say(f"this is a bug: {type(error).__name__}: {error}{where}")
    return EX_SOFTWARE


def _leave_word(error: UserError) -> None:
    """To the parent process, if it asked for it: why this one ends, the first line and the remedy."""
    text = f"{error.message.partition(chr(10))[0].rstrip(':')}\n{error.remedy}"
    with suppress(OSError, ValueError):
        descriptor = int(os.environ.get(LAST_WORDS, ""))
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.write(descriptor, text.encode(errors="replace")[:_MOST_WORDS])


def tell(text: str) -> None:
    """Write to stderr; where that is full or gone, the exit code alone has to tell it."""
    with suppress(OSError):
        sys.stderr.write(text)


def _say(message: str) -> None:
    for line in message.splitlines() or [""]:
        tell(f"tripletd: {line}\n")


def _crash_file(error: Exception) -> str:
    """Where the details were written, readable by the owner alone: a trace can hold anything."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    try:
        descriptor, path = tempfile.mkstemp(prefix=f"tripletd-crash-{stamp}-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"arguments: {sys.argv[1:]}\n")
            traceback.print_exception(error, file=file)
    except OSError as problem:
        return f"nowhere ({problem.strerror}); run again with --debug"
    return path


Grade = Literal["ok", "note", "error"]


class CheckFinding(NamedTuple):
    """What one check found: ok, note (works, but look) or error; with its remedy."""

    key: str
    grade: Grade
    text: str
    remedy: str = ""
