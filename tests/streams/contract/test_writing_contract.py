"""What every sink and topic does: all or nothing, identity, retention, offsets used once."""

from dataclasses import replace

import pytest

from streams.errors import (
    AddressError,
    LogMismatch,
    OffsetExpired,
    PartitionMissing,
    RecordRefused,
    TopicMissing,
)
from streams.limits import MAX_RECORD_BYTES
from streams.open import ensure_topic, open_sink, open_source
from streams.partitions import partition_of
from streams.source import OutRecord

DAY_MS = 86_400_000


def everything(backend):
    source = backend.source()
    source.assign({partition: start for partition, (start, _) in source.bounds().items()})
    return sorted(backend.everything(source))


def test_partition_by_choice_by_key_or_first(backend):
    backend.create(5)
    keys = [f"query {n}".encode() for n in range(20)]
    placed = backend.sink().send([OutRecord(b"v", key=key) for key in keys])
    assert [partition for partition, _ in placed] == [partition_of(key, 5) for key in keys]
    assert len({partition for partition, _ in placed}) > 1
    assert backend.sink().send([OutRecord(b"v", key=b"k", partition=3)])[0][0] == 3
    assert backend.sink().send([OutRecord(b"v")])[0][0] == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (OutRecord(b"v", partition=2), PartitionMissing),
        (OutRecord(b"v", partition=-1), PartitionMissing),
        (OutRecord(bytes(MAX_RECORD_BYTES), key=b"k"), RecordRefused),
        (OutRecord(b"v", timestamp=-1), RecordRefused),
        (OutRecord(b"v", timestamp=2**63), RecordRefused),
    ],
)
def test_one_bad_record_and_nothing_is_written(backend, bad, error):
    backend.create(2)
    sink = backend.sink()
    with pytest.raises(error):
        sink.send([OutRecord(b"good"), bad])
    assert everything(backend) == []
    assert sink.send([OutRecord(b"next")]) == [(0, 0)]


def test_the_largest_record_is_taken_and_one_byte_more_is_not(backend):
    backend.create()
    sink = backend.sink()
    headers = (("reason", b"x" * 100),)
    room = sink.max_record_bytes - len(b"key") - len("reason") - 100
    with pytest.raises(RecordRefused):
        sink.send([OutRecord(b"small"), OutRecord(bytes(room + 1), b"key", headers=headers)])
    assert everything(backend) == []
    assert sink.send([OutRecord(bytes(room), b"key", headers=headers)]) == [(0, 0)]
    source = backend.source()
    source.assign({0: 0})
    assert len(source.poll(1, backend.patience).values[0]) == room


def test_sending_nothing_is_fine(backend):
    backend.create()
    assert backend.sink().send([]) == []


def test_a_record_without_a_timestamp_gets_the_clock(backend):
    backend.create()
    backend.sink().send([OutRecord(b"v")])
    source = backend.source()
    source.assign({0: 0})
    (stamp,) = source.poll(1, backend.patience).timestamps
    assert stamp > 1_600_000_000_000


def test_two_sinks_share_one_row_of_offsets(backend):
    backend.create()
    one, two = backend.sink(), backend.sink()
    got = [sink.send([OutRecord(name)])[0][1] for name in (b"a", b"b", b"c") for sink in (one, two)]
    assert got == [0, 1, 2, 3, 4, 5]


def test_identity_is_stable_and_new_after_recreation(backend):
    first = backend.create(2)
    assert backend.create(2) == first
    assert backend.source().identity() == backend.sink().identity() == first
    assert (first.topic, first.partitions) == (backend.topic, 2)
    backend.delete()
    second = backend.create(2)
    assert second.topic_id != first.topic_id
    assert second.log_id == first.log_id
    assert everything(backend) == []


def test_what_was_opened_before_recreation_refuses_to_go_on(backend):
    backend.create()
    source, sink = backend.source(), backend.sink()
    sink.send([OutRecord(b"old")])
    source.assign({0: 0})
    backend.delete()
    backend.create()
    with pytest.raises(LogMismatch, match="re-created"):
        backend.poll_in_vain(source)
    with pytest.raises(LogMismatch, match="re-created"):
        source.bounds()
    with pytest.raises(LogMismatch, match="re-created"):
        sink.send([OutRecord(b"new")])
    assert everything(backend) == []


