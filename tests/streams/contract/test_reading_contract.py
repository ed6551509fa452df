"""What every source does: order, position, timeouts, fairness."""

import random
import threading
import time

import pytest

from streams.errors import OffsetAhead, OffsetExpired, PartitionMissing, StreamError, TopicMissing
from streams.source import OutRecord

CLOCKS_MS = 60_000
"""By how much the clock of a broker may differ from ours."""


def values(*texts):
    return [OutRecord(text.encode()) for text in texts]


def test_records_come_back_in_order_with_all_they_carry(backend):
    backend.create(times_of_writers=True)
    sent = [
        OutRecord(b"a", key=b"k", timestamp=7, headers=(("reason", b"x"), ("reason", b"\xff"))),
        OutRecord(None, key=b"gone", timestamp=9),
        OutRecord(b"", key=b"", timestamp=8),
    ]
    assert backend.sink().send(sent) == [(0, 0), (0, 1), (0, 2)]
    source = backend.source()
    source.assign({0: 0})
    batch = source.poll(10, backend.patience)
    assert batch.damaged is None
    assert (batch.partition, batch.offsets, batch.timestamps) == (0, [0, 1, 2], [7, 9, 8])
    assert batch.values == [b"a", None, b""]
    assert batch.keys == [b"k", b"gone", b""]
    assert batch.headers == [(("reason", b"x"), ("reason", b"\xff")), (), ()]
    assert len(batch) == 3


def test_no_record_comes_later_than_now(backend):
    """Whatever its writer says: an event's own time is compared with it, and retention goes by it."""
    backend.create()
    before = int(time.time() * 1000) - CLOCKS_MS
    ahead = before + 400 * 86_400_000
    backend.sink().send(
        [OutRecord(b"a", timestamp=1000 * ahead), OutRecord(b"b"), OutRecord(b"c", timestamp=ahead)]
    )
    source = backend.source()
    source.assign({0: 0})
    times = source.poll(10, backend.patience).timestamps
    assert len(times) == 3
    assert all(before <= one <= int(time.time() * 1000) + CLOCKS_MS for one in times)


def test_a_poll_takes_at_most_what_is_asked_and_goes_on_where_it_stopped(backend):
    backend.create()
    backend.sink().send(values(*"abcdefg"))
    source = backend.source()
    source.assign({0: 0})
    polled = [source.poll(3, backend.patience).offsets for _ in range(3)]
    assert polled == [[0, 1, 2], [3, 4, 5], [6]]
    assert source.poll(3, backend.silence) is None


def test_a_position_is_the_next_record_wanted_not_the_last_one_read(backend):
    backend.create()
    sink = backend.sink()
    sink.send(values(*"abc"))
    source = backend.source()
    source.assign({0: 2})
    assert source.poll(10, backend.patience).values == [b"c"]
    source.assign({0: 3})
    assert source.poll(10, backend.silence) is None
    sink.send(values("d"))
    assert source.poll(10, backend.patience).values == [b"d"]


def test_how_far_a_source_has_reached(backend):
    backend.create(2)
    sink = backend.sink()
    sink.send([OutRecord(b"x", partition=0)] * 5)
    source = backend.source()
    source.assign({0: 1, 1: 0})
    assert source.reached() == {0: 1, 1: 0}
    source.poll(2, backend.patience)
    assert source.reached() == {0: 3, 1: 0}
    backend.everything(source)
    assert source.reached() == {0: 5, 1: 0}
    assert source.held_back() == {}, "no transaction is open"
    source.assign({1: 0})
    assert source.reached() == {1: 0}


def test_assigning_again_seeks(backend):
    backend.create()
    backend.sink().send(values(*"abc"))
    source = backend.source()
    source.assign({0: 0})
    assert source.poll(10, backend.patience).offsets == [0, 1, 2]
    source.assign({0: 1})
    assert source.poll(10, backend.patience).offsets == [1, 2]


def test_whoever_has_waited_in_vain_can_go_back_and_hears_of_what_comes(backend):
    backend.create()
    sink = backend.sink()
    sink.send(values(*"abc"))
    source = backend.source()
    source.assign({0: 3})
    assert [source.poll(10, backend.silence) for _ in range(3)] == [None] * 3
    source.assign({0: 1})
    assert source.poll(10, backend.patience).offsets == [1, 2]
    assert [source.poll(10, backend.silence) for _ in range(3)] == [None] * 3
    sink.send(values("d"))
    assert source.poll(10, backend.patience).values == [b"d"]


def test_a_poll_of_an_empty_topic_returns_after_its_timeout(backend):
    backend.create(2)
    source = backend.source()
    source.assign({0: 0, 1: 0})
    began = time.monotonic()
    assert source.poll(10, 0.05) is None
    assert time.monotonic() - began >= 0.05
    assert source.bounds() == {0: (0, 0), 1: (0, 0)}


def test_a_waiting_poll_sees_a_record_sent_meanwhile(backend):
    backend.create()
    source, sink = backend.source(), backend.sink()
    source.assign({0: 0})
    timer = threading.Timer(0.05, lambda: sink.send(values("late")))
    timer.start()
    batch = source.poll(10, 30)
    timer.join()
    assert batch.values == [b"late"]


def test_no_assigned_partition_starves(backend):
    backend.create(3)
    sink = backend.sink()
    sink.send([OutRecord(b"x", partition=p) for p, many in ((0, 50), (1, 3), (2, 1)) for _ in range(many)])
    source = backend.source()
    source.assign({0: 0, 1: 0, 2: 0})
    turns = []
    while (turns.count(1), turns.count(2)) != (3, 1):
        assert len(turns) < (500 if backend.cluster else 7), "a broker sends many of one partition at once"
        turns.append(source.poll(1, backend.patience).partition)
        sink.send([OutRecord(b"more", partition=0)])


