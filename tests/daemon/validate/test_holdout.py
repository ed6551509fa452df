"""The window is a pure function of the holdout positions; what cannot be judged is counted."""

from __future__ import annotations

import pytest

from daemon.runtime.in_hand import InHand
from daemon.validate import holdout as holdout_module
from daemon.validate.holdout import HeldImpression, Holdout, Window, rebuild_from
from streams.codec import encode_impression
from streams.errors import StreamUnavailable
from streams.event import Impression, ObjectRef
from streams.open import ensure_topic, open_sink, open_source, retain
from streams.poison import parse_dead_letter
from streams.source import HeldBack, OutRecord, RecordBatch
from tests.daemon.validate.helpers import usable


def never(seconds, error):
    raise AssertionError(error)


def open_holdout(world, size=1000, upto=None):
    ensure_topic(world.address.dead, 1)
    source, dead = open_source(world.address.holdout), open_sink(world.address.dead)
    return Holdout(source, dead, space=world.space, catalog=world.catalog, size=size, upto=upto)


def read(holdout):
    fresh = []
    while not holdout.caught_up():
        fresh += holdout.poll(0.0, never)
    return fresh


def ids(holdout):
    return [held.impression.id for held in holdout.window]


def test_the_window_holds_the_newest_records(world):
    world.feed(30)
    holdout = open_holdout(world, size=10)
    read(holdout)
    newest = ids(holdout)
    assert newest == [f"i{n}" for n in range(21, 31) if f"i{n}" in newest]
    world.feed(4)
    fresh = read(holdout)
    assert [held.impression.id for held in fresh] == ids(holdout)[-len(fresh) :]
    assert holdout.window.positions == {0: 34}
    assert min(held.offset for held in holdout.window) >= 24


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_window_read_again_at_its_positions_is_the_same(make_world, partitions):
    world = make_world(partitions=partitions)
    world.feed(50)
    holdout = open_holdout(world, size=20)
    read(holdout)
    world.feed(17)
    read(holdout)
    positions, before = holdout.window.positions, ids(holdout)
    assert len(before) > 10
    assert ids(open_and_read(world, 20)) == before  # after a restart
    world.feed(40)
    assert ids(open_and_read(world, 20)) != before
    again = open_and_read(world, 20, upto=positions)  # long after
    assert ids(again) == before
    assert again.window.positions == positions


def open_and_read(world, size, upto=None):
    holdout = open_holdout(world, size, upto)
    read(holdout)
    return holdout


def held(partition, offset, ts):
    return HeldImpression(partition, offset, Impression(f"{partition}/{offset}", ts, ObjectRef("q"), (), ()))


def test_the_window_keeps_exactly_its_share_of_every_partition():
    window = Window(5, {0: 0, 1: 0})  # three records of each
    for offset in range(10):
        window.add(held(0, offset, offset))
    assert [one.offset for one in window] == [7, 8, 9]
    window.move(0, 12)  # two records that were not usable
    assert [one.offset for one in window] == [9]
    window.add(held(1, 0, 1))
    assert window.positions == {0: 12, 1: 1}
    assert len(window) == 2


def test_the_window_is_in_order_of_time_however_partitions_were_read():
    window = Window(10, {0: 0, 1: 0})
    for one in (held(0, 0, 30), held(0, 1, 10), held(1, 0, 20), held(1, 1, 10)):
        window.add(one)
    assert [one.impression.id for one in window] == ["0/1", "1/1", "1/0", "0/0"]


def test_an_id_is_known_for_its_key_alone_where_each_has_a_model():
    window, keyed = Window(9, {0: 0}), Window(9, {0: 0}, keyed=True)
    for offset, key in enumerate(["a", "b", "a", None]):
        one = HeldImpression(0, offset, Impression("1", offset, ObjectRef("q"), (), (), key=key))
        assert (window.add(one), keyed.add(one)) == (offset == 0, offset != 2)
    assert [one.impression.key for one in window] == ["a"]
    assert [one.impression.key for one in keyed] == ["a", "b", None]
    keyed.move(0, 11)  # of the first two neither is left, of "a" the second
    assert [one.offset for one in keyed] == [2, 3]
    assert len(keyed) == 2


def test_rebuild_starts_a_share_back_and_never_before_the_log_begins():
    assert rebuild_from({0: (0, 100), 1: (95, 100)}, 20) == {0: 90, 1: 95}
    assert rebuild_from({0: (0, 5)}, 20) == {0: 0}


def shown(world, clicked, count=3):
    refs = tuple(world.ref(row) for row in range(count))
    return Impression("one", 1, world.ref(9), refs, clicked)


def test_lists_without_a_comparison_are_counted_and_left_out(world):
    world.send([encode_impression(shown(world, clicked)) for clicked in [(), (0, 1, 2), (1,)]])
    holdout = open_holdout(world)
    assert len(read(holdout)) == 1
    assert holdout.take_counts() == {"no_click": 1, "all_clicked": 1}
    assert holdout.take_counts() == {}


