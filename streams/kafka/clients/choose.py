"""The client that the settings name; the other one is never imported."""

from __future__ import annotations

from streams.address import Address
from streams.kafka.clients.protocol import ConsumerClient, ProducerClient
from streams.kafka.connect import settings_of
from streams.source import TopicIdentity


def make_consumer(address: Address, identity: TopicIdentity) -> ConsumerClient:
    """Connect for reading the topic of that identity; raises StreamUnavailable or StreamRefused."""
    if settings_of(address).client == "confluent":
        from streams.kafka.clients.confluent_client import ConfluentConsumer

        return ConfluentConsumer(address, identity.topic_id)
    from streams.kafka.clients.python_client import PythonConsumer

    return PythonConsumer(address, identity.topic_id)


def make_producer(address: Address, max_message_bytes: int) -> ProducerClient:
    """Connect for writing batches of at most so many bytes; raises StreamUnavailable or StreamRefused."""
    if settings_of(address).client == "confluent":
        from streams.kafka.clients.confluent_producer import ConfluentProducer

        return ConfluentProducer(address)
    from streams.kafka.clients.python_producer import PythonProducer

    return PythonProducer(address, max_message_bytes)