def test_only_assigned_partitions_are_read_each_in_order(backend):
    backend.create(3)
    backend.sink().send([OutRecord(str(n).encode(), partition=n % 3) for n in range(20)])
    source = backend.source()
    source.assign({0: 0, 2: 1})
    got = backend.everything(source, 3)
    assert {partition for partition, _, _ in got} == {0, 2}
    assert [value for p, _, value in got if p == 0] == [str(n).encode() for n in range(0, 20, 3)]
    assert [value for p, _, value in got if p == 2] == [str(n).encode() for n in range(5, 20, 3)]


def test_positions_that_cannot_be_read_from_are_refused_with_the_gap(backend):
    backend.create()
    backend.sink().send(values(*"abcde"))
    backend.expire({0: 3})
    source = backend.source()
    source.assign({0: 4})
    with pytest.raises(OffsetExpired) as expired:
        source.assign({0: 1})
    assert (expired.value.wanted, expired.value.earliest, expired.value.gap) == (1, 3, 2)
    with pytest.raises(OffsetAhead):
        source.assign({0: 6})
    with pytest.raises(OffsetAhead) as ahead:
        source.assign({0: 9})
    assert (ahead.value.wanted, ahead.value.end, ahead.value.gap) == (9, 5, 4)
    with pytest.raises(PartitionMissing, match=r"0\.\.0, not 1"):
        source.assign({1: 0})
    assert source.poll(10, backend.patience).values == [b"e"], "a refused assignment leaves the earlier one"


def test_polling_before_assigning_is_an_error(backend):
    backend.create()
    source = backend.source()
    with pytest.raises(StreamError, match="assign"):
        source.poll(1, 0)
    assert source.reached() == {}
    source.assign({})
    assert source.poll(1, backend.silence) is None


def test_one_poll_holds_a_bounded_number_of_bytes(backend, monkeypatch):
    backend.create()
    backend.sink().send([OutRecord(bytes(1000)) for _ in range(10)])
    for module in ("streams.log.source", "streams.kafka.source"):
        monkeypatch.setattr(f"{module}.MAX_POLL_BYTES", 2500)
    source = backend.source()
    source.assign({0: 0})
    assert [source.poll(100, backend.patience).offsets for _ in range(4)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9],
    ]


def test_offsets_at_a_time(backend):
    backend.create(2, times_of_writers=True)
    assert backend.source().offsets_at(0) == {0: 0, 1: 0}
    stamps = [10, 20, 15, 30, 30, 25, 40]
    backend.sink().send([OutRecord(b"x", partition=0, timestamp=ts) for ts in stamps])
    source = backend.source()
    found = {ts: source.offsets_at(ts)[0] for ts in (0, 10, 11, 20, 21, 30, 31, 40, 41)}
    assert found == {ts: next((i for i, s in enumerate(stamps) if s >= ts), 7) for ts in found}
    assert source.offsets_at(0)[1] == 0


def test_offsets_at_a_time_after_the_newest_of_several_expired(backend):
    backend.create(times_of_writers=True)
    stamps = [99, 10, 20, 30, 40]
    backend.sink().send([OutRecord(b"x", timestamp=ts) for ts in stamps])
    backend.expire({0: 1})
    source = backend.source()
    assert [source.offsets_at(ts)[0] for ts in (5, 15, 35, 50)] == [1, 2, 4, 5]


def test_offsets_at_a_time_among_times_in_any_order(backend):
    chance = random.Random(1)
    backend.create(times_of_writers=True)
    sink = backend.sink()
    stamps = [chance.randrange(10 * n, 10 * n + 400) for n in range(60)]
    for first in range(0, 60, 7):
        sink.send([OutRecord(b"x", timestamp=ts) for ts in stamps[first : first + 7]])
    source = backend.source()
    found = [source.offsets_at(ts)[0] for ts in range(0, 1001, 20)]
    assert found == [next((i for i, s in enumerate(stamps) if s >= ts), 60) for ts in range(0, 1001, 20)]


def test_committed_positions_are_seen_by_others_and_move_nothing(backend):
    backend.create(2)
    backend.sink().send([OutRecord(b"x", partition=1)])
    source = backend.source()
    assert source.committed() == {}
    source.commit({1: 1})
    assert backend.source().committed() == {1: 1}
    with pytest.raises(PartitionMissing):
        source.commit({5: 1})
    source.assign({1: 0})
    assert source.poll(5, backend.patience).offsets == [0]


def test_a_note_is_kept_beside_the_positions_of_its_topic(backend):
    backend.create(2)
    backend.sink().send([OutRecord(b"x", partition=1)])
    source = backend.source()
    assert source.note() == ""
    source.commit({0: 0, 1: 1}, "0a1b@5")
    assert backend.source().note() == "0a1b@5"
    source.commit({0: 0, 1: 1}, "0a1b@6")
    assert backend.source().note() == "0a1b@6"
    backend.delete()
    backend.create(2)
    assert backend.source().note() in ("", "0a1b@6"), "a group's offsets outlive a Kafka topic for a while"


def test_opening_a_topic_that_is_not_there_names_it(backend):
    with pytest.raises(TopicMissing):
        backend.source()
    backend.create()
    backend.delete()
    with pytest.raises(TopicMissing, match=backend.topic):
        backend.source()
    with pytest.raises(TopicMissing, match=backend.topic):
        backend.sink()