def test_what_cannot_be_read_becomes_a_dead_letter_with_its_reason(world):
    unknown = Impression("u", 1, ObjectRef("nobody"), (world.ref(1), world.ref(2)), (0,))
    narrow = Impression("n", 1, ObjectRef("q", x=world.values[0][:5]), (world.ref(1), world.ref(2)), (0,))
    other = Impression("o", 1, world.ref(0), (world.ref(1), world.ref(2)), (0,), space="elsewhere")
    values = [b"\xc1", *map(encode_impression, (unknown, narrow, other, shown(world, (1,))))]
    world.send(values)
    holdout = open_holdout(world)
    assert len(read(holdout)) == 1
    dead = open_source(world.address.dead)
    dead.assign({0: 0})
    batch = dead.poll(100, 0.0)
    letters = [parse_dead_letter(v, h) for v, h in zip(batch.values, batch.headers, strict=True)]
    reasons = ["not_msgpack", "unknown_object", "wrong_dim", "wrong_space"]
    assert [letter.reason for letter in letters] == reasons
    assert [letter.offset for letter in letters] == [0, 1, 2, 3]
    assert [letter.value for letter in letters] == values[:4]
    assert holdout.take_counts() == dict.fromkeys(reasons, 1)


def test_without_dead_letters_durable_the_position_stays(world):
    class Full:
        max_record_bytes = 1 << 20

        def send(self, records):
            raise StreamUnavailable("disk full")

    world.send([b"\xc1", encode_impression(shown(world, (1,)))])
    ensure_topic(world.address.dead, 1)
    source = open_source(world.address.holdout)
    holdout = Holdout(source, Full(), space=world.space, catalog=world.catalog, size=10)
    assert holdout.poll(0.0, lambda seconds, error: True) == []
    assert holdout.window.positions == {0: 0}
    assert len(holdout.window) == 0


def test_retention_that_overtakes_the_position_costs_only_what_is_gone(world):
    world.feed(20)
    holdout = open_holdout(world)
    world.feed(20)
    retain(world.address.holdout, None, 2000)
    left = next(iter(open_source(world.address.holdout).bounds().values()))
    assert left[0] > 0
    read(holdout)
    assert holdout.window.positions == {0: 40}
    assert min(held.offset for held in holdout.window) >= left[0]


def test_an_impression_that_was_written_twice_counts_once(world):
    world.feed(6)
    once = ids(open_and_read(world, 100))
    source = open_source(world.address.holdout)
    source.assign({0: 0})
    again = source.poll(100, 0.0).values
    holdout = open_and_read(world, 100)
    world.send([*again, *again])
    assert read(holdout) == []  # nothing new to watch
    assert ids(holdout) == once
    assert len(holdout.window) == len(once)
    assert ids(open_and_read(world, 100)) == once  # and the same after a restart
    world.feed(4)
    read(holdout)
    assert len(holdout.window) == len(ids(holdout)) > len(once)


def test_repeats_fall_out_of_the_window_one_by_one():
    window = Window(2, {0: 0})
    first, second = held(0, 0, ts=1), HeldImpression(0, 1, held(0, 0, ts=1).impression)
    assert (window.add(first), window.add(second)) == (True, False)
    window.move(0, 3)  # the first is out of sight, its repeat is not
    assert (list(window), len(window)) == ([second], 1)
    window.move(0, 4)
    assert (list(window), len(window)) == ([], 0)


def test_a_damaged_stretch_is_a_dead_letter_and_is_passed(world):
    class Damaged:
        """A source whose offsets 0 to 4 cannot be read."""

        def __init__(self, source):
            self._source, self._given = source, False
            for name in ("identity", "bounds", "held_back", "assign"):
                setattr(self, name, getattr(source, name))

        def poll(self, most, timeout_s):
            if self._given:
                return None
            self._given = True
            return RecordBatch(0, [4], [0], [None], [None], [()], damaged="offsets 0 to 4: bad checksum")

        def reached(self):
            return {0: 5 if self._given else 0}

    world.send([b"x"] * 5)
    ensure_topic(world.address.dead, 1)
    source, dead = Damaged(open_source(world.address.holdout)), open_sink(world.address.dead)
    holdout = Holdout(source, dead, space=world.space, catalog=world.catalog, size=10)
    assert holdout.poll(0.0, never) == []
    assert holdout.caught_up()
    assert holdout.take_counts() == {"corrupt_batch": 1}
    letters = open_source(world.address.dead)
    letters.assign({0: 0})
    batch = letters.poll(10, 0.0)
    letter = parse_dead_letter(batch.values[0], batch.headers[0])
    assert (letter.reason, letter.offset, letter.value) == ("corrupt_batch", 4, None)
    assert "offsets 0 to 4" in letter.detail


