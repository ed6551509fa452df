"""What merge reads of a shard is one version, also where the shard's folder is started over meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.manifest import Manifest, VersionMeta
from checkpoints.store import Damaged
from checkpoints.versions import VersionStore
from daemon.learn.adopting import read_brought
from daemon.versions.shards import MergedPart, MergeRecord, ShardRecord
from streams.shards import Shard
from tests.harness.memory_store import MemoryStore

SHARD = Shard(0, 2)


def written(versions: VersionStore, count: int, meta: VersionMeta) -> Manifest:
    """So many versions of one writer, the last one."""
    epoch = versions.claim()
    for number in range(count):
        last = versions.publish(epoch, {"W": np.full((2, 2), number, np.float32)}, meta)
    return last


def of_shard(base: Manifest, counted: int = 0, records: int = 9) -> VersionMeta:
    """What a shard's version says that went on from a merged one."""
    record = ShardRecord(SHARD, base.number, base.name, counted, {})
    return VersionMeta(counters={"records": records, "updated": records}, shard=record.json())


@pytest.fixture
def merges() -> VersionStore:
    return VersionStore(MemoryStore())


def test_a_version_in_the_place_of_the_one_looked_at_is_not_taken_for_it(merges: VersionStore) -> None:
    base = written(merges, 1, VersionMeta())
    own = VersionStore(MemoryStore())
    looked_at = written(own, 3, of_shard(base, records=900))
    assert read_brought(base, looked_at, own, merges).updates == 900
    anew = VersionStore(MemoryStore())
    written(anew, 3, of_shard(base, records=5))
    with pytest.raises(Damaged, match="was replaced"):
        read_brought(base, looked_at, anew, merges)


def test_what_was_merged_of_another_line_is_not_taken_off(merges: VersionStore) -> None:
    first = written(merges, 1, VersionMeta())
    own = VersionStore(MemoryStore())
    newest = written(own, 4, of_shard(first))
    part = MergedPart(0, 2, newest.line, newest.writer, {"records": 4}, "", 0, 4)
    epoch = merges.claim()
    entry = MergeRecord(2, (part,)).entry()
    base = merges.publish(epoch, {"W": np.zeros((2, 2), np.float32)}, VersionMeta(schedule=(entry,)))
    assert read_brought(base, newest, own, merges).since == {"records": 4}
    anew = VersionStore(MemoryStore())
    other = written(anew, 4, of_shard(first))
    with pytest.raises(Damaged, match="was replaced"):
        read_brought(base, newest, anew, merges)
    assert read_brought(base, other, anew, merges).since == {}


def test_a_merged_version_of_another_line_is_not_what_a_shard_went_on_from(merges: VersionStore) -> None:
    former = VersionStore(MemoryStore())
    own = VersionStore(MemoryStore())
    newest = written(own, 2, of_shard(written(former, 1, VersionMeta())))
    base = written(merges, 2, VersionMeta())
    with pytest.raises(Damaged, match="went on from"):
        read_brought(base, newest, own, merges)
