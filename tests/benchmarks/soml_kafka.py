"""From a real Kafka to w: SOML-DA at a million dimensions, in the real `tripletd learn` process.

`soml_kafka_events_per_second` with kafka-python and `soml_kafka_confluent_events_per_second`; each beside
what the bare client polls from the same topic, in turn. The broker runs on the same cores.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from functools import partial

from streams.partitions import TopicLimits
from streams.source import Address, parse_address
from tests.benchmarks.harness import Figure, paired_ratio
from tests.benchmarks.kafka_path import bare_confluent, bare_kafka_python, with_client
from tests.benchmarks.soml_speed import LARGE, NON_ZEROS, SHARED, overlapping_triplets
from tests.benchmarks.whole_path import DISTINCT, FOLDER, whole_path, write_events
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.missing import KafkaMissing
from tests.harness.topics import create_topics

LEARNER = 'algorithm = "soml-da"'
REPEATS = 5


def figures() -> list[Figure]:
    """Both clients; none where no broker can run."""
    try:
        with Cluster() as cluster:
            address = parse_address(cluster.address("clicks"))
            create_topics(address, 1, TopicLimits())
            batch = overlapping_triplets(LARGE, SHARED, DISTINCT)
            write_events(with_client(address, "confluent"), batch)
            return [
                path_figure("soml_kafka_events_per_second", address, "kafka-python"),
                path_figure("soml_kafka_confluent_events_per_second", address, "confluent"),
            ]
    except KafkaMissing as problem:
        sys.stderr.write(f"the figures of SOML from Kafka are left as they were: {problem}\n")
        return []
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def path_figure(name: str, address: Address, client: str) -> Figure:
    """A `learn` process on the topic, and the bare client, in turn."""
    stream = f'address = "{address}"\n[stream.kafka]\nclient = "{client}"'
    bare = bare_confluent if client == "confluent" else bare_kafka_python
    learned = partial(whole_path, stream, LEARNER, LARGE)
    ratio, ours, theirs = paired_ratio(learned, partial(bare, address), REPEATS)
    what = (
        f"the bare client's own poll (detail); m = {LARGE:,}, {NON_ZEROS} non-zeros, {SHARED} of the clicked "
        f"and {SHARED} of the skipped object of which are in the query, 1.7 KB events, broker beside"
    )
    bare_rate = round(statistics.median(theirs), 1)
    detail = {"bare_client_per_second": bare_rate, "over_bare_client": round(ratio, 3)}
    return Figure(name, round(statistics.median(ours), 1), "events/s", what, REPEATS, detail)
