"""Where a run begins: what the command line asks for, and what follows: the newest valid version, a branch of
an older one, or version 0 of an empty store.

A branch or a change of the log is made once: after a restart the same command line continues with it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import structlog

from checkpoints import Epoch, Version, VersionStore, new_line
from checkpoints.manifest import Manifest, PartitionPosition, ScheduleEntry
from checkpoints.store import CheckpointError
from daemon.config.schema import Config
from daemon.config.values import parse_duration
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.learn import state as controls
from daemon.learn.compatible import (
    Description,
    Expected,
    OtherLog,
    SameLog,
    expected,
    find_gaps,
    grown,
    other_caps,
    other_known,
    other_race,
    other_times,
    refuse_other_settings,
    refuse_to_jump,
    runtime,
)
from daemon.learn.reader import Inputs
from daemon.learn.resume.fitting import Fitted
from daemon.learn.resume.shared_start import SharedStart, shared_start
from daemon.learn.state import LearnState, Progress
from daemon.models.decide import no_such_version, number_of
from daemon.versions.algorithms import columns_of, untrained
from daemon.versions.contents import EXPIRED
from daemon.versions.race import arms_of
from daemon.versions.storage import ancestry
from streams.errors import StreamError
from streams.limits import MAX_TS

START_HELP = (
    'checkpoint, earliest, latest, ts=2026-01-31T12:00:00Z, ts=1769860800000, last=1h or offset={"0": 1234}'
)


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """One run: leave when all is learned, where to start, branch from a version, accept expired records,
    leave the position of an existing version for `start`, continue with another log, branch or change the log
    again, start although another learner on this host has the checkpoint folder.

    `restart_name`: latest or an alias, which stands for `restart_from` where that is None. `shard`: which of
    the learners of [shards] this one is.
    """

    exit_when_caught_up: bool = False
    start: str = "checkpoint"
    restart_from: int | None = None
    accept_gap: bool = False
    jump: bool = False
    accept_log: bool = False
    again: bool = False
    restart_name: str | None = None
    take_over: bool = False
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class StartPoint:
    """A parsed start position: `ts` in ms since the epoch, `back_s` before now, `offsets` per partition."""

    kind: Literal["checkpoint", "earliest", "latest", "ts", "last", "offset"]
    ts: int = 0
    back_s: float = 0.0
    offsets: tuple[tuple[int, int], ...] = ()


def parse_start(text: str) -> StartPoint:
    """Read `--start`. Raises UserError (usage) that lists the accepted forms."""
    kind, _, value = text.partition("=")
    try:
        if text in ("checkpoint", "earliest", "latest"):
            return StartPoint(text)  # type: ignore[arg-type]
        if kind == "ts":
            return StartPoint("ts", ts=_milliseconds(value))
        if kind == "last":
            return StartPoint("last", back_s=parse_duration(value))
        if kind == "offset":
            return StartPoint("offset", offsets=_named_offsets(json.loads(value)))
    except (ValueError, TypeError) as error:
        raise UserError(f"start position {text!r}: {error}", f"use one of {START_HELP}", EX_USAGE) from None
    raise UserError(f"start position {text!r} is not known", f"use one of {START_HELP}", EX_USAGE)


def choose_offsets(
    start: StartPoint, bounds: Mapping[int, tuple[int, int]], at_ts: Mapping[int, int] | None
) -> dict[int, int]:
    """Next offset per partition; `checkpoint` counts as earliest here, for an empty store.

    `bounds` is (earliest, end) per partition; `at_ts` the first offsets at the time of `ts` or `last`.
    Raises UserError for partitions and offsets that the stream does not hold.
    """
    if start.kind == "latest":
        return {partition: end for partition, (_, end) in bounds.items()}
    if start.kind in ("ts", "last"):
        assert at_ts is not None
        return {partition: at_ts.get(partition, end) for partition, (_, end) in bounds.items()}
    chosen = {partition: earliest for partition, (earliest, _) in bounds.items()}
    for partition, offset in start.offsets:
        if partition not in bounds:
            raise UserError(
                f"start offset names partition {partition}, which the stream does not have",
                f"it has {', '.join(map(str, sorted(bounds)))}",
                EX_USAGE,
            )
        earliest, end = bounds[partition]
        if not earliest <= offset <= end:
            raise UserError(
                f"start offset {offset} of partition {partition} is outside the stream",
                f"it holds {earliest} up to {end}",
                EX_USAGE,
            )
        chosen[partition] = offset
    return chosen


def _milliseconds(value: str) -> int:
    if re.fullmatch(r"\d+", value):
        if int(value) > MAX_TS:
            raise ValueError("the time is beyond 2^53 - 1 milliseconds")
        return int(value)
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("the time needs a zone, such as Z or +02:00")
    return int(moment.timestamp() * 1000)


def _named_offsets(value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, dict) or not all(isinstance(v, int) and v >= 0 for v in value.values()):
        raise ValueError("offsets are a JSON object of partition: next offset")
    return tuple(sorted((int(partition), offset) for partition, offset in value.items()))


def without_what_was_made(options: LearnOptions, newest: Manifest, versions: VersionStore) -> LearnOptions:
    """The options without what the newest version already descends from; unchanged with `--again`.

    A service is restarted with the arguments it was started with, and must keep what it has learned since.
    """
    asks = options.restart_from is not None or options.accept_log
    if not asks or options.again or not _made(options, newest, versions):
        return options
    return replace(
        options, restart_from=None, restart_name=None, accept_log=False, start="checkpoint", jump=False
    )


def _made(options: LearnOptions, newest: Manifest, versions: VersionStore) -> bool:
    try:
        for link in ancestry(versions, newest.number):
            if any(_made_by(entry, options, newest.stream) for entry in link.schedule):
                return True
    except UserError:
        pass  # the line breaks off: nothing shows that it was made
    return False


def _made_by(entry: ScheduleEntry, options: LearnOptions, stream: dict[str, Any]) -> bool:
    if not isinstance(entry, dict) or entry.get("start") != options.start:
        return False
    if options.restart_from is not None:
        name = options.restart_name  # may mean another version after a while: the branch is made once
        same = entry.get("name") == name if name else entry.get("from_version") == options.restart_from
        return entry["control"] == "branch" and same
    # partitions may have been added since
    same_topic = {**entry.get("to", {}), "partitions": None} == {**stream, "partitions": None}
    return bool(entry["control"] == "log" and same_topic)


log = structlog.get_logger("tripletd.learn")


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """A state at a position, the right to publish, and the version it continues from."""

    state: LearnState
    progress: Progress
    describe: Description
    epoch: Epoch
    base: Manifest

    @property
    def parent(self) -> int:
        """The number of the version it continues from."""
        return self.base.number


@dataclass(frozen=True, slots=True)
class VersionName:
    """What the stream's note says of the version that it was last learned up to."""

    line: str
    number: int

    @classmethod
    def of(cls, note: str) -> VersionName | None:
        """Inverse of `Manifest.name`; None for anything else."""
        found = re.fullmatch(r"([0-9a-f]{16})@(\d{1,18})", note)
        return None if found is None else cls(found[1], int(found[2]))

    def __str__(self) -> str:
        return f"{self.line}@{self.number}"


