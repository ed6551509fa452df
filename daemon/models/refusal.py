"""Why a name is not moved: one error with a word for programs, the field at fault, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from checkpoints import LedgerEntry, resolve
from daemon.exits import EX_USAGE, UserError
from daemon.text import number_runs

Reason = Literal[
    "no_such_version",
    "damaged",
    "not_finite",
    "other_space",
    "already_there",
    "reserved",
    "pinned",
    "bad_name",
    "nothing_before",
    "busy",
]


class Refused(UserError):
    """A move that is not made; nothing was written.

    reason: one word of a closed set. field: `version`, `alias` or `to`, the argument that is at fault.
    """

    def __init__(self, reason: Reason, field: str, message: str, remedy: str, code: int = EX_USAGE) -> None:
        super().__init__(message, remedy, code)
        self.reason = reason
        self.field = field


def no_such_version(name: int | str, kept: Sequence[int], field: str = "version") -> Refused:
    """For a number that is not there (never written, or pruned) or a name that means no version."""
    known = number_runs(kept) or "none yet"
    return Refused(
        "no_such_version",
        field,
        f"there is no version {str(name)[:80]}",
        f"versions: {known}; see `tripletd models list`",
    )


def number_of(name: str, kept: Sequence[int], entries: Iterable[LedgerEntry]) -> int:
    """The listed version that a number or name means; raises Refused."""
    number = resolve(name, kept, entries)
    if number is None:
        raise no_such_version(name, kept)
    return number
