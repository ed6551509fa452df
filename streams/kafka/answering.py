"""Which brokers of an address answer now: kafka-python picks one by chance and waits, however it hangs."""

from __future__ import annotations

import queue
import threading
import time

from kafka.protocol.metadata import ApiVersionsRequest

from streams.address import Address
from streams.errors import StreamError
from streams.kafka.probe import NoAnswer, Probe
from streams.kafka.settings import KafkaSettings
from streams.kafka.tls import uses_tls

LIMIT_S = 1.0
"""How long to wait for the first one."""

_GRACE_S = 0.2
"""How much longer than the first the others may take."""


def answering(address: Address) -> list[str]:
    """The brokers of `address` that answer within a second; all of them when none does, or there is one."""
    brokers = address.path.split(",")
    if len(brokers) == 1:
        return brokers
    settings = address.kafka or KafkaSettings()
    until = time.monotonic() + LIMIT_S
    told: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    for broker in brokers:
        threading.Thread(
            target=lambda one=broker: told.put((one, _answers(one, settings, until))),
            name="kafka-look",
            daemon=True,
        ).start()
    found: list[str] = []
    for _ in brokers:
        try:
            broker, answers = told.get(timeout=max(0.001, until - time.monotonic()))
        except queue.Empty:
            break
        if answers:
            found.append(broker)
            until = min(until, time.monotonic() + _GRACE_S)
    return found or brokers


def _answers(broker: str, settings: KafkaSettings, until: float) -> bool:
    host, _, port = broker.rpartition(":")
    try:
        with Probe(host, int(port), settings, until) as probe:
            probe.connect()
            if uses_tls(settings):
                probe.secure()
            probe.ask(ApiVersionsRequest(version=0))
    except (StreamError, NoAnswer, OSError):
        return False
    return True
