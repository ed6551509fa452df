"""A look before a client is used: kafka-python only says "Unable to bootstrap", this tells why."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection

from streams.address import Address
from streams.errors import StreamError, StreamUnavailable
from streams.kafka.entrance import asks_password, enter, no_password_given
from streams.kafka.permissions import (
    Need,
    advertised,
    creation_fault,
    metadata_request,
    topic_fault,
    trial_creation,
)
from streams.kafka.probe import NoAnswer, Probe
from streams.kafka.settings import KafkaSettings

BUDGET_S = 4.5
"""The whole look ends within this, whatever is wrong."""

_TO_FIND_OUT_S = 1.5  # of it kept for finding out what answered wrongly, or not at all


def preflight(address: Address, *needs: Need) -> None:
    """Check that a topic can be reached and used for `needs`: any of "read", "write", "create".

    Ends within `BUDGET_S`. Raises StreamUnavailable when nobody answers (the same call may succeed later),
    StreamRefused when we are not let in, TopicMissing when there is no such topic; each message names the
    place and the remedy, and holds no secret. One broker of the address that lets us in is enough.
    """
    until = time.monotonic() + BUDGET_S
    settings = address.kafka or KafkaSettings()
    places = [_place(one) for one in address.path.split(",")]
    try:
        _first_success(places, lambda place: _look(place, address.topic, settings, needs, until), until)
    except StreamError as fault:
        raise type(fault)(f"{address}: {fault}") from fault


def _look(
    place: tuple[str, int], topic: str, settings: KafkaSettings, needs: Collection[Need], until: float
) -> None:
    with Probe(*place, settings, until - _TO_FIND_OUT_S) as probe:
        versions = enter(probe, until)
        try:
            metadata = probe.ask(metadata_request(topic, versions))
            fault = topic_fault(metadata, topic, settings, needs)
            if fault is None and "create" in needs:
                fault = creation_fault(probe.ask(trial_creation(topic)), topic, settings)
        except NoAnswer as problem:
            if problem.silent or asks_password(settings):
                raise StreamUnavailable(f"{probe.place} stopped answering: look at its log") from problem
            raise no_password_given(probe, until) from problem
    if fault is not None:
        raise fault
    _check_advertised(advertised(metadata), place, settings, until)


def _check_advertised(
    places: list[tuple[str, int]], entered: tuple[str, int], settings: KafkaSettings, until: float
) -> None:
    """Clients go on where the brokers tell them to, which is not always where this machine can go."""
    if entered in places:
        return

    def reach(place: tuple[str, int]) -> None:
        with Probe(*place, settings, until - _TO_FIND_OUT_S) as probe:
            enter(probe, until)

    try:
        _first_success(places, reach, until)
    except StreamError as fault:
        raise type(fault)(
            f"{entered[0]}:{entered[1]} sends its clients on (advertised.listeners), but there: {fault}"
        ) from fault


def _first_success(
    places: list[tuple[str, int]], look: Callable[[tuple[str, int]], None], until: float
) -> None:
    """Look at all places at once; return when one is fine, else raise what is most worth knowing."""
    found: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    for place in places:
        threading.Thread(target=_report, args=(look, place, found), name="preflight", daemon=True).start()
    faults: list[Exception] = []
    for _ in places:
        try:
            fault = found.get(timeout=max(0.05, until - time.monotonic()))
        except queue.Empty:  # the name service alone can take longer than we wait
            break
        if fault is None:
            return
        faults.append(fault)
    for fault in faults:
        if not isinstance(fault, StreamUnavailable):
            raise fault
    if faults:
        raise StreamUnavailable("; ".join(str(fault) for fault in faults))
    hosts = ", ".join(host for host, _ in places)
    raise StreamUnavailable(
        f"no answer in time about {hosts}: check the host names and this machine's name service"
    )


def _report(
    look: Callable[[tuple[str, int]], None],
    place: tuple[str, int],
    found: queue.SimpleQueue[Exception | None],
) -> None:
    try:
        look(place)
        found.put(None)
    except Exception as problem:  # noqa: BLE001 - raised again where it was asked for
        found.put(problem)


def _place(broker: str) -> tuple[str, int]:
    host, _, port = broker.rpartition(":")
    return host, int(port)
