"""Control entries of a schedule: what changes the position or the state other than learning what comes next.

| entry | meaning |
|---|---|
| `branch` | goes on from an older version (`from_version`) than the newest; `start`, `name`: as asked for |
| `seek` | left the position: offsets `from` and `to` by partition; `start`: as it was asked for |
| `gap` | offsets [`from`, `to`) of a partition had expired and were accepted as lost |
| `damaged` | offsets [`from`, `to`) of a partition could not be read, so nothing was learned from them |
| `log` | goes on with another log: identities `from` and `to`, `positions` there; `start`: as asked for |
| `dedupe` | from here on the newest `window` event ids are known, none at first |
| `caps` | from here on these `caps` hold; what was done before counts for none of them |

A `seek` that goes back in any partition asks to learn events again: it forgets the event ids known so far and
what counts for caps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoints.manifest import PartitionPosition

Entry = dict[str, Any]
Positions = dict[int, PartitionPosition]

KINDS = ("branch", "seek", "gap", "damaged", "log", "dedupe", "caps")


def branch(from_version: int, start: str, name: str | None = None) -> Entry:
    """The entry of a branch; `name`: by which the version was asked for, None for its number."""
    named = {} if name is None else {"name": name}
    return {"control": "branch", "from_version": from_version, "start": start, **named}


def seek(start: str, offsets: Mapping[int, int], to: Mapping[int, int]) -> Entry:
    """The entry of a jump from the position `offsets`."""
    return {"control": "seek", "start": start, "from": _by_name(offsets), "to": _by_name(to)}


def gap(partition: int, wanted: int, earliest: int) -> Entry:
    """The entry of records that had expired."""
    return {"control": "gap", "partition": partition, "from": wanted, "to": earliest}


def damaged(partition: int, start: int, stop: int) -> Entry:
    """The entry of records that could not be read."""
    return {"control": "damaged", "partition": partition, "from": start, "to": stop}


def other_log(start: str, old: Mapping[str, Any], new: Mapping[str, Any], to: Mapping[int, int]) -> Entry:
    """The entry of a change of the log; `old`, `new`: identities as manifests have them under `stream`."""
    return {"control": "log", "start": start, "from": dict(old), "to": dict(new), "positions": _by_name(to)}


def dedupe(window: int) -> Entry:
    """The entry of a window of event ids that begins."""
    return {"control": "dedupe", "window": window}


def caps(settings: Mapping[str, float]) -> Entry:
    """The entry of other caps; `settings`: fields of `learners.caps.CapsConfig`."""
    return {"control": "caps", "caps": dict(settings)}


def repeats(entry: Entry) -> bool:
    """Whether an entry goes back, so as to learn again what was learned."""
    return entry["control"] == "seek" and any(
        int(offset) < int(entry["from"][partition]) for partition, offset in entry["to"].items()
    )


def moved(entry: Entry, positions: Positions) -> Positions:
    """The positions after an entry. KeyError or ValueError for one that is not made as above."""
    kind = entry["control"]
    if kind in ("gap", "damaged"):
        return {**positions, int(entry["partition"]): PartitionPosition(int(entry["to"]))}
    if kind == "seek":
        return {**positions, **_positions(entry["to"])}
    return _positions(entry["positions"]) if kind == "log" else positions


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _positions(offsets: Mapping[str, int]) -> Positions:
    return {int(partition): PartitionPosition(int(offset)) for partition, offset in offsets.items()}
