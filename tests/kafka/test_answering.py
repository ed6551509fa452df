"""Which brokers of an address are fit to begin with."""

from __future__ import annotations

import time
from contextlib import ExitStack

from streams.kafka.probe import ANSWER_LIMIT_S, answering
from streams.source import Address, KafkaSettings
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.ports import free_ports
from tests.harness.kafka.strangers import listener


def test_only_those_that_answer_are_taken(kafka: Cluster) -> None:
    closed = f"127.0.0.1:{free_ports(1)[0]}"
    with ExitStack() as stack:
        hangs = stack.enter_context(listener(None))
        stranger = stack.enter_context(listener(b"220 mail.test ESMTP\r\n"))
        path = ",".join([hangs, closed, stranger, kafka.servers()])
        assert answering(Address("kafka", path)) == [kafka.servers()]


def test_where_nobody_answers_all_are_left_and_it_does_not_wait_long(kafka: Cluster) -> None:
    with listener(None) as one, listener(None) as other:
        began = time.monotonic()
        assert answering(Address("kafka", f"{one},{other}")) == [one, other]
        assert time.monotonic() - began < ANSWER_LIMIT_S + 2.0


def test_tls_is_spoken_where_it_is_wanted(kafka: Cluster) -> None:
    """A plain broker does not answer a client that wants TLS."""
    with listener(None) as hangs:
        both = [hangs, kafka.servers()]
        assert (
            answering(Address("kafka", ",".join(both), kafka=KafkaSettings(security_protocol="SSL"))) == both
        )
