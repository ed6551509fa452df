"""What the version store and the ledger say, put together for status, models and curves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoints import LedgerEntry, Manifest, aliases, names, pause_in_force, stop_in_force
from daemon.versions.contents import APPLIED, DUPLICATE, POISON, REJECTED, counted

_OUTCOMES = (*APPLIED, REJECTED)
_DEAD = (POISON, REJECTED)
_REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version: what its manifest says, the measures of its newest judgment, the names it carries.

    `duplicates` are events that were sent again and changed nothing; `events` are the others. `dead_letters`:
    records that could not be learned from. `verdict`: what the newest judgment of it says. `damaged`: why its
    manifest cannot be read, empty when it can; then what it would say is 0, "" or None.
    """

    number: int
    parent: int | None
    created: str
    epoch: int
    events: int
    size: int
    watermark: int | None
    aliases: tuple[str, ...] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)
    damaged: str = ""
    duplicates: int = 0
    dead_letters: int = 0
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the verdicts amount to: the best version, the STOP and the learner's own pause in force."""

    best: int | None
    stopped_by: str | None
    stopped_at: int | None
    judged: int
    paused_by: str | None


def events_of(counters: Mapping[str, int | float]) -> int:
    """Events stepped over, whatever their outcome."""
    return counted(counters, *_OUTCOMES)


def version_rows(
    manifests: Iterable[Manifest],
    entries: Sequence[LedgerEntry],
    newest: int | None,
    damaged: Mapping[int, str] | None = None,
) -> list[VersionRow]:
    """One row per version, ascending; `damaged` ones by number."""
    named: dict[int, list[str]] = {}
    for alias, number in sorted(names(entries).items()):
        named.setdefault(number, []).append(alias)
    if newest is not None:
        named.setdefault(newest, []).append("latest")
    judged = measures_by_version(entries)
    verdicts = {entry.version: entry.reason for entry in entries if entry.kind == "KEEP"}
    rows = [
        VersionRow(
            number=manifest.number,
            parent=manifest.parent,
            created=manifest.created,
            epoch=manifest.epoch,
            events=events_of(manifest.counters),
            size=sum(file.size for file in manifest.files),
            watermark=manifest.watermark,
            aliases=tuple(named.get(manifest.number, ())),
            measures=judged.get(manifest.number, {}),
            duplicates=counted(manifest.counters, DUPLICATE),
            dead_letters=counted(manifest.counters, *_DEAD),
            verdict=verdicts.get(manifest.number, ""),
        )
        for manifest in manifests
    ]
    for number, why in (damaged or {}).items():
        carried, measures = tuple(named.get(number, ())), judged.get(number, {})
        rows.append(VersionRow(number, None, "", 0, 0, 0, None, carried, measures, why))
    return sorted(rows, key=lambda row: row.number)


def measures_by_version(entries: Iterable[LedgerEntry]) -> dict[int, Mapping[str, Any]]:
    """The newest measures of each judged version. A version that was refused has none."""
    found: dict[int, Mapping[str, Any]] = {}
    for entry in entries:
        if entry.kind == "KEEP" and entry.version is not None and not entry.measures.get(_REFUSED):
            found[entry.version] = entry.measures
    return found


def summary(entries: Sequence[LedgerEntry]) -> Summary:
    """Best version, stop and pause in force (a later RESUME lifts each), number of judged versions."""
    stop, pause = stop_in_force(entries), pause_in_force(entries)
    return Summary(
        best=aliases(entries).get("best"),
        stopped_by=stop.reason if stop else None,
        stopped_at=stop.version if stop else None,
        judged=len(measures_by_version(entries)),
        paused_by=pause.reason if pause else None,
    )
