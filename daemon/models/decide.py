"""Which move a request amounts to or why it is refused, and what resumes a stopped learner. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoints import PAUSE, LedgerEntry, is_pause, pause_in_force, resolve, stop_in_force
from checkpoints.entries import BEST, LATEST, OWN, PIN, STABLE, Meaning, before, meaning, moves, names
from daemon.exits import EX_USAGE, UserError
from daemon.text import number_runs

RefusalReason = Literal[
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


class MoveRefused(UserError):
    """A move that is not made; nothing was written.

    reason: one word of a closed set. field: `version`, `alias` or `to`, the argument that is at fault.
    """

    def __init__(
        self, reason: RefusalReason, field: str, message: str, remedy: str, code: int = EX_USAGE
    ) -> None:
        super().__init__(message, remedy, code)
        self.reason, self.field = reason, field


def no_such_version(name: int | str, kept: Sequence[int], field: str = "version") -> MoveRefused:
    """For a number that is not there (never written, or pruned) or a name that means no version."""
    known = number_runs(kept) or "none yet"
    message = f"there is no version {str(name)[:80]}"
    return MoveRefused("no_such_version", field, message, f"versions: {known}; see `tripletd models list`")


def number_of(name: str, kept: Sequence[int], entries: Iterable[LedgerEntry]) -> int:
    """The listed version that a number or name means; raises Refused."""
    number = resolve(name, kept, entries)
    if number is None:
        raise no_such_version(name, kept)
    return number


NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
Verb = Literal["promote", "rollback", "pin", "unpin"]


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The store as seen at one moment. versions: numbers listed, ascending; entries: the ledger's readable
    ones, ascending; unreadable: numbers of the others; last: the highest number taken.
    """

    versions: Sequence[int]
    entries: Sequence[LedgerEntry]
    unreadable: Sequence[int] = ()
    last: int = 0

    def means(self, name: str) -> Meaning:
        """What a name means by this look."""
        return meaning(name, self.versions, self.entries, self.unreadable)


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A request to move a name. version: a number, a name, or None (rollback: where it was before; unpin)."""

    verb: Verb
    alias: str
    version: int | str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The entry to write: `alias` from version `before` to `after` (None: the name is taken away)."""

    kind: Literal["PROMOTE", "ROLLBACK"]
    alias: str
    before: int | None
    after: int | None
    measures: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def decide(wish: MoveRequest, seen: StoreSnapshot) -> Move:
    """The move that a wish amounts to. Raises Refused; whether the version loads is looked at elsewhere."""
    if wish.alias != OWN or wish.verb != "unpin":  # a name `own` of older times can be taken away
        _check_name(wish.alias)
    last = moves(seen.entries).get(wish.alias)
    if wish.verb == "unpin":
        return _take_away(wish, seen, last)
    after = _step_back(wish, seen, last) if wish.version is None else _number(wish, seen)
    if last is not None and _is_pin(last) and (wish.verb != "pin" or after != last.version):
        raise _pinned(wish.alias, last)
    now = seen.means(wish.alias)
    if last is not None and after == last.version and not now.doubts:
        message = f"{wish.alias} points at version {after} already, by entry {last.n} of the ledger"
        remedy = "nothing to do; see `tripletd models list`"
        raise MoveRefused("already_there", "to" if wish.verb == "rollback" else "version", message, remedy)
    measures = {PIN: True} if wish.verb == "pin" else {}
    kind: Literal["PROMOTE", "ROLLBACK"] = "ROLLBACK" if wish.verb == "rollback" else "PROMOTE"
    notes = _doubts(now)  # which end with this move
    judged = [entry for entry in seen.entries if entry.kind == "KEEP" and entry.version == after]
    if judged and judged[-1].measures.get("refused"):
        notes += (f"version {after}: {judged[-1].reason}",)
    return Move(kind, wish.alias, now.version, after, measures, notes)


def in_doubt(seen: StoreSnapshot) -> list[str]:
    """One line for each name that an unreadable entry may have moved, with what it means until then."""
    return [
        f"{name} is in doubt: ledger entries that cannot be read ({_numbers(now)}) may have moved it; "
        f"it means {_told(now)} until its next move"
        for name in sorted(names(seen.entries))
        if (now := seen.means(name)).doubts
    ]


