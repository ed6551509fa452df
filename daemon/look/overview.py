"""Versions as people see them: one row each, what of a store can be read, the models of single keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from checkpoints import (
    Ledger,
    LedgerEntry,
    Manifest,
    VersionStore,
    aliases,
    names,
    pause_in_force,
    stop_in_force,
)
from checkpoints.encoding import fresh
from daemon.versions.contents import APPLIED, DUPLICATE, POISON, REJECTED, counted, watermark_of
from daemon.versions.key_verdicts import KeyVerdict
from daemon.versions.verdict import PlainAnswer, Stopped

_OUTCOMES = (*APPLIED, REJECTED)
_DEAD = (POISON, REJECTED)
_REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version: what its manifest says, the measures of its newest judgment, the names it carries.

    `duplicates` are events that were sent again and changed nothing; `events` are the others. `dead_letters`:
    records that could not be learned from. `verdict`: what the newest judgment of it says. `damaged`: why its
    manifest cannot be read, empty when it can; then what it would say is 0, "" or None. `line`: of history,
    "" where it is not known.
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
    line: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the verdicts amount to: the best version, the STOP and the learner's own pause in force.

    verdict: the newest answer to "is it better for my users?", None where none was given. stop: what a STOP
    waits for, where validate gave it. form: in which the best version is served and why, a sentence; None
    where it is as configured. unseen: how the newest version judged on them does on kinds of queries that are
    never learned, None where there are none.
    """

    best: int | None = None
    stopped_by: str | None = None
    stopped_at: int | None = None
    judged: int = 0
    paused_by: str | None = None
    verdict: PlainAnswer | None = None
    stop: Stopped | None = None
    form: str | None = None
    unseen: str | None = None


def events_of(counters: Mapping[str, int | float]) -> int:
    """Events that the main learner was given, whatever their outcome; those that arms alone learn are left
    out, as they are in curves and in what patience counts."""
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
            watermark=watermark_of(manifest),
            aliases=tuple(named.get(manifest.number, ())),
            measures=judged.get(manifest.number, {}),
            duplicates=counted(manifest.counters, DUPLICATE),
            dead_letters=counted(manifest.counters, *_DEAD),
            verdict=verdicts.get(manifest.number, ""),
            line=manifest.line,
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
    judged, best = measures_by_version(entries), aliases(entries).get("best")
    return Summary(
        best=best,
        stopped_by=stop.reason if stop else None,
        stopped_at=stop.version if stop else None,
        judged=len(judged),
        paused_by=pause.reason if pause else None,
        verdict=next(filter(None, (PlainAnswer.of(one.measures) for one in reversed(entries))), None),
        stop=None if stop is None else Stopped.from_json(stop.measures),
        form=None if best is None else form_of(judged.get(best, {})),
        unseen=next(filter(None, map(_unseen, reversed(entries))), None),
    )


def form_of(measures: Mapping[str, Any]) -> str | None:
    """In which form a version is served and why, by the measures of its judgment; None: as configured."""
    form = measures.get("form")
    return str(form.get("why")) if isinstance(form, Mapping) else None


def _unseen(entry: LedgerEntry) -> str | None:
    """How a version does on kinds of queries of which nothing is learned; None where none is held out."""
    found = entry.measures
    if "unseen_preference" not in found:
        return None
    queries = f"{round(found['unseen_queries']):,} queries of kinds that are never learned"
    preferred = f"{found['unseen_preference']:+.4f} (error {found['unseen_error']:.4f})"
    return f"version {entry.version} is preferred to your own ranking by {preferred} on {queries}"


@dataclass(frozen=True, slots=True)
class Readable:
    """Manifests and ledger entries, ascending; `damaged`: version -> why its manifest cannot be read;
    `notes`: everything that was passed over, one line each.
    """

    manifests: list[Manifest]
    entries: list[LedgerEntry]
    damaged: dict[int, str]
    notes: list[str]

    @property
    def newest(self) -> int | None:
        """The newest version, readable or not; None without any."""
        return max([*self.damaged, *(one.number for one in self.manifests)], default=None)


def read_all(versions: VersionStore, ledger: Ledger, known: dict[int, Manifest] | None = None) -> Readable:
    """Read every manifest and entry. Raises Damaged only when nothing can be listed.

    known: manifests by number that are not read again, since they never change; brought up to date.
    """
    entries, notes = read_entries(ledger)
    known = {} if known is None else known
    damaged, candidates = {}, versions.listing.candidates()
    for gone in known.keys() - set(candidates):
        del known[gone]
    unknown = [number for number in candidates if number not in known]
    for number, read in zip(unknown, versions.manifests(unknown), strict=True):
        if isinstance(read, Manifest):
            known[number] = read
        elif number in versions.listing.candidates():  # else pruned meanwhile
            damaged[number] = str(read)
    manifests = [known[number] for number in candidates if number in known]
    kept = [one for one in manifests if one.kind == "version"]
    return Readable(kept, entries, damaged, [*damaged.values(), *notes])


def read_entries(ledger: Ledger) -> tuple[list[LedgerEntry], list[str]]:
    """The readable entries, and one line for each that is not."""
    notes: list[str] = []
    return ledger.entries(report=lambda error: notes.append(str(error))), notes


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of a version: its events since it got its model, and what was judged; verdict "" where not."""

    key: str
    events: int
    verdict: str = ""
    impressions: int | None = None
    decision: float | None = None
    version_0: float | None = None
    why: str = ""


def key_rows(events: Mapping[str, int], verdicts: Mapping[str, KeyVerdict] | None) -> list[KeyRow]:
    """The keys that have a model, those with most events first, then those that were judged and have none."""
    judged = verdicts or {}
    ordered = sorted(events, key=lambda key: (-events[key], key))
    strangers = sorted(key for key in judged if key not in events)
    said = {key: asdict(verdict) for key, verdict in judged.items()}
    return [KeyRow(key, events.get(key, 0), **said.get(key, {})) for key in (*ordered, *strangers)]


def read_events(versions: VersionStore, number: int) -> dict[str, int] | None:
    """How many events each key of a version had; None where there is one model for all. The whole version is
    verified, and nothing of the models is kept. Raises Damaged.
    """
    from daemon.versions.algorithms import keys_of  # brings numba in, which `status` does without
    from learners.keyed import KEY_ARRAYS

    if not keys_of(versions.manifest(number)).slots:
        return None
    arrays = versions.load(number, lambda spec: fresh(spec) if spec.name in KEY_ARRAYS else None).arrays
    names = [row.tobytes().rstrip(b"\0").decode() for row in arrays["key_name"]]
    events = arrays["key_events"].tolist()
    return {name: count for name, count in zip(names, events, strict=True) if name}
