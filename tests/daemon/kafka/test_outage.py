"""feed and validate while a broker does not answer: they wait, and nothing is lost or counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import IO

import pytest

from daemon.exits import EX_OK
from streams.codec import decode_event, decode_impression
from tests.daemon.kafka.shop import Shop
from tests.harness import forked
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.fixtures import OWN_NODE
from tests.harness.waiting import until

pytestmark = OWN_NODE

ROOT = Path(__file__).parents[3]
WAIT_SECONDS = 60.0


@pytest.fixture
def frozen_shop(tmp_path: Path, kafka_node: Cluster) -> Shop:
    """A shop whose broker may be frozen."""
    return Shop(tmp_path, kafka_node, fresh_topic("shop"), 2)


def start(shop: Shop, *words: str) -> subprocess.Popen[str]:
    """A command that asks its broker for half a second; the shop itself is patient, as by default."""
    soon = ("--set", "stream.kafka.timeout_s=0.5")
    command = [sys.executable, "-m", "daemon", *words, "--config", str(shop.file), *soon]
    pipe = subprocess.PIPE
    return forked.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def write_and_close(pipe: IO[str], lines: Iterable[str]) -> None:
    with pipe:
        pipe.writelines(line + "\n" for line in lines)


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"{words!r} was not said:\n{said}")


def test_feed_sends_again_what_is_in_doubt(frozen_shop: Shop) -> None:
    shop, node = frozen_shop, frozen_shop.kafka.nodes[1]
    lines = iter(shop.clicks(900))
    feeding = start(shop, "feed", "-", "--format", "impressions", "--json")
    assert feeding.stdin is not None
    for line in lines:  # a batch goes out when a line comes and it is a second old
        feeding.stdin.write(line + "\n")
        feeding.stdin.flush()
        if shop.end(shop.topic):
            break
    node.freeze()
    rest = Thread(target=write_and_close, args=(feeding.stdin, lines))  # it may be more than a pipe holds
    rest.start()
    read_until(feeding, "trying again")
    node.thaw()
    rest.join()
    feeding.stdin = None
    out, err = feeding.communicate(timeout=WAIT_SECONDS)
    assert feeding.returncode == EX_OK, err
    account = json.loads(out)
    assert account["sent_again"] > 0
    assert account["read"] == 900
    assert "sent again" in err
    events = [decode_event(record.value).id for record in shop.records(shop.topic)]
    lists = (decode_impression(record.value) for record in shop.records(f"{shop.topic}.holdout"))
    held_out = [one.id for one in lists if not one.trained]
    assert len(set(events)) == account["triplets"]
    assert len(set(held_out)) == account["holdout"]
    repeats = len(events) - len(set(events)) + len(held_out) - len(set(held_out))
    assert repeats <= account["sent_again"]


def test_validate_outlasts_a_broker_that_does_not_answer(frozen_shop: Shop) -> None:
    shop, node = frozen_shop, frozen_shop.kafka.nodes[1]
    assert (shop.feed(400), shop.learn()) == (EX_OK, EX_OK)
    validating = start(shop, "validate")
    try:
        until(shop.ledger.entries, "a verdict")
        node.freeze()
        time.sleep(3.0)  # several of its calls end in vain
        assert validating.poll() is None
        node.thaw()
        shop.kafka.wait_ready()
        assert (shop.feed(400, 1), shop.learn()) == (EX_OK, EX_OK)
        newest = shop.versions.versions()[-1]
        until(lambda: newest in {one.version for one in shop.ledger.entries()}, "the next verdict")
    finally:
        validating.terminate()
        _, err = validating.communicate(timeout=WAIT_SECONDS)
    assert validating.returncode == EX_OK, err