_RESERVED = {
    LATEST: "the newest version",
    BEST: "the validator's choice",
    OWN: "version 0, your own ranking,",
}


def _check_name(alias: str) -> None:
    whose = _RESERVED.get(alias)
    if whose is not None:
        remedy = f"move `{STABLE}` instead, or a name of your own; the servers of that name follow"
        raise MoveRefused("reserved", "alias", f"{alias} is {whose} and is not moved by hand", remedy)
    if not NAME.fullmatch(alias):
        remedy = "expected a small letter, then up to 63 small letters, digits, - or _"
        raise MoveRefused("bad_name", "alias", f"{alias[:80]!r} is no name for a version", remedy)


def _number(wish: MoveRequest, seen: StoreSnapshot) -> int:
    """The version asked for, which is listed. Raises Refused."""
    field_name = "to" if wish.verb == "rollback" else "version"
    name = str(wish.version)
    number = seen.means(name).version
    if number is None:
        raise no_such_version(name, seen.versions, field_name)
    return number


def _step_back(wish: MoveRequest, seen: StoreSnapshot, last: LedgerEntry | None) -> int:
    """Where `alias` was before. Raises Refused where there is no such place, or it is pruned."""
    if last is not None and _is_pin(last):
        raise _pinned(wish.alias, last)
    number = before(wish.alias, seen.entries)
    if number is None:
        message = f"{wish.alias} was never promoted, so there is nothing to go back to"
        remedy = f"name the version: `tripletd models rollback --to N` or `promote N` (alias {wish.alias})"
        raise MoveRefused("nothing_before", "alias", message, remedy)
    if number not in seen.versions:
        raise no_such_version(number, seen.versions, "to")
    return number


def _take_away(wish: MoveRequest, seen: StoreSnapshot, last: LedgerEntry | None) -> Move:
    now = seen.means(wish.alias)
    if last is None or (last.version is None and not now.doubts):
        message = f"{wish.alias} points at no version of its own"
        raise MoveRefused("already_there", "alias", message, "see the names in use: `tripletd models list`")
    without = LedgerEntry(n=seen.last + 1, kind="ROLLBACK", alias=wish.alias)
    after = meaning(wish.alias, seen.versions, [*seen.entries, without])
    notes = (f"{STABLE} means {_told(after)} from now on",) if wish.alias == STABLE else ()
    return Move("ROLLBACK", wish.alias, now.version, None, notes=(*notes, *_doubts(now)))


def _doubts(now: Meaning) -> tuple[str, ...]:
    if not now.doubts:
        return ()
    return (
        f"ledger entries that cannot be read ({_numbers(now)}) may have moved {now.name}: they do not count, "
        f"and by those that can be read it meant {_told(now)} until now",
    )


def _numbers(now: Meaning) -> str:
    return ", ".join(map(str, now.doubts))


def _told(meant: Meaning) -> str:
    through = f" (as {meant.through})" if meant.through not in ("", meant.name) else ""
    return "no version" if meant.version is None else f"version {meant.version}{through}"


def _is_pin(last: LedgerEntry) -> bool:
    return last.version is not None and PIN in last.measures


def _pinned(alias: str, last: LedgerEntry) -> MoveRefused:
    remedy = f"unpin it first: `tripletd models unpin {alias}`; or choose another name"
    return MoveRefused("pinned", "alias", f"{alias} is pinned to version {last.version}", remedy)


BY = "tripletd resume"


@dataclass(frozen=True, slots=True)
class Resumption:
    """One STOP in force (`stop`) and the RESUME that lifts it (`entry`, for `Ledger.append`)."""

    stop: LedgerEntry
    entry: dict[str, Any]

    @property
    def is_pause(self) -> bool:
        """Whether it is the learner's own pause and not an early stop."""
        return is_pause(self.stop)


def resumptions(entries: Sequence[LedgerEntry], reason: str) -> list[Resumption]:
    """What is in force, each with its RESUME: an early stop and a pause are lifted one by one."""
    found, said = [], {"kind": "RESUME", "by": BY, "reason": reason}
    if (stop := stop_in_force(entries)) is not None:
        found.append(Resumption(stop, said | {"version": stop.version}))
    if (pause := pause_in_force(entries)) is not None:
        found.append(Resumption(pause, said | {"measures": {PAUSE: pause.n}}))
    return found
