"""Sealed snapshots of the ledger: every entry up to a number, thinned, in one create-only file.

Their format alone, and the marks that write a lost entry off; `checkpoints.retention` says what is kept and
when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from checkpoints.manifest import RecordFields, seal, unseal
from checkpoints.store import LEDGER, BadKey, BlobStore, Damaged, FutureFormat, KeyMissing

FORMAT = 1
REMEDY = "the one before it and the entries after that are read instead; restore it from a copy"
_FOLDED = re.compile(r"ledger/folded-([0-9]{10})\.json")
_LOST = re.compile(r"ledger/lost-([0-9]{10})\.json")


def folded_key(through: int) -> str:
    """Where the snapshot of all entries up to number `through` lives."""
    return f"{LEDGER}folded-{through:010d}.json"


def folded_number(key: str) -> int | None:
    """Inverse of `folded_key`, None for other keys."""
    match = _FOLDED.fullmatch(key)
    return int(match.group(1)) if match else None


def lost_key(n: int) -> str:
    """Where the mark lives that writes off what begins with entry `n`."""
    return f"{LEDGER}lost-{n:010d}.json"


def lost_number(key: str) -> int | None:
    """Inverse of `lost_key`, None for other keys."""
    match = _LOST.fullmatch(key)
    return int(match.group(1)) if match else None


@dataclass(frozen=True, slots=True)
class FoldedRecords:
    """A snapshot as it stands in its file: entries up to number `through`, ascending, each as JSON fields."""

    through: int
    entries: Sequence[dict[str, Any]]


def folded_bytes(through: int, entries: Iterable[dict[str, Any]]) -> bytes:
    """Sealed JSON of a snapshot."""
    return seal({"format": FORMAT, "through": through, "entries": list(entries)})


def read_folded(store: BlobStore, through: int) -> FoldedRecords:
    """The snapshot up to `through`. Raises Damaged or FutureFormat; KeyMissing where there is none (now)."""
    key = folded_key(through)
    try:
        record = unseal(store.get(key), key)
    except BadKey as error:
        raise Damaged("mismatch", error.place, error.problem, REMEDY) from error
    except FutureFormat:
        raise
    except Damaged as error:
        raise Damaged(error.kind, error.place, error.problem, REMEDY) from error
    if record.get("format") != FORMAT or isinstance(record.get("format"), bool):
        raise FutureFormat(key, record.get("format"), f"ledger snapshot format {FORMAT}")
    at = RecordFields(record, key)
    at.integer("format")
    if at.integer("through", low=1) != through:
        raise Damaged("mismatch", key, f"says it is of the entries up to {record['through']}", REMEDY)
    entries = at.sequence("entries")
    at.nothing_left()
    if not all(isinstance(entry, dict) for entry in entries):
        raise Damaged("malformed", key, "holds what is no entry", REMEDY)
    return FoldedRecords(through, entries)


def lost_bytes(n: int, through: int, by: str, reason: str, at: str) -> bytes:
    """Sealed JSON of the mark that the entries `n` to `through` are written off."""
    return seal({"format": FORMAT, "n": n, "through": through, "by": by, "reason": reason, "at": at})


def written_off_through(store: BlobStore, n: int) -> int | None:
    """The last number of what the mark `n` writes off; None without one. A damaged mark is none."""
    key = lost_key(n)
    try:
        at = RecordFields(unseal(store.get(key), key), key)
        return at.integer("through", low=n) if at.integer("format") == FORMAT else None
    except (KeyMissing, BadKey, Damaged):
        return None
