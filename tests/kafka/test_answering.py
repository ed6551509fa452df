"""Which brokers of an address are fit to begin with."""

from __future__ import annotations

from contextlib import ExitStack

from streams.kafka.probe import ANSWER_LIMIT_S, answering
from streams.source import Address, KafkaSettings
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.ports import free_ports
from tests.harness.kafka.strangers import listener
from tests.harness.waiting import soon_enough, until


def test_only_those_that_answer_are_taken(kafka: Cluster) -> None:
    closed = f"127.0.0.1:{free_ports(1)[0]}"
    with ExitStack() as stack:
        hangs = stack.enter_context(listener(None))
        stranger = stack.enter_context(listener(b"220 mail.test ESMTP\r\n"))
        path = ",".join([hangs, closed, stranger, kafka.servers()])
        # a broker that a busy machine keeps from answering within the second is left out: asked again
        until(lambda: answering(Address("kafka", path)) == [kafka.servers()], "only the broker is taken")


def test_where_nobody_answers_all_are_left_and_it_does_not_wait_long(kafka: Cluster) -> None:
    with listener(None) as one, listener(None) as other:
        path = f"{one},{other}"
        found = soon_enough(lambda: answering(Address("kafka", path)), ANSWER_LIMIT_S + 2.0)
        assert found == [one, other]


def test_tls_is_spoken_where_it_is_wanted(kafka: Cluster) -> None:
    """A plain broker does not answer a client that wants TLS."""
    with listener(None) as hangs:
        both = [hangs, kafka.servers()]
        assert (
            answering(Address("kafka", ",".join(both), kafka=KafkaSettings(security_protocol="SSL"))) == both
        )
