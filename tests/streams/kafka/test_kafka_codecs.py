"""Whatever compresses a batch, and however, it is read; what cannot be read is one damaged stretch."""

from __future__ import annotations

import pytest

from tests.harness.kafka.compressed import CODECS, WRITERS, by_librdkafka, topic_of_anybody
from tests.streams.kafka.conftest import drain
from tests.streams.kafka.segments import batches, recompress
from tests.streams.kafka.test_kafka_damage import with_damage

UNKNOWN = 5


@pytest.fixture
def anybodys(place, kafka, place_in):
    """A topic that takes batches as they come, read with either client."""
    made = place_in(kafka, place.address.kafka.client, create=False)
    topic_of_anybody(kafka, made.address.topic)
    return made


def values_of(name):
    """Of one batch, as many as are read in compiled code."""
    return [f"{name} {n} ".encode() * 50 for n in range(200)]


def test_every_codec_of_every_client_is_read(anybodys, kafka):
    topic, expected, wanted = anybodys.address.topic, [], []
    for writer, write in WRITERS.items():
        for codec, number in CODECS.items():
            write(kafka, topic, codec, values := values_of(f"{writer} {codec}"))
            expected += values
            wanted.append(number)
    assert [batch.codec for batch in batches(kafka, topic)] == wanted
    assert [value for _, value in drain(anybodys.reading())] == expected


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_noise_is_one_damaged_stretch_and_reading_goes_on(anybodys, kafka, codec):
    topic, values = anybodys.address.topic, values_of(codec)
    for _ in range(3):
        by_librdkafka(kafka, topic, codec, values)
    recompress(kafka, topic, 200)
    sound, damaged = with_damage(anybodys.reading(), 500)
    assert [value for _, value in sound] == 2 * values
    ((offset, text),) = damaged
    assert offset == 399
    assert text.startswith("offsets 200 to 399 cannot be read: ")


def test_a_codec_that_nobody_knows_is_one_damaged_stretch_and_reading_goes_on(anybodys, kafka):
    topic, values = anybodys.address.topic, values_of("later")
    for _ in range(3):
        by_librdkafka(kafka, topic, "lz4", values)
    recompress(kafka, topic, 200, UNKNOWN)
    sound, damaged = with_damage(anybodys.reading(), 500)
    assert [value for _, value in sound] == 2 * values
    ((offset, text),) = damaged
    assert offset == 399
    assert text.startswith("offsets 200 to 399 cannot be read: ")


def test_sound_batches_between_those_that_cannot_be_inflated_are_read(anybodys, kafka):
    """However they lie: a search for the end of the damage in steps would leap over some."""
    topic, sound, lost = anybodys.address.topic, [], []
    for number in range(6):
        by_librdkafka(kafka, topic, "zstd", values_of("lost"))
        by_librdkafka(kafka, topic, "zstd", [b"sound %d " % number * 50])
        lost.append(201 * number + 199)
        sound.append(lost[-1] + 1)
    for offset in lost:
        recompress(kafka, topic, offset, UNKNOWN if offset % 2 else None)
    found, damaged = with_damage(anybodys.reading(), 500)
    assert [offset for offset, _ in found] == sound
    assert damaged == [(last, damaged[n][1]) for n, last in enumerate(lost)]
    assert all(text.startswith(f"offsets {last - 199} to {last} ") for last, text in damaged)
