"""What only a broker does to a writer, and the topics that are made for it."""

from __future__ import annotations

import time

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from streams.errors import LogMismatch, RecordRefused, TopicMissing
from streams.kafka.topics import safe_settings
from streams.open import prepare_topic
from streams.partitions import TopicLimits
from streams.source import OutRecord
from tests.harness.kafka.control import create_topic, set_topic
from tests.harness.topics import create_topics, delete_topic
from tests.streams.kafka.conftest import PATIENCE_S, drain
from tests.streams.kafka.segments import batches


def settings_of(cluster, topic):
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    with cluster.admin() as admin:
        found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    return {name: setting["value"] for name, setting in found.items()}


def test_topics_are_created_with_the_safe_settings_and_left_as_they_are(kafka, place_in):
    address = place_in(kafka, create=False).address
    with pytest.raises(TopicMissing, match="tripletd topics create"):
        prepare_topic(address, 3)
    made = create_topics(address, 3, TopicLimits(86400.0, 3 << 20))
    assert [(one.identity.topic, one.identity.partitions, one.created) for one in made] == [
        (address.topic, 3, True),
        (address.holdout.topic, 3, True),
        (address.dead.topic, 1, True),
    ]
    for one in made:
        dead, partitions = one.identity.topic == address.dead.topic, one.identity.partitions
        safe = safe_settings(dead, 1, TopicLimits(86400.0, 3 << 20), partitions)
        found = settings_of(kafka, one.identity.topic)
        assert {name: found[name] for name in safe} == safe
    again = create_topics(address, 3, TopicLimits())
    assert [one.identity for one in again] == [one.identity for one in made]
    assert not any(one.created for one in again)
    assert settings_of(kafka, address.topic)["retention.ms"] == "86400000"
    assert prepare_topic(address, 99, "read", "write") == made[0].identity, "any number of partitions will do"
    with pytest.raises(LogMismatch, match="3 partitions, not 4"):
        create_topics(address, 4, TopicLimits())
    for one in (address, address.holdout, address.dead):
        delete_topic(one)


def test_a_record_with_neither_value_nor_key_is_refused(place):
    sink = place.sink()
    with pytest.raises(RecordRefused, match="neither value nor key"):
        sink.send([OutRecord(b"x"), OutRecord(None)])
    assert sink.send([OutRecord(None, key=b"k")]) == [(0, 0)]


def test_clocks_may_be_wrong_by_years(place, kafka):
    set_topic(kafka, place.address.topic, message_timestamp_type="CreateTime")
    sent = [OutRecord(b"x", timestamp=stamp) for stamp in (0, 1, 2**42, 2**45)]
    place.sink().send(sent)
    first, *others = place.reading().poll(10, PATIENCE_S).timestamps
    assert others == [1, 2**42, 2**45]
    assert first <= 1, "librdkafka has no word for the first millisecond of 1970"


def test_on_a_topic_made_here_the_broker_says_when_a_record_came(place):
    before = int(time.time() * 1000) - 60_000
    place.sink().send([OutRecord(b"x", timestamp=stamp) for stamp in (0, 1, before * 1000)])
    assert all(before < one < before + 600_000 for one in place.reading().poll(10, PATIENCE_S).timestamps)


def test_a_send_keeps_its_order_and_is_one_batch_where_it_fits(kafka, place_in):
    place = place_in(kafka)
    sink = place.sink()
    sent = [b"%d" % n for n in range(300)]
    assert sink.send([OutRecord(value) for value in sent]) == [(0, n) for n in range(300)]
    assert drain(place.reading(), 1000) == list(enumerate(sent))
    assert len(batches(kafka, place.address.topic)) == 1


def test_a_send_larger_than_a_batch_keeps_its_order_too(place):
    sent = [bytes([n]) * 10_000 for n in range(200)]
    sink = place.sink()
    for _ in range(2):
        sink.send([OutRecord(value) for value in sent])
    assert [value for _, value in drain(place.reading())] == sent * 2


def test_a_topic_that_takes_less_says_how_much(kafka, place_in):
    place = place_in(kafka, create=False)
    create_topic(kafka, place.address.topic, configs={"max.message.bytes": "5000"})
    sink = place.sink()
    assert 3000 < sink.max_record_bytes < 5000
    with pytest.raises(RecordRefused, match=r"max\.message\.bytes"):
        sink.send([OutRecord(b"small"), OutRecord(bytes(5000))])
    sink.send([OutRecord(bytes(sink.max_record_bytes))] * 20)
    assert place.reading().bounds() == {0: (0, 20)}
