"""How a shard begins: with the merged version, unless its own line of versions goes on from there.

A shard's folder that was lost, emptied or put back from an older copy costs nothing but work: what the merged
version holds stays, and what the shard had learned since its last merge is learned again.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from checkpoints import Manifest, Version, VersionStore
from checkpoints.store import CheckpointError
from daemon.exits import UserError
from daemon.learn.merges import adopt_entry, first_record, positions_of
from daemon.learn.reader import Inputs
from daemon.versions.contents import meta_like
from daemon.versions.shards import MergeRecord, ShardRecord, standing
from streams.shards import Shard

log = structlog.get_logger("tripletd.learn")

WAITING = "waiting for `tripletd merge` to write version 0"


def begin_shard(inputs: Inputs, go_on: Callable[[str], bool]) -> bool:
    """Have the shard's folder hold a version to continue from; False where `go_on(what it waits for)` said to
    stop. Raises UserError and the errors of checkpoints.
    """
    assert inputs.shard is not None, "a learner of all partitions has nothing to wait for"
    assert inputs.merged is not None

    def pass_over(error: CheckpointError) -> None:
        log.error("merged version passed over", error=str(error))

    while (merged := inputs.merged.newest_valid(pass_over)) is None:
        if not go_on(WAITING):
            return False
    own = inputs.versions.newest_manifest()
    if own is not None:
        why = why_reset(inputs.versions, own, inputs.merged, merged.manifest)
        if why is None:
            return True
        log.warning("this shard starts over with the merged version", merged=merged.manifest.name, why=why)
    _begin(inputs.versions, merged, inputs.shard)
    return True


def why_reset(versions: VersionStore, own: Manifest, merges: VersionStore, merged: Manifest) -> str | None:
    """Why a shard cannot go on from its own newest version; None where it can."""
    mine = ShardRecord.of(own)
    if mine is None:
        return f"version {own.number} is of no shard"
    record = MergeRecord.in_version(merged)
    part = None if record is None else record.part(mine.shard)
    if part is not None and part.line == own.line and part.version > own.number:
        return f"the merged version holds its version {part.version}, and the newest here is {own.number}"
    if own.map.get("id") != merged.map.get("id"):
        return "the merged version has another map"
    held = standing(merged, mine, own.line)
    try:
        if held.own is not None:
            versions.manifest(held.own)
        elif held.before is not None and merges.manifest(held.before).name != mine.name:
            return f"{mine.name}, which it went on from, is not among the merged versions"
    except CheckpointError as error:
        return str(error)
    return None


def _begin(versions: VersionStore, merged: Version, shard: Shard) -> None:
    epoch = versions.claim()
    record = first_record(merged.manifest, shard, epoch.next_number)
    older = versions.newest_manifest()
    meta = meta_like(
        merged.manifest,
        parent=None if older is None else older.number,
        positions=positions_of(merged.manifest, shard),
        schedule=(adopt_entry(record, begins=True),),
        counters={},
        shard=record.json(),
    )
    versions.publish(epoch, merged.arrays, meta)
    log.info("a shard begins", shard=shard.name, merged=merged.manifest.name, version=record.counted)


def no_shards(configured: int, asked: int | None) -> UserError | None:
    """Why `learn` must not start as it was asked to; None where it may."""
    if configured and asked is None:
        return UserError(
            f"[shards] count is {configured}: each learner is one of these",
            "start `tripletd learn --shard 0` and so on, or `tripletd up`; set shards.count to 0 for one "
            "learner",
        )
    if asked is not None and not configured:
        return UserError(
            f"--shard {asked}: [shards] count is 0, which is one learner without shards",
            "set shards.count to the number of learners, or leave --shard out",
        )
    if asked is not None and not 0 <= asked < configured:
        what = f"--shard {asked}: there are {configured} shards, counted from 0"
        return UserError(what, "start one of these")
    return None
