"""The topic of items is read whole and in order, whatever the stream does meanwhile."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.serve.items import topic as topic_module
from daemon.serve.items.topic import ItemTopic
from streams.errors import StreamUnavailable
from streams.open import ensure_topic, open_sink, open_source, retain
from streams.source import Address, HeldBack, OutRecord
from tests.harness.topics import delete_topic


class Failing:
    """A source whose calls of some names fail when their turn comes."""

    def __init__(self, source: Any, fails: Callable[[str], bool]) -> None:
        self._source, self._fails = source, fails

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any) -> Any:
            if self._fails(name):
                raise StreamUnavailable(f"{name} does not answer")
            return getattr(self._source, name)(*words)

        return call


@pytest.fixture
def address(monkeypatch) -> Address:
    monkeypatch.setattr(topic_module, "BACKGROUND_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(topic_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(topic_module, "COMPACT_SECONDS", 0.0)
    found = Address("memory", uuid.uuid4().hex, "t.items")
    ensure_topic(found, 1)
    return found


def send(address: Address, *numbers: int) -> None:
    open_sink(address).send([OutRecord(b"%d" % n) for n in numbers])


def read(topic: ItemTopic, polls: int = 20) -> list[int]:
    found = []
    for _ in range(polls):
        batch = topic.poll(3, 0.0)
        found += [] if batch is None else [int(value) for value in batch.values]
    return found


@pytest.mark.parametrize("name", ["identity", "bounds", "assign", "poll", "committed", "commit"])
@pytest.mark.parametrize("every", [2, 3, 5])
def test_no_record_is_lost_or_repeated_when_calls_fail(address, name, every):
    turns = Counter()

    def fails(called: str) -> bool:  # polls, too, so that the topic is opened again and again
        turns[called] += 1
        return turns[called] % {name: every, "poll": 4}.get(called, 1_000_000) == 0

    topic = ItemTopic(lambda: Failing(open_source(address), fails), lambda: None)
    found = []
    for n in range(0, 40, 4):
        send(address, *range(n, n + 4))
        found += read(topic, 5)
        topic.tidy()
    assert found + read(topic) == list(range(40))
    assert topic.caught_up
    assert turns[name] >= every, "it did fail"


def test_what_was_handed_out_last_can_be_had_again(address):
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    send(address, *range(6))
    first = topic.poll(3, 0.0)
    topic.again(first)
    assert read(topic) == list(range(6))


def test_caught_up_means_what_was_there_at_the_start(address):
    send(address, *range(6))
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    topic.poll(3, 0.0)
    assert not topic.caught_up
    topic.poll(3, 0.0)
    assert topic.caught_up
    send(address, 6)
    assert topic.caught_up, "for good"


def test_a_topic_made_anew_is_read_from_its_beginning_once(address):
    send(address, 1, 2)
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    assert read(topic) == [1, 2]
    delete_topic(address)
    assert read(topic, 3) == []
    assert "no topic" in topic.trouble
    ensure_topic(address, 1)
    send(address, 3)
    assert read(topic) == [3]
    assert topic.restarted
    assert topic.trouble is None


def test_records_that_went_before_they_were_read_are_passed_over(address):
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    send(address, *range(9))
    topic.poll(3, 0.0)
    retain(address, None, 0, before={0: 6})
    assert read(topic) == [6, 7, 8]


def test_a_log_that_lost_its_tail_is_read_anew(address):
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    send(address, *range(4))
    assert read(topic) == list(range(4))
    topic.positions = {0: 9}  # as if five more had been there
    topic.close()
    assert read(topic) == list(range(4))
    assert topic.restarted


def test_how_far_it_is_behind_and_what_it_notes(address):
    topic = ItemTopic(lambda: open_source(address), lambda: None)
    send(address, *range(5))
    topic.poll(3, 0.0)
    assert topic.behind == 2
    topic.tidy()
    assert open_source(address).committed() == {}, "not before it is caught up"
    read(topic)
    topic.tidy()
    assert open_source(address).committed() == {0: 5}
    assert topic.behind == 0


def test_compacting_holds_up_nothing_and_runs_once_at_a_time(address):
    begun, go_on = threading.Event(), threading.Event()
    runs = []

    def compacting():
        runs.append(1)
        begun.set()
        assert go_on.wait(20)
        raise StreamUnavailable("busy")

    topic = ItemTopic(lambda: open_source(address), compacting)
    read(topic, 1)
    topic.tidy()
    assert begun.wait(20)
    send(address, 1)
    topic.tidy()
    assert read(topic) == [1]
    assert len(runs) == 1
    go_on.set()
    topic._compaction.join(20)
    topic.tidy()
    topic._compaction.join(20)
    assert len(runs) == 2


class Holding:
    """A source that says what a transaction holds back."""

    def __init__(self, source: Any, held: dict[int, HeldBack]) -> None:
        self._source, self._held = source, held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def held_back(self) -> dict[int, HeldBack]:
        return dict(self._held)


def test_what_a_transaction_holds_back_is_behind_and_told_once(address):
    send(address, 1, 2)
    held = {0: HeldBack(2, 9)}
    topic = ItemTopic(lambda: Holding(open_source(address), held), lambda: None)
    with capture_logs() as said:
        assert read(topic) == [1, 2]
        assert topic.caught_up
        assert topic.behind == 7
        assert topic.trouble is None
        held.clear()
        read(topic)
        assert topic.behind == 0
    (line,) = [line for line in said if "open transaction" in line["event"]]
    assert (line["offset"], line["records"]) == (2, 7)
    assert "abort --topic t.items --partition 0 --start-offset 2" in line["remedy"]
    topic.close()
