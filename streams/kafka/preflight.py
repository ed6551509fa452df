"""A look before a client is used: kafka-python only says "Unable to bootstrap", this tells why.

It gets into a broker step by step, so that each thing that can be wrong gets its own words, and asks
whether the topic is there and may be used as wanted.
"""

from __future__ import annotations

import queue
import ssl
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Literal

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streams.address import Address, KafkaSettings
from streams.errors import StreamError, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.probe import (
    NoAnswer,
    Probe,
    any_certificate,
    certificate_refused,
    client_certificate_refused,
    uses_tls,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_UNSUPPORTED_MECHANISM, _AUTHENTICATION_FAILED = 33, 58  # Kafka's error codes
_QUESTION_S = 0.6  # for each further question about who is there: two are asked of one that is silent
_TLS_ALERT = b"\x15\x03"


def enter(probe: Probe, until: float) -> dict[int, int]:
    """Connect, begin TLS, ask for versions, authenticate; comes back with the newest version per request.

    `until` (monotonic) bounds finding out what is wrong, after the probe's own deadline. Raises
    StreamUnavailable when nobody answers and StreamRefused when we are not let in.
    """
    probe.connect()
    if uses_tls(probe.settings):
        _begin_tls(probe, until)
    versions = _ask_versions(probe, until)
    if asks_password(probe.settings):
        _authenticate(probe, until)
    return versions


def asks_password(settings: KafkaSettings) -> bool:
    """Whether the security protocol has SASL."""
    return settings.security_protocol.startswith("SASL_")


def no_password_given(probe: Probe, until: float) -> StreamError:
    """Why a broker hung up after it had told its versions."""
    try:
        with _again(probe, until) as other:
            if uses_tls(other.settings):
                other.secure()
            offered = other.ask(SaslHandshakeRequest(version=1, mechanism="?"))
    except (NoAnswer, OSError, StreamError):
        return StreamUnavailable(f"{probe.place} hung up: it is stopping, or does not let this client in")
    if offered.error_code != _UNSUPPORTED_MECHANISM:
        return StreamUnavailable(f"{probe.place} hung up: it is stopping")
    wanted = "SASL_SSL" if uses_tls(probe.settings) else "SASL_PLAINTEXT"
    return StreamRefused(
        f"{probe.place} asks for a user and a password: set security_protocol = {wanted}, sasl_mechanism "
        f"(it offers {', '.join(offered.mechanisms)}), sasl_username and sasl_password"
    )


def _begin_tls(probe: Probe, until: float) -> None:
    try:
        probe.secure()
    except ssl.SSLCertVerificationError as problem:
        raise StreamRefused(certificate_refused(probe.place, probe.settings, problem)) from problem
    except (ssl.SSLError, OSError) as problem:
        raise _no_tls(probe, until, problem) from problem


def _no_tls(probe: Probe, until: float, problem: OSError) -> StreamError:
    """Why a handshake came to nothing."""
    reason = getattr(problem, "reason", None) or ""
    if "ALERT" in reason and "PROTOCOL_VERSION" not in reason:
        return StreamRefused(client_certificate_refused(probe.place, probe.settings))
    try:
        with _again(probe, until) as other:
            other.ask(ApiVersionsRequest(version=0))
    except NoAnswer as answer:
        return _no_kafka(probe, until, answer, over_tls=False)
    except StreamError as gone:
        return gone
    plain = "SASL_PLAINTEXT" if asks_password(probe.settings) else "PLAINTEXT"
    return StreamRefused(
        f"{probe.place} speaks without TLS, but security_protocol is {probe.settings.security_protocol}: "
        f"take the port where it speaks TLS, or set security_protocol = {plain}"
    )


def _ask_versions(probe: Probe, until: float) -> dict[int, int]:
    try:
        answer = probe.ask(ApiVersionsRequest(version=0))
    except ssl.SSLError as problem:
        raise StreamRefused(client_certificate_refused(probe.place, probe.settings)) from problem
    except NoAnswer as problem:
        raise _no_kafka(probe, until, problem, over_tls=uses_tls(probe.settings)) from problem
    return {one.api_key: one.max_version for one in answer.api_keys}


def _no_kafka(probe: Probe, until: float, answer: NoAnswer, *, over_tls: bool) -> StreamError:
    """What is there instead of a broker that speaks as the settings say."""
    if not uses_tls(probe.settings) and (answer.received.startswith(_TLS_ALERT) or _speaks_tls(probe, until)):
        secure = "SASL_SSL" if asks_password(probe.settings) else "SSL (or SASL_SSL)"
        return StreamRefused(
            f"{probe.place} speaks TLS, but security_protocol = {probe.settings.security_protocol} does not: "
            f"set security_protocol = {secure}"
        )
    if answer.received.startswith(b"HTTP") or _is_web_server(probe, until, over_tls):
        return StreamRefused(f"{probe.place} is a web server, not a Kafka broker: correct host and port")
    if answer.silent:
        return StreamUnavailable(
            f"{probe.place} accepts connections but does not answer: it hangs, is overloaded, or is no Kafka "
            "broker; look at its log, or correct host and port"
        )
    return StreamRefused(f"{probe.place} does not speak Kafka's language: correct host and port")


def _speaks_tls(probe: Probe, until: float) -> bool:
    try:
        with _again(probe, until) as other:
            other.secure(any_certificate())
            return True
    except (OSError, StreamError):
        return False


def _is_web_server(probe: Probe, until: float, over_tls: bool) -> bool:
    try:
        with _again(probe, until) as other:
            if over_tls:
                other.secure(any_certificate())
            return other.say(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/")
    except (OSError, StreamError):
        return False


def _again(probe: Probe, until: float) -> Probe:
    """Another connection to the same broker."""
    other = probe.another(min(until, time.monotonic() + _QUESTION_S))
    other.connect()
    return other


def _authenticate(probe: Probe, until: float) -> None:
    settings = probe.settings
    mechanism = settings.sasl_mechanism or ""
    if mechanism not in MECHANISMS:
        raise StreamRefused(
            f"sasl_mechanism is {mechanism or 'not set'}: it must be one of {', '.join(MECHANISMS)}"
        )
    if not settings.sasl_username or not settings.sasl_password:
        raise StreamRefused(
            f"security_protocol = {settings.security_protocol} needs sasl_username and sasl_password"
        )
    try:
        _choose_mechanism(probe, mechanism)
        _prove_password(probe, mechanism)
    except ssl.SSLError as problem:
        raise StreamRefused(client_certificate_refused(probe.place, settings)) from problem
    except NoAnswer as problem:
        what = "does not answer" if problem.silent else "hung up"
        raise StreamUnavailable(
            f"{probe.place} {what} while the password was checked: look at its log"
        ) from problem


def _choose_mechanism(probe: Probe, mechanism: str) -> None:
    answer = probe.ask(SaslHandshakeRequest(version=1, mechanism=mechanism))
    if answer.error_code == _UNSUPPORTED_MECHANISM:
        raise StreamRefused(
            f"{probe.place} does not offer the mechanism {mechanism}, but {', '.join(answer.mechanisms)}: "
            "correct sasl_mechanism"
        )
    if answer.error_code:
        without = "SSL" if uses_tls(probe.settings) else "PLAINTEXT"
        raise StreamRefused(f"{probe.place} asks for no password: set security_protocol = {without}")


def _prove_password(probe: Probe, mechanism: str) -> None:
    settings = probe.settings
    refused = StreamRefused(
        f"{probe.place} does not accept the user {settings.sasl_username!r} with this password: "
        "correct sasl_username or sasl_password"
    )
    dialogue = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism,
        sasl_plain_username=settings.sasl_username,
        sasl_plain_password=settings.sasl_password,
        security_protocol="SASL_SSL",  # the protocol in use was chosen by the user: no warning in the log
    )
    while not dialogue.is_done():
        answer = probe.ask(SaslAuthenticateRequest(version=0, auth_bytes=dialogue.auth_bytes()))
        if answer.error_code == _AUTHENTICATION_FAILED:
            raise refused
        try:
            dialogue.receive(answer.auth_bytes)
        except (ValueError, KeyError) as problem:  # a proof that is not the broker's
            raise refused from problem


Need = Literal["read", "write", "create"]
_BITS: dict[Need, int] = {"read": 3, "write": 4}  # of Kafka's AclOperation
_UNKNOWN_TOPIC, _TOPIC_DENIED, _CLUSTER_DENIED = 3, 29, 31  # Kafka's error codes
_METADATA, _METADATA_VERSION = 3, 8
_UNTOLD = 31  # the only bit set by a broker that does not tell what is permitted


def metadata_request(topic: str, versions: dict[int, int]) -> Any:
    """Asks for one topic and what we may do with it."""
    return MetadataRequest(
        version=min(_METADATA_VERSION, versions.get(_METADATA, _METADATA_VERSION)),
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def trial_creation(topic: str) -> Any:
    """Asks whether the topic could be created, without creating it."""
    return CreateTopicsRequest(
        version=4,
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
            )
        ],
        timeout_ms=1000,
        validate_only=True,
    )