@dataclass(frozen=True, slots=True)
class Fork:
    """The folder lacks the version `known` of its own line: what is written goes onto the new line `line`."""

    known: VersionName
    line: str


@dataclass(frozen=True, slots=True)
class _Plan:
    config: Config
    options: LearnOptions
    start: StartPoint
    run: Expected
    inputs: Inputs
    same_log: SameLog
    fork: Fork | None = None

    def claim(self) -> Epoch:
        """Become the writer, on a line of its own where the folder is an older copy."""
        if self.fork is None:
            return self.inputs.versions.claim()
        return self.inputs.versions.claim(self.fork.known.number, self.fork.line)


Fit = Callable[[Mapping[int, int]], Fitted | None]
"""Fits the maps, given the position the sample is read from; None when a stop came meanwhile."""


def find_origin(config: Config, options: LearnOptions, inputs: Inputs, fit: Fit) -> RunOrigin | None:
    """Continue from a version, or publish version 0 and begin. None when a stop came while fitting.

    What must be refused is refused before the claim, so that a mistaken start never stops a running learner.
    Raises UserError.
    """
    run = expected(config, inputs.catalog_digest, inputs.identity)
    if options.restart_name is not None:
        entries = inputs.ledger.entries(report=lambda error: None)
        number = number_of(options.restart_name, inputs.versions.versions(), entries)
        options = replace(options, restart_from=number)
    same_log = SameLog(inputs.control, run.stream)
    plan = _Plan(config, options, parse_start(options.start), run, inputs, same_log)
    newest = inputs.versions.newest_manifest()  # damaged ones are reported when the version is loaded
    known = _known(inputs)
    if newest is not None or options.restart_from is not None:
        asked = plan
        if newest is not None:
            plan = replace(plan, fork=_older_copy(inputs, newest, known))
            asked = _still_asked(plan, newest)
        # Once more after the claim, from where an older learner has got to by then.
        _go_on(_standing(asked, newest), asked)
        return _continue(plan, plan.claim())
    if known is not None:
        log.warning(
            "this folder has no version, and the stream was learned before: a new line begins with version "
            "0. If the folder was emptied, put a copy of it back to continue from there",
            learned_up_to=str(known),
        )
    offsets = _offsets(plan)
    shared = shared_start(config)
    fitted = fit(offsets) if shared is None else Fitted(shared.fitted)
    if fitted is None:
        return None
    epoch = inputs.versions.claim()
    if inputs.versions.versions():  # another learner wrote version 0 while the maps were fitted here
        return _continue(plan, epoch)
    return _first(plan, fitted, offsets, epoch, shared)


