"""The learner's state and its progress: all that the next step depends on, and how far learning has come.
Pure.

One `Progress` belongs to one learning loop and changes only in `advance` and `control`; what a version
records is the frozen `Snapshot`. The schedule is appended to rather than copied because with many slow
partitions it holds tens of thousands of runs between two versions.

Control entries of a schedule record what changes the position or the state other than learning what comes
next:

| entry | meaning |
|---|---|
| `branch` | continues from an older version (`from_version`) than the newest; `start`, `name`: as asked for |
| `seek` | left the position: offsets `from` and `to` by partition; `start`: as it was asked for |
| `gap` | offsets [`from`, `to`) of a partition had expired and were accepted as lost |
| `damaged` | offsets [`from`, `to`) of a partition could not be read, so nothing was learned from them |
| `suspect` | at the last of offsets [`from`, `to`) of a partition the process died twice: it was left out |
| `line` | a new line of history, `to`, begins in a folder that lacks the version named `from`; `why` |
| `partitions` | the topic had `from` partitions and has `to` now; the new ones begin at offset 0 |
| `log` | continues with another log: identities `from` and `to`, `positions` there; `start`: as asked for |
| `dedupe` | from here on the newest `window` event ids are known, none at first |
| `caps` | from here on these `caps` hold; what was done before counts for none of them |
| `known` | from here on only what was learned is known by its id: what was refused can be sent again |
| `race` | from here on `pairs` says what the main learner learns; other `arms`: see `daemon.versions.race` |
| `times` | from here on event times up to `max_future_ms` past arrival are taken; `watermark`: set to this |
| `start` | of version 0: all keys begin from the matrix and the maps of the version that `of` names |
| `adopt` | a shard goes on from a merged version: see `daemon.versions.shards` and `daemon.learn.merges` |
| `merge` | the version is merged of those of the shards; no event was learned here |
| `backfill` | learned from history: see `daemon.backfill.plan`; `positions`: where the log goes on, if set |

A `seek` that goes back in any partition asks to learn events again: it forgets the event ids known so far and
what counts for caps.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from checkpoints import Version
from checkpoints.manifest import Manifest, PartitionPosition, ScheduleEntry
from daemon.config.learners import KeysConfig, LearnerConfig
from daemon.memory.cores import usable_cores
from daemon.versions.algorithms import caps_of, columns_of, full_step, keys_of, map_of, restored
from daemon.versions.contents import (
    LOSS_SUM,
    MAX_FUTURE,
    RECORDS,
    Arrays,
    arms_arrays,
    caps_arrays,
    counted,
    learner_arrays,
    pack,
    refused_known,
    window_arrays,
    with_arms,
)
from daemon.versions.race import RACE, race_of, raced
from daemon.versions.shards import ADOPT, MERGE
from learners.arms import ArmConfig, Arms, PairRule
from learners.base import Learner
from learners.caps import CapsConfig, StepWindow
from learners.maps import FittedSpaceMap
from streams.errors import StreamError
from streams.ids import IdWindow
from streams.poison import CORRUPT_BATCH, SUSPECT
from streams.shards import Shard

Entry = dict[str, Any]
Positions = dict[int, PartitionPosition]

TIMES = "times"
KNOWN_IDS = "known"
BACKFILL = "backfill"
"""The control entry of a version that was learned from history."""
UNREAD = {CORRUPT_BATCH: "damaged", SUSPECT: "suspect"}
"""The control entries of what was passed over unread, by the reason of its dead letter."""
KINDS = (
    "branch",
    "seek",
    "gap",
    *UNREAD.values(),
    "partitions",
    "line",
    "log",
    "dedupe",
    "caps",
    "start",
    RACE,
    KNOWN_IDS,
    TIMES,
    ADOPT,
    MERGE,
)


def branch(from_version: int, start: str, name: str | None = None) -> Entry:
    """The entry of a branch; `name`: by which the version was asked for, None for its number."""
    named = {} if name is None else {"name": name}
    return {"control": "branch", "from_version": from_version, "start": start, **named}


def seek(start: str, offsets: Mapping[int, int], to: Mapping[int, int]) -> Entry:
    """The entry of a jump from the position `offsets`."""
    return {"control": "seek", "start": start, "from": _by_name(offsets), "to": _by_name(to)}


def gap(partition: int, wanted: int, earliest: int) -> Entry:
    """The entry of records that had expired."""
    return {"control": "gap", "partition": partition, "from": wanted, "to": earliest}


def line(known: str, to: str, why: str) -> Entry:
    """The entry of a new line of history; `known`: the name of the version that the folder does not have."""
    return {"control": "line", "from": known, "to": to, "why": why}


def partitions(had: int, has: int, shard: Shard | None = None) -> Entry:
    """The entry of partitions that were added to the topic; of a shard, `added` names those that are its."""
    added = {} if shard is None else {"added": shard.among(range(had, has))}
    return {"control": "partitions", "from": had, "to": has, **added}


def other_log(start: str, old: Mapping[str, Any], new: Mapping[str, Any], to: Mapping[int, int]) -> Entry:
    """The entry of a change of the log; `old`, `new`: identities as manifests have them under `stream`."""
    return {"control": "log", "start": start, "from": dict(old), "to": dict(new), "positions": _by_name(to)}


def dedupe(window: int) -> Entry:
    """The entry of a window of event ids that begins."""
    return {"control": "dedupe", "window": window}


def caps(settings: Mapping[str, float]) -> Entry:
    """The entry of other caps; `settings`: fields of `learners.caps.CapsConfig`."""
    return {"control": "caps", "caps": dict(settings)}


def times(max_future_ms: int, watermark: int | None = None) -> Entry:
    """The entry of another bound on event times; `watermark`: set to this, where a wrong time had set it."""
    corrected = {} if watermark is None else {"watermark": watermark}
    return {"control": TIMES, MAX_FUTURE: max_future_ms, **corrected}


def repeats(entry: Entry) -> bool:
    """Whether an entry goes back, so as to learn again what was learned."""
    return entry["control"] == "seek" and any(
        int(offset) < int(entry["from"][partition]) for partition, offset in entry["to"].items()
    )


def moved(entry: Entry, positions: Positions) -> Positions:
    """The positions after an entry. KeyError or ValueError for one that is not made as above."""
    kind = entry["control"]
    if kind == "gap" or kind in UNREAD.values():
        return {**positions, int(entry["partition"]): PartitionPosition(int(entry["to"]))}
    if kind == "seek":
        return {**positions, **_positions(entry["to"])}
    if kind == "partitions":
        added = entry.get("added", range(int(entry["from"]), int(entry["to"])))
        return {**{int(p): PartitionPosition(0) for p in added}, **positions}
    if kind == BACKFILL:
        return {**positions, **_positions(entry.get("positions", {}))}
    return _positions(entry["positions"]) if kind == "log" else positions


def _by_name(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _positions(offsets: Mapping[str, int]) -> Positions:
    return {int(partition): PartitionPosition(int(offset)) for partition, offset in offsets.items()}


@dataclass(slots=True)
class LearnState:
    """The main learner, the ids of the events it had, the frozen map in front of it, and what sources,
    queries and items did to it lately; the pairs that it learns, and the arms beside it. full_step: see
    `learners.caps`. refused_known: whether refused events are known by their ids, as they were in earlier
    releases. threads: in how many the main learner and the arms learn a batch; nothing depends on it."""

    learner: Learner
    window: IdWindow
    fitted: FittedSpaceMap
    caps: StepWindow
    full_step: float | None
    pairs: PairRule
    arms: Arms
    refused_known: bool = False
    threads: int = field(default_factory=usable_cores)

    @classmethod
    def of_version(cls, version: Version, config: LearnerConfig) -> Self:
        """The state a version holds, its large arrays taken over. Raises StateError, MapError or StreamError.

        A version written before event ids were kept continues with a window that knows none; an arm without
        arrays, as in an average of versions, begins untrained.
        """
        known = window_arrays(version.arrays)
        if version.manifest.learner["config"].get("dedupe_window") and not known:
            raise StreamError(
                f"version {version.manifest.number} lacks the window of event ids it was to keep"
            )
        fitted = map_of(version)
        pairs, arms = race_of(version.manifest)
        return cls(
            restored(
                config,
                learner_arrays(version.arrays),
                columns_of(fitted),
                keys_of(version.manifest),
                own=fitted.own,
            ),
            IdWindow.from_arrays(config.dedupe_window, known),
            fitted,
            StepWindow.from_arrays(caps_of(version.manifest), caps_arrays(version.arrays), _salt()),
            full_step(config),
            pairs,
            _arms(fitted, arms, arms_arrays(version.arrays)),
            refused_known(version.manifest),
        )

    @classmethod
    def first(
        cls,
        learner: Learner,
        fitted: FittedSpaceMap,
        config: LearnerConfig,
        caps: CapsConfig,
        arms: Sequence[ArmConfig] = (),
    ) -> Self:
        """The state before any event."""
        window, steps = IdWindow(config.dedupe_window), StepWindow(caps, _salt())
        return cls(learner, window, fitted, steps, full_step(config), config.pairs, _arms(fitted, arms))

    def obey(self, entry: Entry) -> None:
        """Do to the state what a control entry means for it; most mean nothing."""
        if entry["control"] == "dedupe":
            self.window = IdWindow(entry["window"])
        elif entry["control"] == KNOWN_IDS:
            self.refused_known = False
        elif entry["control"] == RACE:
            self.pairs, arms = raced(entry)
            self.arms = self.arms.changed(arms)
        elif entry["control"] == "caps":
            self.caps = StepWindow(CapsConfig(**entry["caps"]), _salt())
        elif repeats(entry):
            self.window = IdWindow(self.window.capacity)
            self.caps = StepWindow(self.caps.config, _salt())

    def arrays(self) -> Arrays:
        """The arrays of a version, without copying: they change with the next step."""
        return pack(self.learned(), self.window.arrays(), self.fitted.arrays(), self.caps.arrays())

    def learned(self) -> Arrays:
        """What the learner and the arms have learned, as `arrays` has it."""
        return with_arms(self.learner.state(), self.arms.state())

    def go_on_with(self, learned: Arrays, config: LearnerConfig, keys: KeysConfig) -> None:
        """Have the learner and the arms go on from what `learned` gave, taking it over. Raises StateError."""
        columns, own = columns_of(self.fitted), self.fitted.own
        self.learner = restored(config, learner_arrays(learned), columns, keys, own=own)
        self.arms = _arms(self.fitted, self.arms.configs, arms_arrays(learned))

    def warm_up(self) -> None:
        """Load the kernels before the first event. Raises RuntimeError."""
        self.learner.warm_up(self.fitted.sparse)
        self.arms.warm_up()


def _arms(fitted: FittedSpaceMap, configs: Sequence[ArmConfig], arrays: Arrays | None = None) -> Arms:
    return Arms(fitted.dim, configs, None if fitted.own is None else fitted.own.metric, arrays)


def _salt() -> int:
    """Where names lie in the table of the caps is not for those to know who choose them. No result depends on
    it."""
    return secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying one batch of one partition did.

    `next_offset` is one past the last record of the batch, poison included; `last_digest` is that record's
    sha256 (hex). `counts` adds to the counters (events by outcome, dead letters by reason); `losses`
    float32[n] are the hinge losses of the applied events in order; `newest_ts` their newest event time, ms.
    `unread`: the reason of the dead letter of what was passed over unread, without a digest; see `UNREAD`.
    """

    partition: int
    next_offset: int
    last_digest: str | None
    records: int
    counts: Mapping[str, int]
    losses: npt.NDArray[np.float32]
    newest_ts: int | None = None
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Progress at one event boundary, as a version records it. `entries`: the schedule since its parent.
    `shard`: as `Manifest.shard`."""

    positions: dict[int, PartitionPosition]
    entries: tuple[ScheduleEntry, ...]
    counters: dict[str, int | float]
    watermark: int | None
    shard: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """Positions, schedule since the last durable version, counters since version 0, newest event time; of a
    shard, where it stands to the merged versions."""

    positions: dict[int, PartitionPosition]
    counters: dict[str, int | float] = field(default_factory=dict)
    watermark: int | None = None
    shard: dict[str, Any] = field(default_factory=dict)
    _entries: list[ScheduleEntry] = field(default_factory=list)
    _sealed: int = 0  # runs before this index belong to a captured snapshot: never extended

    @classmethod
    def of_version(cls, manifest: Manifest) -> Self:
        """The progress that a version records."""
        return cls(
            dict(manifest.positions), dict(manifest.counters), manifest.watermark, dict(manifest.shard)
        )

    @property
    def records(self) -> int:
        """Records passed since version 0, poison included: what `checkpoints.every_events` counts."""
        return counted(self.counters, RECORDS)

    @property
    def moved(self) -> bool:
        """Whether anything happened since the last durable version."""
        return bool(self._entries)

    def next_offsets(self) -> dict[int, int]:
        """Next offset to read, per partition."""
        return {partition: position.next_offset for partition, position in self.positions.items()}

    def last_digests(self) -> dict[int, str]:
        """sha256 (hex) of the last record learned, per partition that has one right before its position."""
        return {p: at.last_digest for p, at in self.positions.items() if at.last_digest is not None}

    def advance(self, applied: Applied) -> None:
        """Move past one batch. Only call it once the batch is applied and its dead letters are durable."""
        start = self.positions[applied.partition].next_offset
        if applied.next_offset <= start:
            raise ValueError(f"partition {applied.partition} at {start} cannot move to {applied.next_offset}")
        if applied.unread is not None:
            place = {"partition": applied.partition, "from": start, "to": applied.next_offset}
            self.control({"control": UNREAD[applied.unread], **place})
        else:
            self._append_run(applied.partition, start, applied.next_offset)
        self.positions[applied.partition] = PartitionPosition(applied.next_offset, applied.last_digest)
        for name, count in applied.counts.items():
            self.counters[name] = self.counters.get(name, 0) + count
        self.counters[RECORDS] = self.records + applied.records
        self.counters[LOSS_SUM] = add_in_order(float(self.counters.get(LOSS_SUM, 0.0)), applied.losses)
        if applied.newest_ts is not None:
            self.watermark = (
                applied.newest_ts if self.watermark is None else max(self.watermark, applied.newest_ts)
            )

    def control(self, entry: dict[str, Any]) -> None:
        """Record a control entry, and take the positions and the watermark it sets."""
        self._entries.append(entry)
        self._sealed = len(self._entries)
        self.positions = moved(entry, self.positions)
        self.watermark = entry.get("watermark", self.watermark)
        self.shard = entry.get("shard", self.shard)

    def snapshot(self) -> Snapshot:
        """What a version records now. Later runs are kept apart from the captured ones, for `published`."""
        self._sealed = len(self._entries)
        return Snapshot(
            dict(self.positions), tuple(self._entries), dict(self.counters), self.watermark, self.shard
        )

    def published(self, snapshot: Snapshot) -> None:
        """The snapshot is durable: it is the parent now, and its part of the schedule is forgotten."""
        del self._entries[: len(snapshot.entries)]
        self._sealed = max(0, self._sealed - len(snapshot.entries))

    def _append_run(self, partition: int, start: int, stop: int) -> None:
        last = self._entries[-1] if len(self._entries) > self._sealed else None
        if isinstance(last, tuple) and last[0] == partition and last[2] == start:
            self._entries[-1] = (partition, last[1], stop)
        else:
            self._entries.append((partition, start, stop))


def add_in_order(total: float, losses: npt.NDArray[np.float32]) -> float:
    """`total` plus each loss in order, in float64, so that the sum does not depend on the batch sizes."""
    if losses.size == 0:
        return total
    return float(np.cumsum(np.concatenate(([total], losses.astype(np.float64))))[-1])
