"""Averaged rankers: one version of several learners that learned alike from different events.

It is written to a checkpoint folder of its own, as version 1 behind the version 0 that they share, so that no
learner is disturbed: judged, served, followed and compared as any other, and a learner may go on from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from checkpoints import Damaged, LocalStore, Manifest, Version, VersionMeta, VersionStore
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_USAGE, UserError
from daemon.versions.arrays import learner_arrays
from daemon.versions.average_entry import average_entry
from learners import average_states
from learners.errors import LearnerError

FIRST = 0
"""The untrained version."""


@dataclass(frozen=True, slots=True)
class Source:
    """A version to average. told: as the user named it."""

    versions: VersionStore
    number: int
    told: str


@dataclass(frozen=True, slots=True)
class Averaged:
    """What was written: the number, in which folder, and the events of all sources together."""

    number: int
    folder: str
    events: int


def average(sources: Sequence[Source], weights: Sequence[float], into: Path) -> Averaged:
    """Write version 0 of the first source, and version 1: the weighted mean of all, to an empty folder.

    Version 1 stands at the first source's position of its stream, where a learner would go on; counters are
    added up, event ids and caps begin anew. Memory: the W of every source and one more. Raises UserError for
    versions that do not load, whose learner, settings, space or map differ, or whose learner has more than a
    matrix; and where the folder holds anything.
    """
    loaded = [_load(one, one.number) for one in sources]
    for one, version in zip(sources[1:], loaded[1:], strict=True):
        _same(sources[0], loaded[0].manifest, one, version.manifest)
    first = _load(sources[0], FIRST)
    try:
        mean = average_states([learner_arrays(version.arrays) for version in loaded], weights)
    except LearnerError as error:
        raise UserError(
            f"these versions cannot be averaged: {error}",
            "averaged are versions of oasis, dissim-oasis and lego, with weights >= 0, one of them above 0",
            EX_DATAERR,
        ) from error
    return _write(first, mean, [version.manifest for version in loaded], weights, into)


def _write(
    first: Version,
    mean: Mapping[str, NDArray[Any]],
    manifests: Sequence[Manifest],
    weights: Sequence[float],
    into: Path,
) -> Averaged:
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UserError(f"{into} is there and not empty", "name a folder that is to be made", EX_CANTCREAT)
    versions = VersionStore(LocalStore(into))
    epoch = versions.claim()
    versions.publish(epoch, first.arrays, _meta(first.manifest))
    told = {
        "parent": FIRST,
        "schedule": (average_entry(manifests, weights),),
        "counters": _summed([one.counters for one in manifests]),
        "watermark": max((one.watermark for one in manifests if one.watermark is not None), default=None),
    }
    written = versions.publish(epoch, {**first.arrays, **mean}, _meta(manifests[0], **told))
    return Averaged(written.number, str(into), int(mean["events"]))


def _meta(manifest: Manifest, **changes: Any) -> VersionMeta:
    return VersionMeta(**({one.name: getattr(manifest, one.name) for one in fields(VersionMeta)} | changes))


def _summed(counters: Sequence[Mapping[str, int | float]]) -> dict[str, int | float]:
    names = sorted({name for one in counters for name in one})
    return {name: sum(one.get(name, 0) for one in counters) for name in names}


def _load(source: Source, number: int) -> Version:
    try:
        return source.versions.load(number)
    except Damaged as error:
        told = source.told if number == source.number else f"version {number}, which {source.told} began as,"
        raise UserError(f"{told} does not load: {error.problem}", error.remedy, EX_DATAERR) from error


def _same(first: Source, reference: Manifest, other: Source, manifest: Manifest) -> None:
    """Raise UserError naming what differs."""
    pairs = (
        ("space", manifest.space, reference.space),
        ("map", manifest.map.get("id"), reference.map.get("id")),
        ("learner", manifest.learner.get("name"), reference.learner.get("name")),
        ("settings", manifest.learner.get("config"), reference.learner.get("config")),
        ("catalog", manifest.catalog_digest, reference.catalog_digest),
    )
    for what, own, wanted in pairs:
        if own != wanted:
            raise UserError(
                f"{other.told} has another {what} than {first.told}: their numbers mean different things",
                "average versions of learners that began from one version 0, by copies of its folder, and "
                "read different events",
                EX_USAGE,
            )
