"""The step log on a real broker: what it tells gives the learner's versions again, bit for bit."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from daemon.exits import EX_OK
from streams.steps.segment import RankOneSteps
from tests.daemon.kafka.shop import Shop
from tests.daemon.learn.steplog.following import bodies, followed, segments, values_of
from tests.harness.kafka.control import create_topic
from tests.harness.topics import delete_topic

pytestmark = pytest.mark.usefixtures("steps_are_waited_for")


def assert_every_version_told(shop: Shop) -> None:
    address = shop.config().stream.to_address().steps
    told = list(segments(values_of(address)))
    reached = followed(shop.versions.load(0), told)
    assert shop.newest().number in reached
    for number, W in reached.items():
        assert W.tobytes() == shop.versions.load(number).arrays["W"].tobytes()
    assert sum(map(len, bodies(told, RankOneSteps))) == shop.newest().counters["updated"]


def test_replaying_the_step_log_gives_every_version(shop: Shop) -> None:
    assert shop.feed(400) == EX_OK
    assert shop.learn(checkpoints__every_events=200, stream__poll_records=50) == EX_OK
    assert_every_version_told(shop)


def test_segments_come_in_parts_where_the_topic_takes_only_small_records(shop: Shop) -> None:
    address = shop.config().stream.to_address().steps
    delete_topic(address)
    create_topic(shop.kafka, address.topic, configs={"max.message.bytes": "3000"})
    assert shop.feed(400) == EX_OK
    assert shop.learn() == EX_OK
    values = values_of(address)
    assert len(values) > len(list(segments(values)))
    assert_every_version_told(shop)


def test_without_the_topic_learning_goes_on_and_the_log_says_why(shop: Shop) -> None:
    delete_topic(shop.config().stream.to_address().steps)
    assert shop.feed(100) == EX_OK
    with capture_logs() as said:
        assert shop.learn() == EX_OK
    assert shop.newest().counters["updated"] > 0
    (line,) = [line for line in said if line["event"].startswith("the step log cannot be written")]
    assert "topics create" in str(line)