def test_a_stream_that_is_away_is_waited_for_and_nothing_is_lost(world):
    class Away:
        """A source that does not answer twice, and hands on what it is asked then."""

        def __init__(self, source):
            self._source, self._left = source, 2
            for name in ("identity", "bounds", "held_back", "assign", "reached"):
                setattr(self, name, getattr(source, name))

        def poll(self, most, timeout_s):
            self._left -= 1
            if self._left >= 0:
                raise StreamUnavailable("no answer")
            return self._source.poll(most, timeout_s)

    world.feed(10)
    ensure_topic(world.address.dead, 1)
    source, dead = Away(open_source(world.address.holdout)), open_sink(world.address.dead)
    holdout = Holdout(source, dead, space=world.space, catalog=world.catalog, size=100)
    waited = []
    for _ in range(4):
        holdout.poll(0.0, lambda seconds, error: bool(waited.append(error)))
    assert len(waited) == 2
    assert ids(holdout) == ids(open_and_read(world, 100))


class HeldBehind:
    """A source whose newest records an open transaction holds back."""

    def __init__(self, source):
        self._source, self.held = source, {}
        for name in ("identity", "bounds", "assign", "poll", "reached"):
            setattr(self, name, getattr(source, name))

    def held_back(self):
        return self.held


def test_an_open_transaction_is_told_once_all_before_it_is_read_and_it_stays_open(world):
    now = [0.0]
    world.feed(10)
    ensure_topic(world.address.dead, 1)
    source, dead = HeldBehind(open_source(world.address.holdout)), open_sink(world.address.dead)
    holdout = Holdout(source, dead, space=world.space, catalog=world.catalog, size=100, clock=lambda: now[0])
    source.held = {0: HeldBack(10, 14)}
    told = []
    for at in (0.0, 5.0, 11.0):
        now[0] = at
        holdout.poll(0.0, never)
        told.append(holdout.trouble())
    assert told[:2] == [None, None]
    assert told[2] is not None
    assert "open at offset 10 of partition 0 for 11 s, and 4 records wait" in told[2]
    assert "--topic triplets.holdout --partition 0 --start-offset 10" in told[2]
    assert [(partition, held.end, seconds) for partition, held, seconds in holdout.held_back()] == [
        (0, 14, 11.0)
    ]
    now[0], source.held = 12.0, {0: HeldBack(12, 14)}
    holdout.poll(0.0, never)
    assert holdout.trouble() is None, "another one, and what lies before it is not read"
    now[0] = 40.0
    holdout.poll(0.0, never)
    assert holdout.trouble() is None
    world.feed(2)
    holdout.poll(0.0, never)
    assert "offset 12 of partition 0 for 28 s" in holdout.trouble()
    now[0], source.held = 41.0, {}
    holdout.poll(0.0, never)
    assert holdout.trouble() is None


def test_a_record_at_which_the_process_died_twice_is_left_out(world, monkeypatch, tmp_path):
    world.feed(30)
    ensure_topic(world.address.dead, 1)
    records = open_source(world.address.holdout)
    records.assign({0: 0})
    decode, fatal = holdout_module.decode_impression, records.poll(30, 0.0).values[11]

    def deadly(value):
        if value == fatal:
            raise ZeroDivisionError("a bug")
        return decode(value)

    def opened():
        source, dead = open_source(world.address.holdout), open_sink(world.address.dead)
        in_hand = InHand(tmp_path / "in-hand", "validate")
        return Holdout(source, dead, space=world.space, catalog=world.catalog, size=30, in_hand=in_hand)

    whole = open_and_read(world, 30)
    monkeypatch.setattr(holdout_module, "decode_impression", deadly)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            read(opened())
    holdout = opened()
    read(holdout)
    assert holdout.take_counts()["suspect"] == 1
    assert set(ids(whole)) - set(ids(holdout)) <= {decode(fatal).id}
    assert len(ids(holdout)) >= len(ids(whole)) - 1
    letters = open_source(world.address.dead)
    letters.assign({0: 0})
    batch = letters.poll(10, 0.0)
    (letter,) = [parse_dead_letter(*one) for one in zip(batch.values, batch.headers, strict=True)]
    assert (letter.reason, letter.offset, letter.value) == ("suspect", 11, fatal)


def test_reading_waits_in_a_partition_with_much_ahead_and_goes_on_in_the_others(make_world, monkeypatch):
    monkeypatch.setattr(holdout_module, "POLL_RECORDS", 7)
    world = make_world(partitions=2)
    ensure_topic(world.address.dead, 1)
    source, dead = open_source(world.address.holdout), open_sink(world.address.dead)
    holdout = Holdout(source, dead, space=world.space, catalog=world.catalog, size=10, stood={})

    def write(partition, count):
        sink = open_sink(world.address.holdout)
        lists = usable(world, count)
        sink.send([OutRecord(encode_impression(one), partition=partition) for one in lists])
        sink.close()
        for _ in range(2 * count):
            assert holdout.poll(0.0, never) == []

    write(0, 60)
    write(1, 4)
    assert 7 <= holdout.reached[0] < 60
    assert holdout.reached[1] == 4
    taken = holdout.take(None, {}, holdout.ends())  # as many as there is room for
    assert (taken.full, len(taken.fresh)) == (True, 5 + 4)
    assert holdout.window.positions == {0: 5, 1: 4}
    while not (holdout.caught_up() and holdout.take(None, None, holdout.ends()).settled):
        holdout.poll(0.0, never)
        holdout.take(None, None)
    assert holdout.window.positions == {0: 60, 1: 4}
