"""May this run continue from that version? Pure comparisons; messages name what differs and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints.manifest import Manifest, PartitionPosition
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_USAGE, UserError


@dataclass(frozen=True, slots=True)
class Expected:
    """What this run is configured with, in the terms of a manifest."""

    learner: str
    learner_config: Mapping[str, Any]
    space: str
    catalog_digest: str | None
    stream: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of a partition that were dropped from the log before they were learned: [wanted, earliest)."""

    partition: int
    wanted: int
    earliest: int

    @property
    def records(self) -> int:
        """Size of the gap."""
        return self.earliest - self.wanted

    def entry(self) -> dict[str, Any]:
        """The control entry that records that the gap was accepted."""
        return {"control": "gap", "partition": self.partition, "from": self.wanted, "to": self.earliest}


def differences(manifest: Manifest, expected: Expected) -> list[str]:
    """Every setting in which the version and this run differ, one readable line each."""
    lines: list[str] = []
    if manifest.learner.get("name") != expected.learner:
        lines.append(f"learner.algorithm: version {manifest.learner.get('name')!r}, now {expected.learner!r}")
    lines += _differing("learner", manifest.learner.get("config", {}), expected.learner_config)
    if manifest.space != expected.space:
        lines.append(f"space.id: version {manifest.space!r}, now {expected.space!r}")
    if manifest.catalog_digest != expected.catalog_digest:
        lines.append(
            f"catalog: version has digest {_short(manifest.catalog_digest)}, "
            f"now {_short(expected.catalog_digest)}"
        )
    return lines


def refuse_other_settings(manifest: Manifest, expected: Expected) -> None:
    """Raise UserError (config) when the version was learned with other settings, maps or catalog."""
    lines = differences(manifest, expected)
    if lines:
        raise UserError(
            f"version {manifest.number} was learned with other settings:\n  " + "\n  ".join(lines),
            "put the settings back, or set checkpoints.path to an empty folder to learn afresh",
            EX_CONFIG,
        )


def refuse_other_stream(manifest: Manifest, expected: Expected) -> None:
    """Raise UserError (data) when the version learned from another log, or the topic was made anew."""
    lines = _differing("stream", manifest.stream, expected.stream)
    if lines:
        raise UserError(
            f"version {manifest.number} was learned from another stream:\n  " + "\n  ".join(lines),
            "point stream.address to the log it was learned from, or set checkpoints.path to an empty folder",
            EX_DATAERR,
        )


def refuse_altered_record(manifest: Manifest, partition: int, found: str | None) -> None:
    """Raise UserError (data) when the last record learned from a partition is not the one in the log."""
    position = manifest.positions[partition]
    if found is not None and found != position.last_digest:
        raise UserError(
            f"version {manifest.number}: offset {position.next_offset - 1} of partition {partition} holds "
            f"another record than was learned (sha256 {_short(position.last_digest)}, now {_short(found)})",
            "the log was recreated or altered; restore it, or set checkpoints.path to an empty folder",
            EX_DATAERR,
        )


def refuse_to_jump(manifest: Manifest, start: str, offsets: Mapping[int, int]) -> None:
    """Raise UserError (usage): another start than the version's position repeats or skips records."""
    told = [
        f"partition {p}: {'repeat' if move < 0 else 'skip'} {abs(move):,} records"
        for p, offset in sorted(offsets.items())
        if (move := offset - manifest.positions[p].next_offset)
    ]
    raise UserError(
        f"--start {start} leaves the position of version {manifest.number}: it would " + "; ".join(told),
        "leave out --start to go on where the version stands, or add --jump (recorded in the schedule)",
        EX_USAGE,
    )


def find_gaps(
    positions: Mapping[int, PartitionPosition], bounds: Mapping[int, tuple[int, int]], accept: bool
) -> list[Gap]:
    """Gaps between the position and the oldest records kept; UserError (data) unless they are accepted.

    A position past the end of the log is always refused: records that were learned are no longer there.
    """
    for partition, position in positions.items():
        end = bounds[partition][1]
        if position.next_offset > end:
            raise UserError(
                f"version at offset {position.next_offset} of partition {partition}, whose end is {end}: "
                f"{position.next_offset - end} learned records are missing",
                "the log was recreated or is an older copy; set checkpoints.path to an empty folder",
                EX_DATAERR,
            )
    gaps = [
        Gap(p, position.next_offset, bounds[p][0])
        for p, position in sorted(positions.items())
        if position.next_offset < bounds[p][0]
    ]
    if gaps and not accept:
        named = "; ".join(
            f"partition {g.partition}: {g.records} records ({g.wanted} up to {g.earliest})" for g in gaps
        )
        raise UserError(
            f"records were dropped from the log before they were learned: {named}",
            "go on without them with --accept-gap (recorded in the schedule); lengthen stream.retention",
            EX_DATAERR,
        )
    return gaps


def _differing(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    missing = object()
    lines = []
    for key in sorted({*old, *new}):
        before, now = old.get(key, missing), new.get(key, missing)
        if before != now:
            lines.append(f"{prefix}.{key}: version {_shown(before, missing)}, now {_shown(now, missing)}")
    return lines


def _shown(value: Any, missing: object) -> str:
    return "has none" if value is missing else repr(value)


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]
