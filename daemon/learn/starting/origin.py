"""Where a run begins: the newest valid version, a branch of an older one, or version 0 of an empty store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from checkpoints import Epoch, Version, VersionStore
from checkpoints.errors import CheckpointError
from checkpoints.manifest import Manifest, PartitionPosition
from daemon.config.model import Config
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.learn.applying import controls
from daemon.learn.applying.progress import Progress
from daemon.learn.applying.state import State
from daemon.learn.starting.continuing import (
    OtherLog,
    find_gaps,
    other_caps,
    refuse_other_settings,
    refuse_to_jump,
)
from daemon.learn.starting.fitting import Fitted
from daemon.learn.starting.inputs import Inputs
from daemon.learn.starting.options import LearnOptions, Start, choose_offsets, parse_start
from daemon.learn.starting.request import named, no_such_version, settled
from daemon.learn.starting.samelog import SameLog
from daemon.learn.writing.describe import Description, Expected, expected, runtime
from daemon.versions.algorithms import columns_of, untrained

log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class Origin:
    """A state at a position, the right to publish, and the version it continues from."""

    state: State
    progress: Progress
    describe: Description
    epoch: Epoch
    base: Manifest

    @property
    def parent(self) -> int:
        """The number of the version it continues from."""
        return self.base.number


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was asked for."""

    config: Config
    options: LearnOptions
    start: Start
    run: Expected
    inputs: Inputs
    same_log: SameLog


Fit = Callable[[Mapping[int, int]], Fitted | None]
"""Fits the maps, given the position the sample is read from; None when told to stop meanwhile."""


def find_origin(config: Config, options: LearnOptions, inputs: Inputs, fit: Fit) -> Origin | None:
    """Continue from a version, or publish version 0 and begin. None when told to stop while fitting.

    What must be refused is refused before the claim, so that a mistaken start never stops a running learner.
    Raises UserError.
    """
    run = expected(config, inputs.catalog_digest, inputs.identity)
    options = named(options, inputs.versions, inputs.ledger)
    same_log = SameLog(inputs.control, run.stream)
    plan = _Plan(config, options, parse_start(options.start), run, inputs, same_log)
    newest = inputs.versions.newest_manifest()  # damaged ones are reported when the version is loaded
    if newest is not None or options.restart_from is not None:
        asked = _still_asked(plan, newest)
        # Once more after the claim, from where an older learner has got to by then.
        _go_on(_standing(asked, newest), asked)
        return _continue(plan, inputs.versions.claim())
    offsets = _offsets(plan)
    fitted = fit(offsets)
    if fitted is None:
        return None
    epoch = inputs.versions.claim()
    if inputs.versions.versions():  # another learner wrote version 0 while the maps were fitted here
        return _continue(plan, epoch)
    return _first(plan, fitted, offsets, epoch)


def _first(plan: _Plan, found: Fitted, offsets: Mapping[int, int], epoch: Epoch) -> Origin:
    settings, fitted = plan.config.learner, found.space
    learner = untrained(settings, fitted.dim, columns_of(fitted), found.sample, plan.config.keys)
    state = State.first(learner, fitted, settings, plan.config.caps.as_learned)
    progress = Progress({p: PartitionPosition(offset) for p, offset in offsets.items()})
    describe = Description(plan.run, fitted)
    meta = describe(progress.snapshot(), None)
    manifest = plan.inputs.versions.publish(epoch, state.arrays(), meta)
    log.info("version 0 written: the untrained similarity", dim=fitted.dim, positions=dict(offsets))
    return Origin(state, progress, describe, epoch, manifest)


def _still_asked(plan: _Plan, newest: Manifest | None) -> _Plan:
    """The plan without a branch or change of the log that the newest version already descends from."""
    if newest is None:
        return plan
    options = settled(plan.options, newest, plan.inputs.versions)
    if options == plan.options:
        return plan
    return replace(plan, options=options, start=parse_start(options.start))