def _first(
    plan: _Plan, found: Fitted, offsets: Mapping[int, int], epoch: Epoch, shared: SharedStart | None = None
) -> RunOrigin:
    settings, fitted = plan.config.learner, found.space
    columns, keys = columns_of(fitted), plan.config.keys
    matrix = None if shared is None else shared.matrix
    learner = untrained(settings, fitted.dim, columns, found.sample, keys, own=fitted.own, shared=matrix)
    arms = arms_of(plan.config)
    state = LearnState.first(learner, fitted, settings, plan.config.caps.as_learned, arms)
    progress = Progress(
        {p: PartitionPosition(offset) for p, offset in offsets.items()}, _expired(plan, offsets)
    )
    if shared is not None:
        progress.control(shared.entry)
    describe = Description(plan.run, fitted)
    manifest = plan.inputs.versions.publish(epoch, state.arrays(), describe(progress.snapshot(), None))
    log.info("version 0 written: the untrained similarity", dim=fitted.dim, positions=dict(offsets))
    return RunOrigin(state, progress, describe, epoch, manifest)


def _expired(plan: _Plan, offsets: Mapping[int, int]) -> dict[str, int | float]:
    """The counter of what was gone before anything was learned, where all there ever was is asked for."""
    gone = sum(offsets.values()) if plan.start.kind in ("checkpoint", "earliest") else 0
    if not gone:
        return {}
    log.warning(
        "the log no longer holds its beginning: these records are never learned; where they were expected, "
        "lengthen stream.retention before feeding them again",
        records=gone,
        begins_at=dict(offsets),
    )
    return {EXPIRED: gone}


def _known(inputs: Inputs) -> VersionName | None:
    """The version that the stream was last learned up to, as far as it was noted there."""
    try:
        return VersionName.of(inputs.control.note())
    except StreamError:
        return None


def _older_copy(inputs: Inputs, newest: Manifest, known: VersionName | None) -> Fork | None:
    """A new line where the folder lacks what was written on its own one: it was put back from a copy."""
    if known is None or known.line != newest.line or known.number <= newest.number:
        return None
    has = next((number for number, _ in inputs.versions.listing.newest_first()), newest.number)
    if known.number <= has:
        return None
    fork = Fork(known, new_line())
    log.error(
        "this checkpoint folder is an older copy: versions were written on its line that it does not have. "
        "What was learned since is learned again, on a new line and under higher numbers; promotions made "
        "since the copy are gone",
        line=newest.line,
        has=has,
        written=known.number,
        new_line=fork.line,
    )
    return fork


def _still_asked(plan: _Plan, newest: Manifest) -> _Plan:
    options = without_what_was_made(plan.options, newest, plan.inputs.versions)
    if options == plan.options:
        return plan
    return replace(plan, options=options, start=parse_start(options.start))


