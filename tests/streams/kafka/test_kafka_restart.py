"""A broker that was restarted, with the same log or with one that went another way while nobody looked.

What a log that lost its end and went on holds is what an unclean election leaves behind: other records at
offsets that were read already. A source that had handed out nothing since its start has to notice, too: it
may have been idle for days.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

import pytest

from streams.errors import LogMismatch, StreamUnavailable
from streams.kafka.source import KafkaSource
from tests.harness.kafka.fixtures import OWN_NODE
from tests.harness.waiting import until
from tests.streams.kafka.conftest import Place, drain
from tests.streams.kafka.segments import cut

pytestmark = OWN_NODE

CLIENTS = ("kafka-python", "confluent")


@dataclass
class Reading:
    """A topic that held ten records of one batch each, and a source that stands at their end."""

    place: Place
    source: KafkaSource


def known(value):
    return {0: sha256(value).hexdigest()}


def ten_records(kafka_node, place_in, client):
    place = place_in(kafka_node, client)
    for n in range(10):
        place.send(b"%d" % n)
    return place


def idle(kafka_node, place_in, client):
    """It has handed out nothing, and knows the record before its position."""
    place = ten_records(kafka_node, place_in, client)
    source = place.source()
    source.assign({0: 10}, known(b"9"))
    assert source.poll(5, 0.5) is None
    return Reading(place, source)


def busy(kafka_node, place_in):
    """It has handed out all ten."""
    place = ten_records(kafka_node, place_in, "kafka-python")
    source = place.reading()
    assert drain(source)[-1] == (9, b"9")
    return Reading(place, source)


def next_batch(source):
    def polled():
        with suppress(StreamUnavailable):
            return source.poll(5, 0.5)
        return None

    return until(polled, "a batch")


def test_a_restart_changes_nothing_and_a_log_that_went_another_way_is_a_mismatch(kafka_node, place_in):
    """One restart for the sources of each kind: it takes longer than all that is looked at."""
    idle_same, idle_torn = ([idle(kafka_node, place_in, client) for client in CLIENTS] for _ in range(2))
    busy_same, busy_torn = (busy(kafka_node, place_in) for _ in range(2))
    kafka_node.nodes[1].stop()
    for one in (*idle_torn, busy_torn):
        cut(kafka_node, one.place.address.topic, 6)
        one.place.writer = None
    kafka_node.nodes[1].start()
    kafka_node.wait_ready()
    for one in (*idle_same, busy_same):
        one.place.send(b"10")
        batch = next_batch(one.source)
        assert (batch.offsets, batch.values) == ([10], [b"10"])
    assert busy_same.source._last[0].epoch > 0, "the point of this test: the epoch did change"
    assert busy_torn.place.source().bounds() == {0: (0, 6)}
    for one in (*idle_torn, busy_torn):
        for n in range(8):
            one.place.send(b"other %d" % n)
        with pytest.raises(LogMismatch, match="offset 9 holds another record"):
            next_batch(one.source)


@pytest.mark.parametrize("client", CLIENTS)
def test_another_record_than_the_known_one_is_a_mismatch_at_once(kafka_node, place_in, client):
    place = ten_records(kafka_node, place_in, client)
    source = place.source()
    with pytest.raises(LogMismatch, match="offset 9 holds another record"):
        source.assign({0: 10}, known(b"8"))
    source.assign({0: 8}, known(b"7"))
    assert drain(source) == [(8, b"8"), (9, b"9")]
