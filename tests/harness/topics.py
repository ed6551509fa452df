"""Topics of an embedded log or of Kafka that tests make all of, or take away."""

from __future__ import annotations

from contextlib import closing

from streams.errors import TopicMissing
from streams.log.database import errors_of, find_topic, open_log, transaction
from streams.open import Prepared, create_topic, memory_path
from streams.partitions import TopicLimits
from streams.source import Address

from .waiting import until


def create_topics(address: Address, partitions: int, limits: TopicLimits) -> list[Prepared]:
    """Make the topics of an address unless they exist: training, holdout, dead letters (one partition)."""
    wanted = [(address, partitions), (address.holdout, partitions), (address.dead, 1)]
    return [create_topic(one, count, limits) for one, count in wanted]


def delete_topic(address: Address) -> None:
    """Remove a topic with all its records; raises TopicMissing when there is none."""
    if address.scheme == "kafka":
        _delete_of_kafka(address)
    else:
        is_memory = address.scheme == "memory"
        delete_of_log(memory_path(address.path) if is_memory else address.path, address.topic)


def delete_of_log(path: str, topic: str) -> None:
    """Remove a topic of an embedded log; a later one of the same name has another identity."""
    with closing(open_log(path, durable=True)) as connection:
        row = find_topic(connection, path, topic)
        with errors_of(path), transaction(connection, write=True):
            for partition in range(row.identity.partitions):
                connection.execute(f"DROP TABLE {row.table(partition)}")
            connection.execute("DELETE FROM partitions WHERE topic = ?", (row.number,))
            connection.execute("DELETE FROM topics WHERE number = ?", (row.number,))


def _delete_of_kafka(address: Address) -> None:
    from streams.kafka.admin import Admin

    with closing(Admin(address)) as admin:
        admin.identity()
        admin.call(lambda client: client.delete_topics([address.topic], timeout_ms=30_000))

        def is_gone() -> bool:
            try:
                admin.identity()
            except TopicMissing:
                return True
            return False

        until(is_gone, "the topic is still there")
