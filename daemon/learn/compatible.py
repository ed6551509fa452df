"""This run in the terms of a manifest, and whether it may continue from a version. Messages name what differs
and the remedy.

Before anything is claimed or learned, the log is asked whether it is the one the version was learned from.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import metadata
from typing import Any

from checkpoints.manifest import Manifest, PartitionPosition, VersionMeta
from daemon.config.schema import Config
from daemon.exits import EX_CONFIG, EX_DATAERR, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.learn.state import KNOWN_IDS, Entry, Snapshot, caps, gap, partitions, times
from daemon.versions.algorithms import ADDED_LATER, CAPS, KEYS, LEFT_OUT, caps_in, caps_of, keys_of
from daemon.versions.contents import (
    DROPPED,
    KNOWN,
    MAX_FUTURE,
    ONLY_LEARNED,
    PAIRS,
    max_future_of,
    refused_known,
    watermark_of,
)
from daemon.versions.order import ARMS
from daemon.versions.race import race_entry, race_settings, recorded_race, without_dropped
from daemon.versions.shards import ShardRecord
from learners.kernels.cpu import CPU_LEVEL
from learners.maps import FittedSpaceMap
from streams.catalog import Catalog
from streams.decode import BatchDecoder
from streams.event import SpaceSpec, ViewSpec
from streams.source import NO_TOPIC_IDS, Source, TopicIdentity

CHECK_SECONDS = 5.0
TURNS = 3  # polls per partition before the partitions that have answered are left out
PACKAGES = ("tripletd", "numpy", "scipy", "numba", "llvmlite", "scikit-learn")

Bounds = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What this run is configured with, in the terms of a manifest."""

    learner: str
    learner_config: Mapping[str, Any]
    space: str
    catalog_digest: str | None
    stream: Mapping[str, Any]
    former: Mapping[str, Any] | None = None
    """The learner's settings as they were meant before the maps by default kept the user's own ranking; None
    where nothing is by default, or nothing has changed."""

    def as_learned(self, manifest: Manifest) -> Expected:
        """The run in the terms of a version: a store continues with the maps it was made with, and without
        the arms that were dropped from it."""
        before = None if self.former is None else replace(self, learner_config=self.former, former=None)
        run = before if before is not None and not differences(manifest, before) else self
        dropped = recorded_race(manifest.learner["config"])[DROPPED]
        return replace(run, learner_config=without_dropped(run.learner_config, dropped))


def learner_settings(config: Config) -> dict[str, Any]:
    """Every setting that W depends on; a version learned with others is refused."""
    settings = config.learner.model_dump()
    if config.space.own_similarity:
        settings["similarity"] = config.space.own_similarity
    elif "start" in settings:
        settings["start"] = "identity"  # there is nothing else to begin from
    settings.pop("algorithm")
    settings.pop("race")
    settings |= race_settings(config)
    settings["max_record_bytes"] = config.stream.max_record_bytes  # decides which records are poison
    settings[MAX_FUTURE] = round(1000 * config.stream.max_future)  # this, too
    settings[KNOWN] = ONLY_LEARNED
    if config.caps.as_learned.any:
        settings[CAPS] = asdict(config.caps.as_learned)
    if config.keys.slots:
        settings[KEYS] = config.keys.model_dump(exclude=set() if config.keys.start else {"start"})
    settings["views"] = {name: _view(view.model_dump()) for name, view in config.space.views.items()}
    return settings


def _view(settings: dict[str, Any]) -> dict[str, Any]:
    """A view's settings; one without kernels reads as it did before kernels existed, as do others that were
    added later where they are as usual."""
    usual = {"kernels": [], "weight": 1.0, "epsilon": 1.0, "idf": "smooth", "column_order": "auto"}
    return {name: value for name, value in settings.items() if name not in usual or value != usual[name]}


