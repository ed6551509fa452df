"""Exit codes (BSD sysexits) and the one error a user is meant to read."""

from __future__ import annotations

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
