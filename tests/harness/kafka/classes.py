"""An archive of the classes that a broker loads: `python -m tests.harness.kafka.classes` makes it, once.

With it a broker needs 2.1 s of a core to start instead of 3.7. Java leaves an archive alone that does not fit
it, or that is not there.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from tests.harness.kafka.jars import jars
from tests.harness.kafka.java import java
from tests.harness.kafka.missing import KafkaMissing


def archive() -> Path:
    """Where the archive of these jars and this Java is, made or not."""
    of = hashlib.sha256(str(java()).encode()).hexdigest()[:12]
    return jars().with_name(f"{jars().name.replace('jars', 'classes')}-{of}.jsa")


def make() -> None:
    """Run a broker, let it create, write and read a topic, and keep the classes that it has loaded."""
    from streams.open import open_sink, open_source
    from streams.partitions import TopicLimits
    from streams.source import OutRecord, parse_address
    from tests.harness.kafka.cluster import Cluster
    from tests.harness.topics import create_topics

    made = archive().with_suffix(".part")
    made.unlink(missing_ok=True)
    with Cluster(java=[f"-XX:ArchiveClassesAtExit={made}"]) as cluster:
        address = parse_address(cluster.address("classes"))
        create_topics(address, 1, TopicLimits())
        open_sink(address).send([OutRecord(b"one")])
        source = open_source(address)
        source.assign({0: 0})
        source.poll(1, 5.0)
        for node in cluster.nodes.values():
            node.stop()
    made.rename(archive())


if __name__ == "__main__":
    try:
        if not archive().exists():
            make()
    except (KafkaMissing, AssertionError, OSError) as problem:
        sys.exit(f"no archive of Kafka's classes, its brokers start slower: {problem}")
