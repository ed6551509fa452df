"""Every codec of every client, whole, damaged, unknown and as a bomb, read by each of our clients."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from streams.kafka.source import KafkaSource
from streams.limits import MAX_POLL_BYTES
from streams.source import Address, KafkaSettings, parse_address
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.compressed import CODECS, WRITERS, topic_of_anybody
from tests.harness.kafka.control import fresh_topic
from tests.harness.kill.tally import Tally
from tests.streams.kafka.segments import batches, recompress

UNKNOWN = 5
BOMB = [bytes(1 << 20)] * (MAX_POLL_BYTES // (1 << 20) + 10)


def compressed_batches(cluster: Cluster, client: str) -> Tally:
    """Around each batch lie two sound ones, to be read; the one between is too, or is one damaged stretch."""
    tally = Tally(f"compressed batches: {client}")
    for writer, write in WRITERS.items():
        for codec in CODECS:
            for kind in ("whole", "noise", "unknown", "bomb"):
                if kind == "bomb" and (client == "confluent" or writer == "java"):
                    continue  # the one has no limit, and to the other it would go uncompressed
                with tally.case(f"{kind}, {codec} by {writer}"):
                    topic = fresh_topic()
                    topic_of_anybody(cluster, topic)
                    values = BOMB if kind == "bomb" else [f"{codec} {n} ".encode() * 50 for n in range(100)]
                    for part in ([b"before" * 99], values, [b"after" * 99]):
                        write(cluster, topic, codec, part)
                    if kind in ("noise", "unknown"):
                        middle = batches(cluster, topic)[1]
                        recompress(cluster, topic, middle.first, UNKNOWN if kind == "unknown" else None)
                    address = parse_address(cluster.address(topic))
                    sound, damaged = _read(replace(address, kafka=KafkaSettings(client=client)))
                    assert sound == [b"before" * 99, *(values if kind == "whole" else ()), b"after" * 99]
                    assert damaged == ([] if kind == "whole" else [len(values)])
    return tally


def _read(address: Address) -> tuple[list[bytes | None], list[int]]:
    """All values that can be read, and the last offset of each stretch that cannot."""
    sound: list[bytes | None] = []
    damaged: list[int] = []
    with closing(KafkaSource(address)) as source:
        source.assign({0: 0})
        end = source.bounds()[0][1]
        while source.reached()[0] < end:
            batch = source.poll(500, 20.0)
            assert batch is not None, f"nothing comes at {source.reached()} of {end}"
            if batch.damaged is None:
                sound += batch.values
            else:
                damaged += batch.offsets
    return sound, damaged
