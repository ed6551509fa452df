"""Somebody's open transaction holds records back: they are lag, with a reason, until it ends."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer

from daemon.exits import EX_OK
from streams.feed.follow import topics
from streams.feed.follow.intake import Intake
from streams.open import open_sink, open_source
from streams.partitions import past_gaps
from streams.source import KafkaSettings, OutRecord, whole_topic
from tests.harness import forked
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.control import fresh_topic
from tests.harness.kafka.traffic import event
from tests.harness.kafka.transactions import until_ended
from tests.harness.kill.learners import Process
from tests.harness.kill.site import Site, make_site
from tests.harness.waiting import until

CLIENTS = ("kafka-python", "confluent")
SET = ("--set", "http.validate_port=0", "--set")


@contextmanager
def transaction(kafka: Cluster, topic: str, value: bytes) -> Iterator[KafkaProducer]:
    """One record in a transaction that stays open; aborted unless it was ended."""
    producer = KafkaProducer(
        bootstrap_servers=kafka.servers(),
        transactional_id=f"open-{topic}-{os.urandom(3).hex()}",
        transaction_timeout_ms=600_000,
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(30)
        yield producer
    finally:
        producer.close()


def write(site: Site, first: int, count: int) -> None:
    rng = np.random.default_rng(first)
    with closing(open_sink(site.address)) as sink:
        sink.send([OutRecord(event(rng, number)) for number in range(first, first + count)])


def await_ready(learner: Process, status: int) -> None:
    until(lambda: learner.get("readyz")[0] == status, lambda: (learner.get("readyz"), learner.said()), 240.0)


def tripletd(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon", *words, "--config", str(site.config)]
    return forked.run(command, capture_output=True, text=True, check=False, timeout=120)


def picture(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tripletd(site, "status", "--json").stdout)
    return found


def test_what_an_open_transaction_holds_back_is_lag_with_a_reason(kafka: Cluster, tmp_path: Path) -> None:
    topic = fresh_topic()
    first = make_site(tmp_path, kafka.address(topic))
    write(first, 0, 100)
    sites = {client: first if client == CLIENTS[0] else first.again(client) for client in CLIENTS}
    with ExitStack() as stack:
        learners = {
            client: stack.enter_context(Process(site, "--set", f"stream.kafka.client={client}"))
            for client, site in sites.items()
        }
        for learner in learners.values():
            await_ready(learner, 200)
            until(lambda learner=learner: learner.metric("tripletd_lag_events") == 0, learner.said)
        with transaction(kafka, topic, b"not ended yet") as producer:
            write(first, 100, 50)  # committed, and nobody is given them
            for client, learner in learners.items():
                await_ready(learner, 503)
                why = learner.get("readyz")[1]
                assert "an open transaction" in why, (client, why)
                assert "open at offset 100 of partition 0 for " in why
                assert "51 records wait" in why
                assert f"abort --topic {topic} --partition 0 --start-offset 100" in why
                # /readyz looks at the clock, metrics were recorded with the last answer of the log
                until(lambda it=learner: it.metric("tripletd_held_back_seconds") > 5, learner.said)
                assert learner.metric("tripletd_lag_events") == 51
                assert learner.metric("tripletd_held_back_events") == 51
                assert learner.get("livez")[0] == 200
            told = picture(first)
            assert told["stream"]["lag"] == 51
            (problem,) = told["problems"]
            assert problem.startswith(f"a transaction is open at offset 100 of partition 0 of {topic}")
            ended = tripletd(first.again("batch"), "learn", "--exit-when-caught-up")
            assert ended.returncode == EX_OK
            assert "what an open transaction holds back" in ended.stderr
            producer.abort_transaction()
        for learner in learners.values():
            await_ready(learner, 200)
            until(lambda learner=learner: learner.metric("tripletd_lag_events") == 0, learner.said)
            until(lambda it=learner: it.metric("tripletd_held_back_events") == 0, learner.said)
            until(lambda it=learner: it.metric("tripletd_held_back_seconds") == 0, learner.said)
    for site in sites.values():
        assert site.newest().counters["records"] == 150
    assert picture(first)["problems"] == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_topic_that_ends_in_the_marker_of_a_transaction_is_read_whole(
    kafka: Cluster, tmp_path: Path, client: str, commit: bool
) -> None:
    topic = fresh_topic()
    site = make_site(tmp_path, kafka.address(topic))
    write(site, 0, 3)
    with transaction(kafka, topic, b"first") as producer:
        for _ in range(51):
            producer.send(topic, b"more", partition=0)
        producer.flush(30)
        producer.commit_transaction() if commit else producer.abort_transaction()
    until_ended(site.address)
    address = replace(site.address, kafka=replace(KafkaSettings(), client=client))
    with closing(open_source(address)) as source:
        bounds = source.bounds()
        assert bounds == {0: (0, 3 + 52 + 1)}
        found = [value for batch in whole_topic(source, bounds, topic) for value in batch.values]
        assert len(found) == (55 if commit else 3)
        assert past_gaps(source, {0: 55 if commit else 3}, bounds) == {0: 56}
        with transaction(kafka, topic, b"not ended yet"):
            write(site, 3, 2)
            assert len(list(whole_topic(source, source.bounds(), topic))) > 0
            until(source.held_back, "the open transaction")


def test_what_an_open_transaction_holds_back_is_behind_a_follower_with_a_reason(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "STALL_SECONDS", 0.0)
    topic = fresh_topic()
    site = make_site(tmp_path, kafka.address(topic))
    write(site, 0, 1)
    with (
        closing(Intake([str(site.address)], {}, 0)) as intake,
        transaction(kafka, topic, b"not ended yet"),
    ):
        write(site, 1, 5)
        now = itertools.count()

        def held() -> bool:
            intake.next(100, float(next(now)))
            return intake.behind() == {str(site.address): 6} and bool(intake.trouble())

        until(held, lambda: (intake.behind(), intake.trouble()))
        assert f"abort --topic {topic} --partition 0 --start-offset 1" in intake.trouble()[0]


class Validator(Process):
    """`tripletd validate` as a user starts it."""

    command = "validate"


def test_what_holds_back_the_holdout_is_said_by_validate(kafka: Cluster, tmp_path: Path) -> None:
    topic = fresh_topic()
    site = make_site(tmp_path, kafka.address(topic))
    write(site, 0, 100)
    assert tripletd(site, "learn", "--exit-when-caught-up").returncode == EX_OK
    holdout = replace(site, address=site.address.holdout)
    with ExitStack() as stack:
        validators = [
            stack.enter_context(Validator(site.again(client), *SET, f"stream.kafka.client={client}"))
            for client in CLIENTS
        ]

        def reason(validator: Process) -> str:
            return validator.get("readyz")[1]

        for validator in validators:
            until(lambda it=validator: "no version yet" in reason(it), validator.said, 240.0)
        with transaction(kafka, f"{topic}.holdout", b"not ended yet") as producer:
            write(holdout, 100, 3)
            for validator in validators:
                until(lambda it=validator: "open transaction" in reason(it), validator.said, 60.0)
                why = reason(validator)
                assert re.search(r"it has been open at offset 0 of partition 0 for \d+ s, and", why), why
                assert "4 records wait" in why
                assert f"abort --topic {topic}.holdout --partition 0 --start-offset 0" in why
                until(lambda it=validator: it.metric("tripletd_held_back_seconds") > 5, validator.said)
                assert validator.metric("tripletd_held_back_events") == 4
            batch = tripletd(site, "validate", "--exit-when-caught-up", *SET[:2])
            assert "what an open transaction holds back" in batch.stderr, batch.stderr
            producer.abort_transaction()
        for validator in validators:
            until(lambda it=validator: "no version yet" in reason(it), validator.said, 60.0)
            until(lambda it=validator: it.metric("tripletd_held_back_events") == 0, validator.said)
