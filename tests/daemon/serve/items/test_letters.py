"""Refused items while their dead letters cannot be written: none is lost, and how many wait is known."""

from __future__ import annotations

import uuid

import pytest

from daemon import dead_letters as letters
from daemon.dead_letters import MOST_WAITING, ItemDeadLetters
from streams.errors import StreamUnavailable
from streams.open import ensure_topic, open_sink, open_source
from streams.poison import DeadLetter, parse_dead_letter
from streams.source import Address, Sink


class Topic:
    """A topic of dead letters that can be away; what it holds in the end."""

    def __init__(self) -> None:
        self.address = Address("memory", uuid.uuid4().hex, "shop.dead")
        self.away = True

    def open(self) -> Sink:
        if self.away:
            raise StreamUnavailable("it is away")
        ensure_topic(self.address, 1)
        return open_sink(self.address)

    def offsets(self) -> list[int]:
        source, found = open_source(self.address), []
        source.assign({0: 0})
        while batch := source.poll(500, 0.0):
            for value, headers in zip(batch.values, batch.headers, strict=True):
                found.append(parse_dead_letter(value, headers).offset)
        source.close()
        return found


def refused(count: int) -> list[DeadLetter]:
    return [DeadLetter("shop.items", 0, n, "not_msgpack", "broken", b"bad") for n in range(count)]


@pytest.mark.parametrize(("count", "left"), [(3, 0), (MOST_WAITING + 5, 5)])
def test_letters_that_are_not_written_are_counted_until_they_are(
    count: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "BACKGROUND_RETRY_SECONDS", 0.0)
    topic = Topic()
    kept = ItemDeadLetters(topic.open)
    kept.add(refused(count), {})
    assert kept.unwritten == count
    kept.flush()
    assert kept.unwritten == count, "it is away"
    topic.away = False
    kept.flush()
    assert kept.unwritten == left
    assert topic.offsets() == list(range(count - left))
    assert kept.counts == {"not_msgpack": count}
    kept.close()


def test_what_an_earlier_reader_has_written_is_counted_and_not_written_again() -> None:
    topic = Topic()
    topic.away = False
    kept = ItemDeadLetters(topic.open)
    kept.add(refused(5), {0: 3})
    assert kept.unwritten == 2
    kept.flush()
    kept.close()
    assert topic.offsets() == [3, 4]
    assert kept.unwritten == 0
    assert kept.counts == {"not_msgpack": 5}