def _standing(plan: _Plan, newest: Manifest | None) -> Manifest:
    number = plan.options.restart_from
    if number is None:
        assert newest is not None, "without a version there is only a beginning"
        return newest
    with _readable(number, plan.inputs.versions):
        return plan.inputs.versions.manifest(number)


def _continue(plan: _Plan, epoch: Epoch) -> RunOrigin:
    asked = plan
    if plan.options.restart_from is not None or plan.options.accept_log:
        newest = plan.inputs.versions.newest_manifest()
        asked = plan if newest is None else _still_asked(plan, newest)
    version = _load(asked.options.restart_from, plan.inputs)
    if asked is not plan and _still_asked(plan, version.manifest) is plan:
        # The branch was made, but every version of it is damaged: make it again.
        asked, version = plan, _load(plan.options.restart_from, plan.inputs)
    manifest = version.manifest
    progress = _go_on(manifest, asked)
    if asked is not plan:
        what = "this branch or change of the log was made before, and is continued"
        log.info(f"{what}; --again makes it once more")
    if manifest.runtime != runtime():
        log.warning(
            "this version was computed by other packages or on another processor level: "
            "the same events need not give the same bits from here on",
            was=manifest.runtime,
            now=runtime(),
        )
    state = LearnState.of_version(version, plan.config.learner)
    for entry in progress.snapshot().entries:
        log.warning("the run departs from its version; recorded in the schedule", entry=entry)
        assert isinstance(entry, dict), "nothing was learned yet"
        state.obey(entry)
    positions = progress.next_offsets()
    log.info("continuing", version=manifest.number, positions=positions, records=progress.records)
    describe = Description(plan.run.as_learned(manifest), state.fitted)
    return RunOrigin(state, progress, describe, epoch, manifest)


def _go_on(manifest: Manifest, plan: _Plan) -> Progress:
    """The progress to continue a version with; writes nothing. UserError where it must not be continued."""
    options, window = plan.options, plan.config.learner.dedupe_window
    run = plan.run.as_learned(manifest)
    refuse_other_settings(manifest, run)
    progress = Progress.of_version(manifest)
    if options.restart_from is not None:
        progress.control(controls.branch(manifest.number, options.start, options.restart_name))
    if window and "dedupe_window" not in manifest.learner["config"]:
        progress.control(controls.dedupe(window))
    others = (other(manifest, run) for other in (other_caps, other_times, other_race))
    for entry in (other_known(manifest), *others):
        if entry is not None:
            progress.control(entry)
    if plan.fork is not None:
        progress.control(controls.line(str(plan.fork.known), plan.fork.line, "restored"))
    try:
        bounds = plan.same_log.check(manifest)
    except OtherLog:
        if not options.accept_log or plan.start.kind == "checkpoint":
            raise
        to = _offsets(plan)
        progress.control(controls.other_log(options.start, manifest.stream, plan.run.stream, to))
        return progress
    if (entry := grown(manifest, plan.run.stream)) is not None:
        progress.control(entry)
    now = progress.next_offsets()
    offsets = now if plan.start.kind == "checkpoint" else _offsets(plan)
    if offsets == now:
        for gap in find_gaps(progress.positions, bounds, options.accept_gap):
            progress.control(gap.entry())
        return progress
    if not options.jump:
        refuse_to_jump(manifest, options.start, offsets)
    progress.control(controls.seek(options.start, now, offsets))
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
        version = inputs.versions.newest_valid(lambda e: log.error("version passed over", error=str(e)))
    if version is None:
        raise UserError(
            f"no version in {inputs.place} can be loaded: all are damaged",
            "restore the folder from a copy, or set checkpoints.path to an empty one",
            EX_DATAERR,
        )
    return version


def _offsets(plan: _Plan) -> dict[int, int]:
    start, at_ts = plan.start, None
    if start.kind in ("ts", "last"):
        moment = start.ts if start.kind == "ts" else int((time.time() - start.back_s) * 1000)
        at_ts = plan.inputs.control.offsets_at(moment)
    return choose_offsets(start, plan.inputs.control.bounds(), at_ts)
