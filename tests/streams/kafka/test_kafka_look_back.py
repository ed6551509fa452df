"""A log that went another way before a source had handed out anything: idle since the restart, for days."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import pytest

from streams.errors import LogMismatch, StreamUnavailable
from tests.harness.kafka.fixtures import ONE_AT_A_TIME
from tests.streams.kafka.conftest import drain
from tests.streams.kafka.segments import cut

pytestmark = ONE_AT_A_TIME


@pytest.fixture(params=["kafka-python", "confluent"])
def place(request, own, place_in):
    """Ten records of one batch each."""
    place = place_in(own, request.param)
    for n in range(10):
        place.send(b"%d" % n)
    return place


def known(value):
    return {0: sha256(value).hexdigest()}


def restart(own, place, keep=None):
    own.nodes[1].stop()
    if keep is not None:
        cut(own, place.address.topic, keep)
    own.nodes[1].start()
    own.wait_ready()
    place.writer = None


def next_values(source):
    while True:
        with suppress(StreamUnavailable):
            batch = source.poll(5, 0.5)
            if batch is not None:
                return batch.values


def test_other_records_before_the_first_one_handed_out_are_a_mismatch(own, place):
    source = place.source()
    source.assign({0: 10}, known(b"9"))
    assert source.poll(5, 0.5) is None
    restart(own, place, keep=6)
    for n in range(8):
        place.send(b"other %d" % n)
    with pytest.raises(LogMismatch, match="offset 9 holds another record"):
        next_values(source)


def test_the_same_records_under_another_leader_are_none(own, place):
    source = place.source()
    source.assign({0: 10}, known(b"9"))
    restart(own, place)
    place.send(b"10")
    assert next_values(source) == [b"10"]


def test_another_record_than_the_known_one_is_a_mismatch_at_once(place):
    source = place.source()
    with pytest.raises(LogMismatch, match="offset 9 holds another record"):
        source.assign({0: 10}, known(b"8"))
    source.assign({0: 8}, known(b"7"))
    assert drain(source) == [(8, b"8"), (9, b"9")]