def _standing(plan: _Plan, newest: Manifest | None) -> Manifest:
    """The manifest of the version to go on from."""
    number = plan.options.restart_from
    if number is None:
        assert newest is not None, "without a version there is only a beginning"
        return newest
    with _readable(number, plan.inputs.versions):
        return plan.inputs.versions.manifest(number)


def _continue(plan: _Plan, epoch: Epoch) -> Origin:
    asked = _still_asked(plan, plan.inputs.versions.newest_manifest())
    version = _load(asked.options.restart_from, plan.inputs)
    if asked is not plan and _still_asked(plan, version.manifest) is plan:
        # What was asked for was made, but every version of it is damaged: make it anew.
        asked, version = plan, _load(plan.options.restart_from, plan.inputs)
    manifest = version.manifest
    progress = _go_on(manifest, asked)
    if asked is not plan:
        log.info("the branch or change of the log that is asked for was made before; --again makes it anew")
    if manifest.runtime != runtime():
        log.warning(
            "this version was computed by other packages or on another processor level: "
            "the same events need not give the same bits from here on",
            was=manifest.runtime,
            now=runtime(),
        )
    state = State.of_version(version, plan.config.learner)
    for entry in progress.snapshot().entries:
        log.warning("not simply going on; recorded in the schedule", entry=entry)
        assert isinstance(entry, dict), "nothing was learned yet"
        state.obey(entry)
    positions = progress.next_offsets()
    log.info("continuing", version=manifest.number, positions=positions, records=progress.records)
    return Origin(state, progress, Description(plan.run, state.fitted), epoch, manifest)


def _go_on(manifest: Manifest, plan: _Plan) -> Progress:
    """The progress to continue a version with; writes nothing. UserError where it must not be continued."""
    options, window = plan.options, plan.config.learner.dedupe_window
    refuse_other_settings(manifest, plan.run)
    progress = Progress.of_version(manifest)
    if options.restart_from is not None:
        progress.control(controls.branch(manifest.number, options.start, options.restart_name))
    if window and "dedupe_window" not in manifest.learner["config"]:
        progress.control(controls.dedupe(window))
    if (entry := other_caps(manifest, plan.run)) is not None:
        progress.control(entry)
    try:
        bounds = plan.same_log.check(manifest)
    except OtherLog:
        if not options.accept_log or plan.start.kind == "checkpoint":
            raise
        to = _offsets(plan)
        progress.control(controls.other_log(options.start, manifest.stream, plan.run.stream, to))
        return progress
    stands = progress.next_offsets()
    offsets = stands if plan.start.kind == "checkpoint" else _offsets(plan)
    if offsets == stands:
        for gap in find_gaps(manifest.positions, bounds, options.accept_gap):
            progress.control(gap.entry())
        return progress
    if not options.jump:
        refuse_to_jump(manifest, options.start, offsets)
    progress.control(controls.seek(options.start, stands, offsets))
    return progress


@contextmanager
def _readable(number: int | None, versions: VersionStore) -> Iterator[None]:
    """Around the reading of a version, the newest one without a number."""
    try:
        if number is not None and number not in (kept := versions.versions()):
            raise no_such_version(number, kept)
        yield
    except CheckpointError as error:
        code = EX_USAGE if number is not None else EX_DATAERR
        raise UserError(f"version {number} cannot be loaded: {error}", error.remedy, code) from error


def _load(number: int | None, inputs: Inputs) -> Version:
    with _readable(number, inputs.versions):
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


def _offsets(plan: _Plan) -> dict[int, int]:
    """Next offset per partition where this run is to begin, not looking at any version."""
    start, at_ts = plan.start, None
    if start.kind in ("ts", "last"):
        moment = start.ts if start.kind == "ts" else int((time.time() - start.back_s) * 1000)
        at_ts = plan.inputs.control.offsets_at(moment)
    return choose_offsets(start, plan.inputs.control.bounds(), at_ts)
