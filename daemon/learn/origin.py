"""Where a run begins: the newest valid version, a branch of an older one, or version 0 of an empty store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import structlog

from checkpoints import Epoch, Version
from checkpoints.errors import CheckpointError
from checkpoints.manifest import Manifest, PartitionPosition
from daemon.config.model import Config
from daemon.exits import EX_DATAERR, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.learn.algorithms import restored, untrained
from daemon.learn.describe import Description, expected, runtime
from daemon.learn.inputs import Inputs
from daemon.learn.options import LearnOptions, Start, choose_offsets, parse_start
from daemon.learn.progress import Progress
from daemon.learn.resume import (
    Expected,
    find_gaps,
    refuse_altered_record,
    refuse_other_settings,
    refuse_other_stream,
    refuse_to_jump,
)
from daemon.versions.arrays import learner_arrays, map_arrays, pack
from learners.maps import FittedSpaceMap
from learners.protocol import Learner

CHECK_SECONDS = 5.0

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class Origin:
    """A learner at a position, the right to publish, and the version it continues from."""

    learner: Learner
    fitted: FittedSpaceMap
    progress: Progress
    describe: Description
    epoch: Epoch
    parent: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was asked for."""

    config: Config
    options: LearnOptions
    start: Start
    run: Expected
    inputs: Inputs


Fit = Callable[[Mapping[int, int]], FittedSpaceMap | None]
"""Fits the maps, given the position the sample is read from; None when told to stop meanwhile."""


def find_origin(config: Config, options: LearnOptions, inputs: Inputs, fit: Fit) -> Origin | None:
    """Continue from a version, or publish version 0 and begin. None when told to stop while fitting.

    What must be refused is refused before the claim, so that a mistaken start never stops a running learner.
    Raises UserError.
    """
    run = expected(config, inputs.catalog_digest, inputs.identity)
    plan = _Plan(config, options, parse_start(options.start), run, inputs)
    standing = inputs.versions.newest_manifest()  # damaged ones are reported when the version is loaded
    if options.restart_from is not None:
        with _readable(options.restart_from):
            standing = inputs.versions.manifest(options.restart_from)
    if standing is not None:
        _go_on(standing, plan)  # once more after the claim, from where an older learner has got to by then
        return _continue(plan, inputs.versions.claim())
    offsets = _offsets(plan)
    fitted = fit(offsets)
    if fitted is None:
        return None
    epoch = inputs.versions.claim()
    if inputs.versions.versions():  # another learner wrote version 0 while the maps were fitted here
        return _continue(plan, epoch)
    return _first(plan, fitted, offsets, epoch)


def _first(plan: _Plan, fitted: FittedSpaceMap, offsets: Mapping[int, int], epoch: Epoch) -> Origin:
    learner = untrained(plan.config.learner, fitted.dim)
    progress = Progress({p: PartitionPosition(offset) for p, offset in offsets.items()})
    describe = Description(plan.run, fitted)
    arrays, meta = pack(learner.state(), fitted.arrays()), describe(progress.snapshot(), None)
    manifest = plan.inputs.versions.publish(epoch, arrays, meta)
    log.info("version 0 written: the untrained similarity", dim=fitted.dim, positions=dict(offsets))
    return Origin(learner, fitted, progress, describe, epoch, manifest.number)


def _continue(plan: _Plan, epoch: Epoch) -> Origin:
    version = _load(plan.options.restart_from, plan.inputs)
    manifest = version.manifest
    progress = _go_on(manifest, plan)
    for entry in progress.snapshot().entries:
        log.warning("not simply going on; recorded in the schedule", entry=entry)
    if manifest.runtime != runtime():
        log.warning(
            "this version was computed by other packages or on another processor level: "
            "the same events need not give the same bits from here on",
            was=manifest.runtime,
            now=runtime(),
        )
    fitted = FittedSpaceMap.load(manifest.map["spec"], map_arrays(version.arrays))
    learner = restored(plan.config.learner, learner_arrays(version.arrays))
    positions = progress.next_offsets()
    log.info("continuing", version=manifest.number, positions=positions, records=progress.records)
    describe = Description(plan.run, fitted)
    return Origin(learner, fitted, progress, describe, epoch, manifest.number)


