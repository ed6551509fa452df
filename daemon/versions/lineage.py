"""The line of a version: what it was learned from, parent by parent, pruned versions included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints import Manifest, VersionStore, history
from checkpoints.manifest import ScheduleEntry
from checkpoints.store import CheckpointError
from daemon.exits import EX_DATAERR, UserError


@dataclass(frozen=True, slots=True)
class Link:
    """One version of a line. `manifest` is None where the version was pruned or cannot be read."""

    number: int
    parent: int | None
    schedule: tuple[ScheduleEntry, ...]
    runtime: Mapping[str, Any]
    manifest: Manifest | None


def ancestry(versions: VersionStore, number: int) -> Iterator[Link]:
    """The version, its parent and so on to the first. Pruned ones come from the history that pruning left.

    Raises UserError where the line breaks off: neither the version nor its line of history can be read.
    """
    pruned: dict[Any, Mapping[str, Any]] | None = None
    at: int | None = number
    while at is not None:
        try:
            manifest = versions.manifest(at)
            link = Link(at, manifest.parent, manifest.schedule, manifest.runtime, manifest)
        except CheckpointError:
            if pruned is None:
                pruned = {record["number"]: record for record in history(versions.store)}
            link = _pruned(pruned.get(at, {}), at)
        yield link
        at = link.parent


def line(versions: VersionStore, from_version: int, to_version: int) -> list[Link]:
    """The versions after `from_version` up to `to_version`. UserError when the one does not lead there."""
    links: list[Link] = []
    number: int | None = to_version
    for link in ancestry(versions, to_version):
        number = link.number
        if number <= from_version:
            break
        links.append(link)
        number = link.parent
    if number != from_version:
        raise UserError(
            f"version {to_version} does not descend from version {from_version}",
            f"its line leads to {'none' if number is None else number}; replay from a version on it",
            EX_DATAERR,
        )
    return links[::-1]


def _pruned(record: Mapping[str, Any], number: int) -> Link:
    if "schedule" not in record:
        raise UserError(
            f"the schedule of version {number} is lost: neither it nor its line of history can be read",
            "replay from a later version",
            EX_DATAERR,
        )
    schedule = tuple(entry if isinstance(entry, dict) else tuple(entry) for entry in record["schedule"])
    return Link(number, record["parent"], schedule, record.get("runtime", {}), None)
