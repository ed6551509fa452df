"""A stretch of the log that cannot be read: one dead letter, recorded, replayed, and gone on from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from checkpoints.manifest import PartitionPosition
from daemon.exits import EX_OK
from daemon.learn.replay.replay import replay
from daemon.learn.replay.rerun import cut
from streams.open import MemorySource, open_source
from streams.source import RecordBatch
from tests.daemon.learn.conftest import Site, make_events

Damage = Callable[[int, int], None]


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> Damage:
    """Makes offsets `first` to `last` of the events unreadable from now on."""
    poll = MemorySource.poll

    def make(first: int, last: int) -> None:
        def torn(self: MemorySource, max_records: int, timeout_s: float) -> RecordBatch | None:
            batch = poll(self, max_records, timeout_s)
            ours = self.identity().topic == "triplets"
            if batch is None or not ours or batch.offsets[-1] < first or batch.offsets[0] > last:
                return batch
            assert self._positions is not None
            if batch.offsets[0] < first:
                self._positions[0] = first
                return cut(batch, 0, batch.offsets.index(first))
            self._positions[0] = last + 1
            return RecordBatch(0, [last], [0], [None], [None], [()], f"offsets {first} to {last}: torn")

        monkeypatch.setattr(MemorySource, "poll", torn)

    return make


def test_it_is_one_letter_and_one_entry_of_the_schedule_and_replays(site: Site, damage: Damage) -> None:
    site.feed(make_events(10))
    damage(3, 5)
    assert site.learn() == EX_OK
    newest = site.newest()
    entry = {"control": "damaged", "partition": 0, "from": 3, "to": 6}
    assert newest.schedule == ((0, 0, 3), entry, (0, 6, 10))
    assert (newest.counters["records"], newest.counters["poison.corrupt_batch"]) == (8, 1)
    (letter,) = site.dead()
    assert (letter.offset, letter.reason, letter.value) == (5, "corrupt_batch", None)
    with closing(open_source(site.address)) as source:
        result = replay(site.versions, source, None, 0, newest.number)
    assert result.equal
    assert result.difference is None


def test_at_the_end_it_leaves_nothing_to_compare_with_at_the_next_start(site: Site, damage: Damage) -> None:
    site.feed(make_events(10))
    damage(8, 9)
    assert site.learn() == EX_OK
    assert site.newest().positions == {0: PartitionPosition(10, None)}
    site.feed(make_events(5, seed=1))
    assert site.learn() == EX_OK
    assert site.newest().positions[0].next_offset == 15