def _go_on(manifest: Manifest, plan: _Plan) -> Progress:
    """The progress to continue a version with; writes nothing. UserError where it must not be continued."""
    refuse_other_settings(manifest, plan.run)
    refuse_other_stream(manifest, plan.run)
    progress = Progress(dict(manifest.positions), dict(manifest.counters), manifest.watermark)
    if plan.options.restart_from is not None:
        progress.control({"control": "branch", "from_version": manifest.number})
    stands = progress.next_offsets()
    offsets = stands if plan.start.kind == "checkpoint" else _offsets(plan)
    if offsets == stands:
        _check_positions(manifest, plan, progress)
        return progress
    if not plan.options.jump:
        refuse_to_jump(manifest, plan.options.start, offsets)
    _seek(plan, progress, offsets)
    return progress


@contextmanager
def _readable(number: int | None) -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        code = EX_USAGE if number is not None else EX_DATAERR
        raise UserError(f"version {number} cannot be loaded: {error}", error.remedy, code) from error


def _load(number: int | None, inputs: Inputs) -> Version:
    with _readable(number):
        if number is not None:
            return inputs.versions.load(number)
        version = inputs.versions.newest_valid(
            lambda error: log.error("version passed over", error=str(error))
        )
    if version is None:
        raise UserError(
            f"no version in {inputs.store.root} can be loaded: each is damaged",
            "restore the folder from a copy, or set checkpoints.path to an empty one",
            EX_DATAERR,
        )
    return version


def _check_positions(manifest: Manifest, plan: _Plan, progress: Progress) -> None:
    """The position must be in the log, right behind the record that was learned last."""
    bounds = plan.inputs.control.bounds()
    gaps = find_gaps(manifest.positions, bounds, plan.options.accept_gap)
    for partition, position in manifest.positions.items():
        last = position.next_offset - 1
        if position.last_digest is not None and last >= bounds[partition][0]:
            refuse_altered_record(manifest, partition, _digest_at(plan.inputs, partition, last))
    for gap in gaps:
        progress.control(gap.entry(), {gap.partition: PartitionPosition(gap.earliest)})


def _digest_at(inputs: Inputs, partition: int, offset: int) -> str | None:
    """sha256 of the record at an offset; None where the log keeps no record at it."""
    inputs.control.assign({partition: offset})
    batch = inputs.control.poll(1, CHECK_SECONDS)
    if batch is None:
        raise UserError(
            f"offset {offset} of partition {partition} could not be read within {CHECK_SECONDS:.0f} s",
            "the stream is slow or unavailable: try again",
            EX_TEMPFAIL,
        )
    return sha256(batch.values[0] or b"").hexdigest() if batch.offsets[0] == offset else None


def _offsets(plan: _Plan) -> dict[int, int]:
    """Next offset per partition where this run is to begin, not looking at any version."""
    start, at_ts = plan.start, None
    if start.kind in ("ts", "last"):
        moment = start.ts if start.kind == "ts" else int((time.time() - start.back_s) * 1000)
        at_ts = plan.inputs.control.offsets_at(moment)
    return choose_offsets(start, plan.inputs.control.bounds(), at_ts)


def _seek(plan: _Plan, progress: Progress, offsets: Mapping[int, int]) -> None:
    """Leave the version's position for another one: an explicit branch, recorded."""
    entry: dict[str, Any] = {
        "control": "seek",
        "start": plan.options.start,
        "from": {str(p): offset for p, offset in progress.next_offsets().items()},
        "to": {str(p): offset for p, offset in offsets.items()},
    }
    progress.control(entry, {p: PartitionPosition(offset) for p, offset in offsets.items()})