def test_another_partition_count_is_refused(backend):
    backend.create(2)
    with pytest.raises(LogMismatch, match="2 partitions, not 3"):
        backend.create(3)
    with pytest.raises(AddressError, match="at least one"):
        ensure_topic(replace(backend.address, topic="other"), 0)


def test_topics_of_one_log_are_apart(backend):
    backend.create()
    backend.sink().send([OutRecord(b"event")])
    ensure_topic(backend.address.dead, 2)
    sink, source = open_sink(backend.address.dead), open_source(backend.address.dead)
    backend.opened += [sink, source]
    assert sink.send([OutRecord(b"letter", partition=1)]) == [(1, 0)]
    assert source.identity().topic == backend.topic + ".dead"
    assert source.bounds() == {0: (0, 0), 1: (0, 1)}
    assert everything(backend) == [(0, 0, b"event")]


def test_retention_by_age_stops_at_the_first_record_that_is_young_enough(embedded):
    embedded.create()
    days = [1, 2, 9, 3, 10]
    embedded.sink().send([OutRecord(str(d).encode(), timestamp=d * DAY_MS) for d in days])
    assert embedded.retain(max_age_s=2 * 86_400, now_ms=10 * DAY_MS) == {0: 2}
    assert everything(embedded) == [(0, 2, b"9"), (0, 3, b"3"), (0, 4, b"10")]


def test_retention_by_size_shares_the_bytes_among_partitions(embedded):
    embedded.create(2)
    embedded.sink().send([OutRecord(bytes(10), partition=p) for p in (0, 1) for _ in range(10 * p + 3)])
    assert embedded.retain(max_bytes=100) == {0: 0, 1: 8}
    assert embedded.source().bounds() == {0: (0, 3), 1: (8, 13)}
    assert embedded.retain() == {0: 0, 1: 0}


def test_offsets_are_never_used_again_even_when_everything_is_gone(backend):
    backend.create()
    sink = backend.sink()
    sink.send([OutRecord(b"x")] * 3)
    backend.expire({0: 3})
    assert backend.source().bounds() == {0: (3, 3)}
    assert backend.sink().send([OutRecord(b"y")]) == [(0, 3)]
    assert everything(backend) == [(0, 3, b"y")]


def test_retention_stops_before_a_given_offset(embedded):
    embedded.create(3)
    embedded.sink().send([OutRecord(b"x", partition=p, timestamp=1) for p in range(3) for _ in range(5)])
    assert embedded.retain(max_bytes=0, before={0: 3, 1: 9}) == {0: 3, 1: 5, 2: 0}
    assert embedded.retain(max_age_s=1, before={0: 2, 1: 9}) == {0: 0, 1: 0, 2: 0}
    assert embedded.retain(max_age_s=1, before={0: 4, 2: 0}) == {0: 1, 1: 0, 2: 0}
    assert embedded.source().bounds() == {0: (4, 5), 1: (5, 5), 2: (0, 5)}


def test_a_reader_overtaken_by_retention_is_told(backend):
    backend.create()
    sink, source = backend.sink(), backend.source()
    sink.send([OutRecord(b"x")] * 3)
    source.assign({0: 1})
    backend.expire({0: 3})
    with pytest.raises(OffsetExpired) as all_gone:
        source.poll(1, backend.patience)
    sink.send([OutRecord(b"y")])
    with pytest.raises(OffsetExpired) as some_left:
        source.poll(1, backend.patience)
    assert all_gone.value.gap == some_left.value.gap == 2


def test_removing_what_is_not_there_is_an_error(backend):
    with pytest.raises(TopicMissing):
        backend.delete()


def test_retention_of_what_is_not_there_is_an_error(embedded):
    with pytest.raises(TopicMissing):
        embedded.retain(max_bytes=1)


def test_retention_of_a_broker_is_its_own(broker):
    broker.create()
    broker.sink().send([OutRecord(b"x", timestamp=1)] * 3)
    assert broker.retain(max_age_s=1, max_bytes=0) == {}
    assert broker.source().bounds() == {0: (0, 3)}


def test_closing_twice_is_fine(backend):
    backend.create()
    sink, source = backend.sink(), backend.source()
    sink.send([OutRecord(b"x")])
    for one in (source, sink, source, sink):
        one.close()
    assert everything(backend) == [(0, 0, b"x")]
