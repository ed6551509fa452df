"""Where each version stands: what curves need of a manifest, also of versions long pruned. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints import Manifest
from daemon.versions.contents import APPLIED, LOSS_SUM, RECORDS, counted


@dataclass(frozen=True, slots=True)
class Place:
    """One version: what it went on from, how far it had come, and when.

    `records`: records passed since version 0, the position that every line shares; `events`: events stepped
    over, rejected ones left out; `loss_sum`: their hinge losses added up. `marks`: what else than learning
    the next records led here, in words ("went on from version 5", "gap"). `epoch`: of its writer, another
    after a restart.
    """

    number: int
    parent: int | None
    created: str
    epoch: int
    records: int
    events: int
    loss_sum: float
    marks: tuple[str, ...] = ()


def place_of(manifest: Manifest) -> Place:
    """Where a version stands."""
    fields = ("number", "parent", "created", "epoch", "counters", "schedule")
    return _place({name: getattr(manifest, name) for name in fields})


def places_of_pruned(lines: Iterable[Mapping[str, Any]]) -> list[Place]:
    """The same of the lines that pruning left; one that was damaged when it was pruned has no place."""
    found = []
    for line in lines:
        try:
            found.append(_place(line))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def _place(manifest: Mapping[str, Any]) -> Place:
    """Of a manifest's fields as they stand in JSON."""
    parent, counters = manifest["parent"], manifest["counters"]
    return Place(
        number=int(manifest["number"]),
        parent=None if parent is None else int(parent),
        created=str(manifest["created"]),
        epoch=int(manifest["epoch"]),
        records=counted(counters, RECORDS),
        events=counted(counters, *APPLIED),
        loss_sum=float(counters.get(LOSS_SUM, 0.0)),
        marks=tuple(_mark(entry) for entry in manifest["schedule"] if isinstance(entry, Mapping)),
    )


def _mark(entry: Mapping[str, Any]) -> str:
    kind = str(entry.get("control"))
    return f"went on from version {entry.get('from_version')}" if kind == "branch" else kind
