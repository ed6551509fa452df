"""Compaction of the embedded log: the last record of each key stays, and readers pass over the gaps."""

import threading
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.errors import OffsetExpired, TopicMissing
from streams.log.database import compact, is_due
from streams.open import compact as compact_address
from streams.open import ensure_topic, open_sink, open_source, retain
from streams.source import Address, OutRecord, parse_address


def address(folder) -> Address:
    return Address("log", str(folder / "shop.log"), "t.items")


def send(to: Address, keys, start=0):
    with closing(open_sink(to)) as sink:
        sink.send([OutRecord(f"{n}".encode(), key, 0, 1000 + n) for n, key in enumerate(keys, start)])


def read(to: Address, position=0, poll=3):
    """[(offset, key, value)] from a position to the end."""
    with closing(open_source(to)) as source:
        (end,) = [end for _, end in source.bounds().values()]
        source.assign({0: position})
        got = []
        while source.reached()[0] < end:
            batch = source.poll(poll, 5)
            assert batch is not None
            got += zip(batch.offsets, batch.keys, batch.values, strict=True)
        return got


def squeeze(to: Address) -> int:
    return compact(to.path, to.topic, least=1)[0]


def test_the_last_record_of_each_key_stays(tmp_path):
    topic = address(tmp_path)
    ensure_topic(topic, 1)
    send(topic, [b"a", b"b", b"a", None, b"c", b"b", None])
    assert squeeze(topic) == 2
    assert read(topic) == [
        (2, b"a", b"2"),
        (3, None, b"3"),
        (4, b"c", b"4"),
        (5, b"b", b"5"),
        (6, None, b"6"),
    ]
    assert squeeze(topic) == 0, "nothing new"


def test_positions_in_a_gap_are_good_and_expired_ones_are_not(tmp_path):
    topic = address(tmp_path)
    ensure_topic(topic, 1)
    send(topic, [b"a"] * 10)
    squeeze(topic)
    assert [read(topic, position) for position in (0, 4, 9)] == [[(9, b"a", b"9")]] * 3
    assert read(topic, 10) == []
    with closing(open_source(topic)) as source:
        assert source.bounds() == {0: (0, 10)}
        assert [source.offsets_at(ts)[0] for ts in (0, 1005, 1009, 2000)] == [9, 9, 9, 10]
        source.assign({0: 0})
        send(topic, [b"b"] * 3, 10)
        retain(topic, None, 0, before={0: 12})
        with pytest.raises(OffsetExpired):
            source.poll(10, 0)


def test_when_it_is_due(tmp_path):
    assert not is_due(9_999, 0, 0)
    assert is_due(10_000, 0, 0)
    assert not is_due(70_000, 20_000, 60_000), "fewer new ones than were kept"
    assert is_due(80_000, 20_000, 60_000)
    topic = address(tmp_path)
    ensure_topic(topic, 1)
    send(topic, [b"a"] * 50)
    assert compact_address(topic) == {0: 0}
    send(topic, [b"a"] * 9_950, 50)
    assert compact_address(topic) == {0: 9_999}
    assert compact_address(parse_address("kafka://127.0.0.1:1/t")) == {}, "a broker does it by itself"
    with pytest.raises(TopicMissing):
        compact_address(Address("log", topic.path, "other"))


def test_what_it_removed_is_used_again(tmp_path):
    topic = address(tmp_path)
    ensure_topic(topic, 1)
    sizes = []
    for turn in range(6):
        with closing(open_sink(topic)) as sink:
            sink.send([OutRecord(bytes(50_000), b"%d" % (n % 10), 0) for n in range(100)])
        squeeze(topic)
        sizes.append((tmp_path / "shop.log").stat().st_size)
        assert len(read(topic)) == 10, turn
    assert sizes[-1] <= sizes[1] * 1.2


@settings(max_examples=25, deadline=None)
@given(
    turns=st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", None]), max_size=12), max_size=5),
    position=st.integers(0, 100),
    poll=st.integers(1, 5),
)
def test_a_reader_anywhere_ends_where_one_of_the_whole_log_does(tmp_path_factory, turns, position, poll):
    topic = address(tmp_path_factory.mktemp("log"))
    ensure_topic(topic, 1)
    keys = []
    for turn in turns:
        send(topic, turn, len(keys))
        keys += turn
        squeeze(topic)
    send(topic, [None] * (len(keys) + 1), len(keys))  # as many as were kept: now it is due
    keys += [None] * (len(keys) + 1)
    squeeze(topic)
    whole = list(enumerate(keys))
    last = {key: n for n, key in whole if key is not None}
    assert [n for n, _, _ in read(topic, 0, poll)] == [n for n, key in whole if key is None or last[key] == n]
    position = min(position, len(keys))
    early = {key: n for n, key in whole[:position] if key is not None}
    assert early | {key: n for n, key, _ in read(topic, position, poll) if key is not None} == last


def test_readers_and_writers_go_on_meanwhile(tmp_path):
    topic = address(tmp_path)
    ensure_topic(topic, 1)
    done = threading.Event()
    seen: dict[bytes, bytes] = {}

    def follow():
        with closing(open_source(topic)) as source:
            source.assign({0: 0})
            while not done.is_set() or source.reached()[0] < source.bounds()[0][1]:
                batch = source.poll(7, 0.05)
                if batch is not None:
                    seen.update(zip(batch.keys, batch.values, strict=True))

    reader = threading.Thread(target=follow)
    reader.start()
    for turn in range(30):
        send(topic, [b"%d" % (n % 17) for n in range(turn, turn + 40)], 40 * turn)
        squeeze(topic)
    done.set()
    reader.join(20)
    assert not reader.is_alive()
    assert seen == {key: value for _, key, value in read(topic)}
    assert len(seen) == 17
