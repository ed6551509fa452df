"""The merge of the shards' versions, and what a shard goes on with when a merged one arrives. Pure.

With W_b the merged version before, W_k that of shard k, which went on from W_b, and u_k the updates it took
since, the merged one is

    W = W_b + sum over k of w_k (W_k - W_b),

where w_k = 1, the sum of all steps, after a short period, and w_k = u_k / (sum of all u) after a long one
(averaged rankers, Chechik et al., JMLR 11 (2010), section 5.4); learners of another kind say in
`learners.merge` what their states add up to. A shard has meanwhile gone on to W_now. It continues with

    W_now + (W - W_k):

the merged version, and on top of it what it has learned since its version k. So no shard ever waits. A
version of a shard that had not taken over W_b yet when it was written is brought onto it in the same way.

Both are functions of recorded versions alone, so a replay comes to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkpoints import Manifest, Version
from checkpoints.manifest import PartitionPosition
from daemon.config.learners import LearnerConfig
from daemon.learn.state import LearnState, Positions
from daemon.versions.algorithms import (
    caps_of,
    columns_of,
    keys_of,
    learner_config_of,
    map_of,
    merge_of,
)
from daemon.versions.contents import (
    APPLIED,
    REJECTED,
    UPDATED,
    Arrays,
    caps_arrays,
    counted,
    known_in,
    learned_arrays,
    map_arrays,
    pack,
    window_arrays,
)
from daemon.versions.race import race_of
from daemon.versions.shards import ADOPT, MergeRecord, ShardRecord, added, summed
from learners.caps import united_steps
from streams.ids import united_ids
from streams.shards import Shard

Counters = dict[str, int | float]

SHORT = 5_000
"""Events that no shard may have passed since the merged version before, for the sum of their steps to be as
good as one learner's, of up to 8 shards; after 20,000 it no longer is (docs/shards.md)."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merged version is: arrays as of a version, positions, counters, newest event time (ms), and how
    it came about."""

    arrays: Arrays
    positions: Positions
    counters: Counters
    watermark: int | None
    record: MergeRecord


@dataclass(frozen=True, slots=True)
class Brought:
    """A shard's version that is to be merged. held: the arrays of what the merged version before holds of the
    shard (`daemon.versions.shards.standing`), None where the shard went on from just that one. since: the
    counters there."""

    version: Version
    held: Arrays | None
    since: Mapping[str, int | float]

    def brings(self, *names: str) -> int:
        """By how much these counters have grown since what the merged version before holds."""
        return counted(added(self.version.manifest.counters, self.since), *names)

    @property
    def updates(self) -> int:
        """Updates it brings."""
        return self.brings(UPDATED)

    @property
    def events(self) -> int:
        """Events it brings, whatever their steps were."""
        return self.brings(*APPLIED)


def merge(base: Version, brought: Mapping[int, Brought], record: MergeRecord) -> Merged:
    """The version after `base` that holds what these shards' versions bring, by shard number.

    record: what it will hold of each shard. Without any, the arrays are those of the base.
    """
    order = [brought[k] for k in sorted(brought)]
    manifests = [one.version.manifest for one in order]
    counters = [added(one.version.manifest.counters, one.since) for one in order]
    marks = [base.manifest.watermark, *(one.watermark for one in manifests)]
    positions: dict[int, PartitionPosition] = dict(base.manifest.positions)
    for one in manifests:
        positions |= one.positions
    return Merged(
        _arrays(base, order, record.summed) if order else base.arrays,
        positions,
        summed([base.manifest.counters, *counters]),
        max((mark for mark in marks if mark is not None), default=None),
        record,
    )


def _arrays(base: Version, order: Sequence[Brought], summed: bool) -> Arrays:
    manifest, first = base.manifest, learned_arrays(base.arrays)
    config = learner_config_of(manifest)
    fitted = map_of(base)
    arms = race_of(manifest)[1]
    algebra = merge_of(config, columns_of(fitted), keys_of(manifest), own=fitted.own, arms=arms)
    states = []
    for one in order:
        state = learned_arrays(one.version.arrays)
        if one.held is not None:
            state = algebra.rebased(state, learned_arrays(one.held), first)
        states.append(state)
    learned = algebra.states(first, states, [one.updates for one in order], summed)
    known = [one.brings(*known_in(one.version.manifest)) for one in order]
    let_in = [one.brings(*APPLIED, REJECTED) for one in order]
    return united(base, learned, [one.version.arrays for one in order], known, let_in)


def united(
    base: Version, learned: Arrays, brought: Sequence[Arrays], known: Sequence[int], let_in: Sequence[int]
) -> Arrays:
    """The arrays of a version that follows `base`: what was learned, and the ids and caps of all.

    brought: of each learner. known, let_in: how many ids and steps each has more than `base`.
    """
    config, caps = learner_config_of(base.manifest), caps_of(base.manifest)
    ids = [window_arrays(one) for one in brought]
    window = united_ids(config.dedupe_window, window_arrays(base.arrays), ids, known)
    steps = united_steps(caps, caps_arrays(base.arrays), [caps_arrays(one) for one in brought], let_in)
    return pack(learned, window, map_arrays(base.arrays), steps)


def take_over(state: LearnState, merged: Version, counted_arrays: Arrays, config: LearnerConfig) -> None:
    """Have a shard's state go on from a merged version; known ids and caps stay what they are.

    counted_arrays: of the shard's own version that the merged one holds, or of the merged one before where it
    holds nothing new of the shard. Raises StateError.
    """
    fitted, keys = state.fitted, keys_of(merged.manifest)
    algebra = merge_of(config, columns_of(fitted), keys, own=fitted.own, arms=state.arms.configs)
    arrays = algebra.rebased(state.learned(), learned_arrays(counted_arrays), learned_arrays(merged.arrays))
    state.go_on_with(arrays, config, keys)


def first_record(merged: Manifest, shard: Shard, number: int) -> ShardRecord:
    """Of a shard's version `number` that begins with a merged version: nothing is learned on top of it."""
    return ShardRecord(shard, merged.number, merged.name, number, {})


def next_record(mine: ShardRecord, merged: Manifest, own: Manifest | None) -> ShardRecord:
    """Of a shard that takes over a merged version. own: its own version that this one holds, None where that
    holds nothing new of it, so that all that counted for the next merge still does."""
    if own is None:
        return ShardRecord(mine.shard, merged.number, merged.name, mine.counted, mine.since)
    return ShardRecord(mine.shard, merged.number, merged.name, own.number, dict(own.counters))


def adopt_entry(record: ShardRecord, begins: bool = False, before: int | None = None) -> dict[str, Any]:
    """The control entry of a shard that begins with a merged version, or takes one over. before: the merged
    version that it had before, where the new one holds nothing new of the shard; None where it does."""
    entry = {"control": ADOPT, "begins": begins, "shard": record.json()}
    return entry if before is None else {**entry, "before": before}


def positions_of(merged: Manifest, shard: Shard) -> Positions:
    """Where a shard that begins with a merged version reads on."""
    return {p: at for p, at in merged.positions.items() if shard.takes(p)}