def _former(config: Config, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings with the maps that dense views had by default before; see `Expected`."""
    by_default = [
        name
        for name, view in settings["views"].items()
        if view["kind"] == "dense" and config.origin_of(f"space.views.{name}.map") == "default"
    ]
    if not by_default or config.origin_of("space.similarity") != "default":
        return None
    views = settings["views"] | {name: {**settings["views"][name], "map": "whiten"} for name in by_default}
    before = {name: value for name, value in settings.items() if name != "similarity"}
    before |= {"views": views, ARMS: []}
    return before | {"start": "identity"} if "start" in before else before


def decoder_of(manifest: Manifest, catalog: Catalog | None) -> BatchDecoder:
    """A decoder that refuses what the version's own learner refused."""
    recorded = manifest.learner["config"]
    views = tuple(ViewSpec(name, view["kind"], view["dim"]) for name, view in recorded["views"].items())
    space = SpaceSpec(manifest.space, views)
    topic, largest = manifest.stream["topic"], recorded["max_record_bytes"]
    keyed, bound = keys_of(manifest).slots > 0, max_future_of(manifest)
    return BatchDecoder(space, catalog, topic, largest, keyed, max_future_ms=bound)


def digest_of(settings: Mapping[str, Any]) -> str:
    """sha256 of the settings as canonical JSON."""
    return sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def expected(config: Config, catalog_digest: str | None, identity: TopicIdentity) -> Expected:
    """What a version must have been learned with for this run to continue from it."""
    settings = learner_settings(config)
    return Expected(
        config.learner.algorithm,
        settings,
        config.space.id,
        catalog_digest,
        asdict(identity),
        _former(config, settings),
    )


DENSE_STEPS = "delayed"
"""How steps on dense rows are computed. Another way rounds otherwise: what an earlier release learned, whose
versions name none, is recomputed to rounding and not to the bit."""


@cache
def package_versions() -> Mapping[str, str]:
    """The version of every package that results depend on; what is not installed is left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a source tree that was never installed
            continue
    return found


def runtime() -> dict[str, Any]:
    """Package versions, Python, the processor level the kernels were compiled for, and the way of steps."""
    return {
        "packages": dict(package_versions()),
        "python": platform.python_version(),
        "cpu_level": CPU_LEVEL,
        "dense_steps": DENSE_STEPS,
    }


class Description:
    """Fills the part of a manifest that is the same for every version of a run."""

    def __init__(self, run: Expected, fitted: FittedSpaceMap) -> None:
        self.run = run
        self.change({})
        self.partitions = int(run.stream["partitions"])
        """Of the topic; who notices that some were added says so here."""
        self._map = {"id": fitted.id, "spec": fitted.spec()}
        self.runtime = runtime()

    def change(self, settings: Mapping[str, Any]) -> None:
        """Have the next versions say that these settings of the learner are others now."""
        now = {**self.run.learner_config, **settings}
        self.run = replace(self.run, learner_config=now)
        self._learner = {"name": self.run.learner, "config": now, "config_digest": digest_of(now)}

    def __call__(self, snapshot: Snapshot, parent: int | None) -> VersionMeta:
        """The meta of a version for this snapshot."""
        return VersionMeta(
            learner=self._learner,
            space=self.run.space,
            map=self._map,
            catalog_digest=self.run.catalog_digest,
            seed=0,  # no learner draws from it; the field stays for the format
            parent=parent,
            positions=snapshot.positions,
            stream={**self.run.stream, "partitions": self._partitions(snapshot)},
            schedule=snapshot.entries,
            counters=snapshot.counters,
            watermark=snapshot.watermark,
            runtime=self.runtime,
            shard=snapshot.shard,
        )

    def _partitions(self, snapshot: Snapshot) -> int:
        """As many as were there at the start, and those added since."""
        return max(self.partitions, len(snapshot.positions))


ACCEPT_LOG = (
    "restore the log, or set checkpoints.path to an empty folder; or continue here with --accept-log and a "
    "--start other than checkpoint (recorded in the schedule)"
)


class OtherLog(UserError):
    """The log is not, or no longer, the one that was learned from. `--accept-log` continues all the same."""

    def __init__(self, message: str, remedy: str = ACCEPT_LOG) -> None:
        super().__init__(message, remedy, EX_DATAERR)


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

    def entry(self) -> Entry:
        """The control entry that records that the gap was accepted."""
        return gap(self.partition, self.wanted, self.earliest)


def differences(manifest: Manifest, expected: Expected) -> list[str]:
    """Every setting in which the version and this run differ, one readable line each."""
    lines: list[str] = []
    if manifest.learner.get("name") != expected.learner:
        lines.append(f"learner.algorithm: version {manifest.learner.get('name')!r}, now {expected.learner!r}")
    old, now = manifest.learner.get("config", {}), expected.learner_config
    unknown_then = {name: now[name] for name in ADDED_LATER if name in now}
    unknown_then |= {name: meant for name, meant in LEFT_OUT.items() if name in now}
    lines += _differing("learner", _lasting({**unknown_then, **old}), _lasting(now))
    if manifest.space != expected.space:
        lines.append(f"space.id: version {manifest.space!r}, now {expected.space!r}")
    if manifest.catalog_digest != expected.catalog_digest:
        lines.append(
            f"catalog: version has digest {_short(manifest.catalog_digest)}, "
            f"now {_short(expected.catalog_digest)}"
        )
    return lines


def other_known(manifest: Manifest) -> Entry | None:
    """The control entry where the version knew the ids of refused events, too, else None."""
    return {"control": KNOWN_IDS} if refused_known(manifest) else None


def other_caps(manifest: Manifest, expected: Expected) -> Entry | None:
    """The control entry where other caps hold from now on than the version was learned under, else None.

    No refusal: caps are changed on purpose, often in the middle of an attack.
    """
    now = caps_in(expected.learner_config)
    return None if now == caps_of(manifest) else caps(asdict(now))


def other_race(manifest: Manifest, expected: Expected) -> Entry | None:
    """The control entry where other pairs are learned from now on, or by other arms, than the version was
    learned with; else None. No refusal: what the main learner has learned stands."""
    now, was = recorded_race(expected.learner_config), recorded_race(manifest.learner["config"])
    return None if now == was else race_entry(now)


def other_times(manifest: Manifest, expected: Expected) -> Entry | None:
    """The control entry where event times are bounded otherwise from now on, or a wrong one had set the
    version's watermark; else None. Each start makes the same: it depends on the version and the settings.
    """
    now, mark = expected.learner_config[MAX_FUTURE], watermark_of(manifest)
    corrected = None if mark == manifest.watermark else mark
    return times(now, corrected) if corrected is not None or now != max_future_of(manifest) else None


CHANGING = (CAPS, KNOWN, MAX_FUTURE, PAIRS, ARMS, DROPPED)
"""Settings that may change in a folder, each by a control entry."""


def _lasting(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in CHANGING}


def refuse_other_settings(manifest: Manifest, expected: Expected) -> None:
    """Raise UserError (config) when the version was learned with other settings, maps or catalog."""
    lines = differences(manifest, expected)
    if lines:
        raise UserError(
            f"version {manifest.number} was learned with other settings:\n  " + "\n  ".join(lines),
            "put the settings back, or set checkpoints.path to an empty folder to learn afresh",
            EX_CONFIG,
        )


def refuse_other_stream(
    manifest: Manifest, stream: Mapping[str, Any], bounds: Mapping[int, tuple[int, int]]
) -> None:
    """Raise OtherLog when the version learned from another log or topic, or the topic was re-created.

    Partitions that were added to the topic since are no difference, where its id is known.
    `stream`: this log's identity as a manifest has it; `bounds`: what it holds, named in the message.
    """
    lines = _differing("stream", manifest.stream, stream)
    if not lines or grown(manifest, stream) is not None:
        return
    if _more_of_unknown(manifest, stream):
        stands = manifest.positions
        starts = {str(p): stands[p].next_offset if p in stands else 0 for p in sorted(bounds)}
        raise OtherLog(
            f"version {manifest.number} was learned from {manifest.stream['partitions']} partitions, the "
            f"topic has {stream['partitions']} now; the broker gives topics no id, so it may or may not "
            "be the same one",
            "if it is, and partitions were added to it: --accept-log --start "
            f"'offset={json.dumps(starts)}' continues at the "
            "version's position, and reads the new ones from their beginning (recorded in the schedule); "
            "else restore the log, or set checkpoints.path to an empty folder",
        )
    what = "was learned from another stream"
    if manifest.stream.get("log_id") != stream["log_id"]:
        what = "was learned from another log or cluster"
    elif manifest.stream.get("topic") == stream["topic"] and "topic_id" in lines[-1]:
        what = "was learned from a topic of this name that was deleted; this one was created later"
    lines += [
        f"partition {p}: the version stands at {at.next_offset:,}, this log {_held(bounds.get(p))}"
        for p, at in sorted(manifest.positions.items())
    ]
    raise OtherLog(f"version {manifest.number} {what}:\n  " + "\n  ".join(lines))


def grown(manifest: Manifest, stream: Mapping[str, Any]) -> Entry | None:
    """The control entry where partitions were added to the topic since the version, else None."""
    try:
        before = TopicIdentity(**manifest.stream)
    except TypeError:
        return None
    now = TopicIdentity(**stream)
    if not now.grew_from(before):
        return None
    mine = ShardRecord.of(manifest)
    return partitions(before.partitions, now.partitions, mine.shard if mine else None)


def _more_of_unknown(manifest: Manifest, stream: Mapping[str, Any]) -> bool:
    unlike = [name for name in {*manifest.stream, *stream} if manifest.stream.get(name) != stream.get(name)]
    return (
        unlike == ["partitions"]
        and stream["topic_id"] in NO_TOPIC_IDS
        and manifest.stream["partitions"] < stream["partitions"]
    )


def refuse_past_the_end(manifest: Manifest, bounds: Mapping[int, tuple[int, int]]) -> None:
    """Raise OtherLog when records that were learned are no longer there."""
    for partition, position in sorted(manifest.positions.items()):
        end = bounds[partition][1]
        if position.next_offset > end:
            raise OtherLog(
                f"version {manifest.number} stands at offset {position.next_offset:,} of partition "
                f"{partition}, which ends at {end:,}: {position.next_offset - end:,} learned records are "
                "missing; the log lost its end (an unclean election), was recreated, or is an older copy"
            )


def refuse_altered_record(manifest: Manifest, partition: int, found: str | None) -> None:
    """Raise OtherLog when the last record learned from a partition is not the one in the log.

    `found`: sha256 of the record at the offset, None where there is none any more.
    """
    position = manifest.positions[partition]
    if found == position.last_digest:
        return
    learned, now = _short(position.last_digest), "no record any more"
    if found is not None:
        now = f"another record (sha256 {_short(found)})"
    raise OtherLog(
        f"version {manifest.number}: partition {partition} holds {now} at offset "
        f"{position.next_offset - 1:,}, where the last one was learned (sha256 {learned}): records were lost "
        "and written again (an unclean election), or the log was recreated, altered or compacted"
    )


def refuse_to_jump(manifest: Manifest, start: str, offsets: Mapping[int, int]) -> None:
    """Raise UserError (usage): another start than the version's position repeats or skips records."""
    moves = [
        f"partition {p}: {'repeat' if move < 0 else 'skip'} {abs(move):,} records"
        for p, offset in sorted(offsets.items())
        if (move := offset - (manifest.positions[p].next_offset if p in manifest.positions else 0))
    ]
    raise UserError(
        f"--start {start} leaves the position of version {manifest.number}: it would " + "; ".join(moves),
        "leave out --start to continue where the version stands, or add --jump (recorded in the schedule)",
        EX_USAGE,
    )


def find_gaps(
    positions: Mapping[int, PartitionPosition], bounds: Mapping[int, tuple[int, int]], accept: bool
) -> list[Gap]:
    """Gaps between the position and the oldest records kept; UserError (data) unless they are accepted."""
    gaps = [
        Gap(p, position.next_offset, bounds[p][0])
        for p, position in sorted(positions.items())
        if position.next_offset < bounds[p][0]
    ]
    if gaps and not accept:
        raise records_gone(gaps)
    return gaps


def records_gone(gaps: Sequence[Gap]) -> UserError:
    """What a learner says of records that were dropped before it learned them, running or at its start."""
    named = "; ".join(
        f"partition {g.partition}: {g.records} records ({g.wanted} up to {g.earliest})" for g in gaps
    )
    return UserError(
        f"records were dropped from the log before they were learned: {named}",
        "to continue without them, run once `tripletd learn --accept-gap --exit-when-caught-up` "
        "(recorded in the schedule), then start again as before; lengthen stream.retention",
        EX_DATAERR,
    )


def _differing(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    missing = object()
    lines = []
    for key in sorted({*old, *new}):
        before, now = old.get(key, missing), new.get(key, missing)
        if before != now:
            lines.append(f"{prefix}.{key}: version {_shown(before, missing)}, now {_shown(now, missing)}")
    return lines


def _held(bounds: tuple[int, int] | None) -> str:
    return "does not have it" if bounds is None else f"holds {bounds[0]:,} up to {bounds[1]:,}"


def _shown(value: Any, missing: object) -> str:
    return "has none" if value is missing else repr(value)


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:12]


class SameLog:
    """Asks the log once per version, however often a start looks at one. `stream`: see `check_same_log`."""

    def __init__(self, source: Source, stream: Mapping[str, Any]) -> None:
        self._source, self._stream = source, stream
        self._asked: tuple[Manifest, Bounds] | None = None

    def check(self, manifest: Manifest) -> Bounds:
        """See `check_same_log`."""
        if self._asked is None or self._asked[0] != manifest:
            self._asked = manifest, check_same_log(self._source, manifest, self._stream)
        return self._asked[1]


def check_same_log(source: Source, manifest: Manifest, stream: Mapping[str, Any]) -> Bounds:
    """The log's bounds; OtherLog unless it holds, right before each position, the record learned last.

    `stream`: the log's identity as manifests have it. The position is one past a record that was learned, so
    that record's offset is known, whatever offsets without records (transaction markers) follow it. A record
    that has expired cannot be compared; nor one in a stretch that was damaged when its turn came.
    """
    bounds = source.bounds()
    refuse_other_stream(manifest, stream, bounds)
    refuse_past_the_end(manifest, bounds)
    last = {
        partition: position.next_offset - 1
        for partition, position in manifest.positions.items()
        if position.last_digest is not None and position.next_offset > bounds[partition][0]
    }
    for partition, digest in sorted(digests_at(source, last).items()):
        refuse_altered_record(manifest, partition, digest)
    return bounds


def digests_at(source: Source, offsets: Mapping[int, int]) -> dict[int, str | None]:
    """sha256 of the record at one offset of each partition; None where the log keeps no record at it.

    Raises UserError (try again) when a partition keeps silent.
    """
    found: dict[int, str | None] = {}
    missing = dict(offsets)
    while missing:
        source.assign(missing)
        before = len(missing)
        for _ in range(TURNS * before):
            batch = source.poll(1, CHECK_SECONDS)
            if batch is None:
                break
            wanted = missing.pop(batch.partition, None)
            if wanted is not None:
                is_there = batch.offsets[0] == wanted
                found[batch.partition] = sha256(batch.values[0] or b"").hexdigest() if is_there else None
            if not missing:
                break
        reached = source.reached()
        passed = [partition for partition, offset in missing.items() if reached[partition] > offset]
        found |= dict.fromkeys(passed)
        missing = {partition: offset for partition, offset in missing.items() if partition not in passed}
        if len(missing) == before:
            place = f"offset {missing[min(missing)]:,} of partition {min(missing)}"
            raise UserError(
                f"{place} could not be read within {CHECK_SECONDS:.0f} s",
                "the stream is slow or unavailable: try again",
                EX_TEMPFAIL,
            )
    return found