def topic_fault(
    metadata: Any, topic: str, settings: KafkaSettings, needs: Collection[Need]
) -> StreamError | None:
    """What stands against using the topic, or None. A missing topic is none where it is to be created."""
    found = metadata.topics[0]
    if found.error_code in (_UNKNOWN_TOPIC, _TOPIC_DENIED) and "create" in needs:
        return None
    if found.error_code == _UNKNOWN_TOPIC:
        return TopicMissing(
            f"there is no topic {topic!r}: create it with `tripletd topics create`, or correct the address"
        )
    if found.error_code == _TOPIC_DENIED:
        return _denied(settings, "DESCRIBE", topic)
    permitted: set[int] = found.authorized_operations or {_UNTOLD}
    for need in ("read", "write"):
        if need in needs and not permitted & {_BITS[need], _UNTOLD}:
            return _denied(settings, need.upper(), topic)
    return None


def creation_fault(answer: Any, topic: str, settings: KafkaSettings) -> StreamError | None:
    """What stands against creating the topic, or None; that it is there already does not."""
    code = answer.topics[0].error_code
    return _denied(settings, "CREATE", topic) if code in (_TOPIC_DENIED, _CLUSTER_DENIED) else None


def advertised(metadata: Any) -> list[tuple[str, int]]:
    """Where the cluster tells its clients to go; raises StreamUnavailable when it has no broker."""
    places = [(broker.host, broker.port) for broker in metadata.brokers]
    if not places:
        raise StreamUnavailable("the cluster has no broker that serves: wait, or look at its logs")
    return places


def _denied(settings: KafkaSettings, operation: str, topic: str) -> StreamRefused:
    who = f"the user {settings.sasl_username!r}" if settings.sasl_username else "this client"
    principal = f"User:{settings.sasl_username}" if settings.sasl_username else "User:<its name>"
    return StreamRefused(
        f"{who} may not {operation} the topic {topic!r}: permit it, as with kafka-acls --add "
        f"--allow-principal {principal} --operation {operation.capitalize()} --topic {topic}"
    )


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
