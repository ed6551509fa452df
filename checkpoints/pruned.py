"""The history of pruned versions: lines that pruning adds, and sealed snapshots of the older ones, thinned.

A line that goes hands its schedule on to the version that continued from it, so that what is left still says
all that led from one version to the next. Pruning and folding are the writer's; FORMAT.md has the rules on
disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from checkpoints.manifest import TRAILER_BYTES
from checkpoints.store import (
    HISTORY,
    BlobStore,
    CheckpointError,
    Damaged,
    KeyExists,
    KeyMissing,
    listed,
    numbered,
)
from checkpoints.thinning import by_age, seconds

FORMAT = 1
FOLDER = "history/"
FOLD_BYTES = 1 << 20
"""Bytes of new lines from which another snapshot is made."""
LEAVE = 64
"""Newest lines that no fold drops: a learner may continue from a version that was just pruned."""
MOST_RUNS = 4096
"""Longest schedule that lines are joined to."""
PART = 20_000
"""Lines thinned at a time: what a fold holds in memory does not grow with the history."""
FIELDS = ("number", "parent", "created", "epoch", "counters", "schedule", "runtime")
"""What a snapshot keeps of a manifest."""
_folded_number = numbered(r"history/folded-([0-9]{10})\.json")
_tail_number = numbered(r"history/tail-([0-9]{10})\.jsonl")

Line = dict[str, Any]


def folded_key(k: int) -> str:
    """Where snapshot `k` lives, counted from 1."""
    return f"{FOLDER}folded-{k:010d}.json"


def tail_key(k: int) -> str:
    """Where the lines are that were added while snapshot `k` was the newest; 0: before there was one."""
    return f"{FOLDER}tail-{k:010d}.jsonl" if k else HISTORY


def newest_fold(store: BlobStore) -> int:
    """The number of the newest snapshot; 0 without one."""
    keys = listed(store, FOLDER, folded_key, _folded_number, first=1)
    return max((n for n in map(_folded_number, keys) if n is not None), default=0)


def add_line(store: BlobStore, line: bytes) -> None:
    """Add what a pruned version leaves, durably. A fold that happened meanwhile does not lose it."""
    while True:
        k = newest_fold(store)
        store.append_line(tail_key(k), line)
        if newest_fold(store) <= k + 1:  # the lines before the newest snapshot are still read
            return


def lines_of(store: BlobStore) -> Iterator[Line]:
    """Every line there is, the oldest snapshot's first, one at a time; the first line of a number counts.

    Torn lines are left out. Raises Damaged where a file cannot be read.
    """
    for k in sorted(_numbers(store, _folded_number), reverse=True):
        head = _whole(store, k)
        if head is not None:
            yield from _folded_lines(store, k)
            yield from _tail_lines(store, k - 1, head["bytes"])
            break
    else:
        k = 0
    for tail in [0, *_numbers(store, _tail_number)]:
        if tail >= k:
            yield from _tail_lines(store, tail)


def history(store: BlobStore) -> list[Line]:
    """Manifests of pruned versions by rising number, as JSON objects; torn or repeated lines are left out.

    Older ones are thinned by age and have `FIELDS` alone.
    """
    found: dict[int, Line] = {}
    for line in lines_of(store):
        found.setdefault(line["number"], line)
    return [found[number] for number in sorted(found)]


def fold_history(
    store: BlobStore,
    parents: Callable[[], Iterable[int]],
    fence: Callable[[], None],
    *,
    least_bytes: int = FOLD_BYTES,
    leave: int = LEAVE,
    clock: Callable[[], float] = time.time,
) -> int | None:
    """Put a snapshot of all lines once enough of them are new; its number, or None. The writer calls it.

    parents: versions that kept ones continued from, or that something else refers to; lines stay. fence:
    called before anything is written or deleted. The snapshot is durable, and the one before found whole,
    before the lines that both hold are deleted. Raises WriteFailed; Damaged, and what `fence` raises.
    """
    k = newest_fold(store)
    size = _size(store, tail_key(k))
    if size < least_bytes:
        return None
    kept = _thinned(store, set(parents()), leave, clock())
    fence()
    try:
        store.put_new(folded_key(k + 1), sealed_lines(k + 1, size, kept))
    except KeyExists:
        return None
    if _whole(store, k + 1) is None or (k and _whole(store, k) is None):
        return k + 1
    fence()
    for number in _numbers(store, _folded_number):
        if number < k:
            store.delete(folded_key(number), durable=False)
    for number in [0, *_numbers(store, _tail_number)]:
        if number < k - 1:
            store.delete(tail_key(number), durable=False)
    return k + 1


def _thinned(store: BlobStore, stay: set[int], leave: int, now: float) -> list[Line]:
    before: int | None = None
    newest: deque[int] = deque(maxlen=leave)
    for line in lines_of(store):  # first who is gone on from twice, or from elsewhere than the line before
        number, parent = line["number"], line.get("parent")
        if parent is not None and parent != before:
            stay.add(parent)
        before = number
        newest.append(number)
    stay |= set(newest)
    kept: dict[int, Line] = {}
    part = 0
    for line in lines_of(store):
        if line["number"] not in kept:
            kept[line["number"]] = {name: line[name] for name in (*FIELDS, "damaged") if name in line}
            part += 1
        if part >= PART:
            kept, part = _joined(kept, stay, now), 0
    return list(_joined(kept, stay, now).values())


def _joined(lines: Mapping[int, Line], stay: set[int], now: float) -> dict[int, Line]:
    """Thinned by age; what goes gives its schedule to the one version that continued from it."""
    ordered = [lines[number] for number in sorted(lines)]
    times = {line["number"]: seconds(str(line.get("created", ""))) for line in ordered}
    by_time = sorted(ordered, key=lambda line: times[line["number"]] or 0.0)
    aged = by_age(by_time, lambda line: times[line["number"]], now)
    keep = stay | {line["number"] for line in aged}
    children: dict[int, list[int]] = {}
    for line in ordered:
        if line.get("parent") is not None:
            children.setdefault(line["parent"], []).append(line["number"])
    found = {line["number"]: line for line in ordered}
    for line in ordered:
        number = line["number"]
        heirs = children.get(number, [])
        if number in keep or len(heirs) != 1 or heirs[0] not in found:
            continue
        gone, heir = found[number], found[heirs[0]]
        if not _can_join(gone, heir):
            continue
        schedule = _coalesced([*gone["schedule"], *heir["schedule"]])
        if len(schedule) > MOST_RUNS:
            continue
        found[heirs[0]] = heir | {"parent": gone["parent"], "schedule": schedule}
        if gone["parent"] is not None:
            children[gone["parent"]] = [heirs[0] if n == number else n for n in children[gone["parent"]]]
        del found[number]
    return found


def _can_join(gone: Line, heir: Line) -> bool:
    """Whether both are whole, and computed alike: a line of another runtime says so for itself."""
    whole = all(name in line for line in (gone, heir) for name in FIELDS)
    return whole and gone["runtime"] == heir["runtime"] and gone["parent"] is not None


def _coalesced(schedule: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in schedule:
        last = found[-1] if found else None
        if isinstance(entry, list) and isinstance(last, list) and (last[0], last[2]) == (entry[0], entry[1]):
            found[-1] = [last[0], last[1], entry[2]]
        else:
            found.append(entry)
    return found


def sealed_lines(k: int, size: int, lines: Iterable[Line]) -> Iterator[bytes]:
    """Sealed JSON with one line of history per line, so that it can be read line by line."""
    digest = hashlib.sha256()

    def parts() -> Iterator[bytes]:
        yield f'{{\n"format": {FORMAT},\n"number": {k},\n"bytes": {size},\n"lines": [\n'.encode()
        for place, line in enumerate(lines):
            yield (",\n" if place else "").encode() + json.dumps(line, separators=(",", ":")).encode()
        yield b"\n],\n"

    for part in parts():
        digest.update(part)
        yield part
    yield f'"sha256": "{digest.hexdigest()}"\n}}\n'.encode()


def _whole(store: BlobStore, k: int) -> Line | None:
    """`number` and `bytes` of a snapshot whose seal is right; None for any other."""
    try:
        with store.open(folded_key(k)) as stream:
            size = stream.seek(0, io.SEEK_END) - TRAILER_BYTES
            stream.seek(0)
            digest, left = hashlib.sha256(), size
            while left > 0 and (piece := stream.read(min(left, 1 << 20))):
                digest.update(piece)
                left -= len(piece)
            trailer = stream.read()
            stream.seek(0)
            head = stream.read(200).split(b'"lines"')[0]
        if trailer != f'"sha256": "{digest.hexdigest()}"\n}}\n'.encode():
            return None
        found = json.loads(head.rstrip().rstrip(b",") + b"}")
    except (CheckpointError, OSError, ValueError):
        return None
    good = found.get("format") == FORMAT and found.get("number") == k and type(found.get("bytes")) is int
    return found if good else None


def _folded_lines(store: BlobStore, k: int) -> Iterator[Line]:
    with store.open(folded_key(k)) as stream:
        for line in io.BufferedReader(stream):  # type: ignore[type-var]
            if line.startswith(b'{"number"'):
                yield json.loads(line.rstrip().rstrip(b","))


def _tail_lines(store: BlobStore, k: int, after: int = 0) -> Iterator[Line]:
    try:
        with store.open(tail_key(k)) as stream:
            stream.seek(after)
            for line in io.BufferedReader(stream):  # type: ignore[type-var]
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict) and type(record.get("number")) is int:
                    yield record
    except KeyMissing:
        return
    except OSError as error:
        raise Damaged("unreadable", tail_key(k), f"cannot be read: {error.strerror or error}") from error


def _size(store: BlobStore, key: str) -> int:
    try:
        with store.open(key) as stream:
            return stream.seek(0, io.SEEK_END)
    except KeyMissing:
        return 0


def _numbers(store: BlobStore, number_of: Callable[[str], int | None]) -> list[int]:
    return sorted(n for n in map(number_of, store.list(FOLDER)) if n is not None)
