"""A look before a client is used: kafka-python only says "Unable to bootstrap", this tells why.

It gets into a broker step by step (address, TLS, protocol, password), so that each thing that can be wrong
has its own words, and asks whether the topic is there and may be used as wanted.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streams.errors import StreamError, StreamRefused, StreamUnavailable, TopicMissing
from streams.kafka.probe import AtOnce, NoAnswer, Probe, trusting_context, uses_tls
from streams.source import Address, KafkaSettings

Need = Literal["read", "write", "create"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

BUDGET_S = 4.5
"""The whole look ends within this, whatever is wrong."""

_DIAGNOSIS_S = 1.5  # of it kept for finding out what answered wrongly, or not at all
_QUESTION_S = 0.6  # for each further question about who is there: two are asked of one that is silent
_TLS_ALERT, _HTTP = b"\x15\x03", b"GET / HTTP/1.0\r\n\r\n"
_UNKNOWN_TOPIC, _TOPIC_DENIED, _CLUSTER_DENIED = 3, 29, 31  # Kafka's error codes
_UNSUPPORTED_MECHANISM, _AUTHENTICATION_FAILED = 33, 58
_METADATA, _METADATA_VERSION = 3, 8
_OPERATIONS: dict[Need, int] = {"read": 3, "write": 4}  # of Kafka's AclOperation
_OPERATIONS_UNKNOWN = 31  # the only bit set by a broker that does not tell what is permitted
_CERTIFICATE_FAULTS = {  # by OpenSSL's X509_V_ERR_*
    9: "is not valid yet: correct this machine's clock, or renew it",
    10: "has expired: renew it, or correct this machine's clock",
    **dict.fromkeys(
        (62, 64),
        "is for another host: use a host name that it lists, "
        "or set ssl_check_hostname = false where the network is trusted",
    ),
}


def preflight(address: Address, *needs: Need) -> None:
    """Check that a topic can be reached and used for `needs`: any of "read", "write", "create".

    Ends within `BUDGET_S`. Raises StreamUnavailable when nobody answers (the same call may succeed later),
    StreamRefused when we are not let in, TopicMissing when there is no such topic; each message names the
    broker and the remedy, and holds no secret. One broker of the address that lets us in is enough.
    """
    limit = time.monotonic() + BUDGET_S
    settings = address.settings

    def look(broker: str) -> None:
        with Probe(broker, settings, limit - _DIAGNOSIS_S, limit) as probe:
            brokers = _check_topic(probe, address.topic, needs)
        if broker not in brokers:
            _check_advertised(brokers, broker, settings, limit)

    try:
        _first_success(address.path.split(","), look, limit)
    except StreamError as fault:
        raise type(fault)(f"{address}: {fault}") from fault


def _first_success(brokers: Sequence[str], look: Callable[[str], None], limit: float) -> None:
    """Look at all brokers at once; return when one is fine, else raise what is most worth knowing."""
    faults: list[Exception] = []
    for _, fault in AtOnce(brokers, look, limit):
        if fault is None:
            return
        faults.append(fault)
    for fault in faults:
        if not isinstance(fault, StreamUnavailable):
            raise fault
    if faults:
        raise StreamUnavailable("; ".join(str(fault) for fault in faults))
    hosts = ", ".join(broker.rpartition(":")[0] for broker in brokers)
    raise StreamUnavailable(
        f"no answer in time about {hosts}: check the host names and this machine's name service"
    )


def _check_advertised(brokers: Sequence[str], entered: str, settings: KafkaSettings, limit: float) -> None:
    def reach(broker: str) -> None:
        with Probe(broker, settings, limit - _DIAGNOSIS_S, limit) as probe:
            _enter(probe)

    try:
        _first_success(brokers, reach, limit)
    except StreamError as fault:
        raise type(fault)(
            f"{entered} sends its clients on (advertised.listeners), but there: {fault}"
        ) from fault


# The topic, and what we may do with it.


def _check_topic(probe: Probe, topic: str, needs: Collection[Need]) -> list[str]:
    """The brokers that the cluster sends its clients to; raises what keeps us from using the topic."""
    versions = _enter(probe)
    fault: StreamError | None
    try:
        metadata = probe.ask(
            MetadataRequest(
                version=min(_METADATA_VERSION, versions.get(_METADATA, _METADATA_VERSION)),
                topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
        )
        fault = _topic_fault(metadata.topics[0], topic, probe.settings, needs)
        if fault is None and "create" in needs and _may_not_create(probe, topic):
            fault = _denied(probe.settings, ["CREATE"], topic)
    except NoAnswer as problem:
        if problem.silent or _asks_password(probe.settings):
            raise StreamUnavailable(f"{probe.broker} stopped answering: look at its log") from problem
        raise _no_password_given(probe) from problem
    if fault is not None:
        raise fault
    if not metadata.brokers:
        raise StreamUnavailable("the cluster has no broker that serves: wait, or look at its logs")
    return [f"{broker.host}:{broker.port}" for broker in metadata.brokers]


def _topic_fault(
    found: Any, topic: str, settings: KafkaSettings, needs: Collection[Need]
) -> StreamError | None:
    """What stands against using the topic, or None. A missing topic is none where it is to be created."""
    if found.error_code in (_UNKNOWN_TOPIC, _TOPIC_DENIED) and "create" in needs:
        return None
    if found.error_code == _UNKNOWN_TOPIC:
        return TopicMissing(
            f"there is no topic {topic!r}: create it with `tripletd topics create`, or correct the address"
        )
    if found.error_code == _TOPIC_DENIED:  # not even to be seen, which READ and WRITE permit too
        needed = [need.upper() for need in ("read", "write") if need in needs]
        return _denied(settings, needed or ["DESCRIBE"], topic)
    permitted: set[int] = found.authorized_operations or {_OPERATIONS_UNKNOWN}
    for need in ("read", "write"):
        if need in needs and not permitted & {_OPERATIONS[need], _OPERATIONS_UNKNOWN}:
            return _denied(settings, [need.upper()], topic)
    return None


def _may_not_create(probe: Probe, topic: str) -> bool:
    """Whether permission is missing to create the topic, which is not created; it may be there already."""
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
    )
    answer = probe.ask(CreateTopicsRequest(version=4, topics=[wanted], timeout_ms=1000, validate_only=True))
    return answer.topics[0].error_code in (_TOPIC_DENIED, _CLUSTER_DENIED)


def _denied(settings: KafkaSettings, operations: Sequence[str], topic: str) -> StreamRefused:
    user = settings.sasl_username
    words = " ".join(f"--operation {operation.capitalize()}" for operation in operations)
    return StreamRefused(
        f"{f'the user {user!r}' if user else 'this client'} may not {' or '.join(operations)} the topic "
        f"{topic!r}: permit it, as with kafka-acls --add --allow-principal User:{user or '<its name>'} "
        f"{words} --topic {topic}"
    )


# Getting in.


def _enter(probe: Probe) -> dict[int, int]:
    """Connect, begin TLS, ask for versions, authenticate; returns the newest version of each request.

    Raises StreamUnavailable when nobody answers and StreamRefused when we are not let in.
    """
    probe.connect()
    try:
        if uses_tls(probe.settings):
            try:
                probe.secure()
            except ssl.SSLCertVerificationError as problem:
                raise _certificate_refused(probe, problem) from problem
            except OSError as problem:
                raise _no_tls(probe, getattr(problem, "reason", None) or "") from problem
        answer = probe.ask(ApiVersionsRequest(version=0))
        if _asks_password(probe.settings):
            _authenticate(probe)
    except ssl.SSLError as problem:  # an alert, after the handshake: TLS 1.3 judges our certificate then
        raise _client_certificate_refused(probe) from problem
    except NoAnswer as problem:
        raise _no_kafka(probe, problem, over_tls=uses_tls(probe.settings)) from problem
    return {one.api_key: one.max_version for one in answer.api_keys}


def _asks_password(settings: KafkaSettings) -> bool:
    return settings.security_protocol.startswith("SASL_")


def _no_tls(probe: Probe, reason: str) -> StreamError:
    if "ALERT" in reason and "PROTOCOL_VERSION" not in reason:
        return _client_certificate_refused(probe)
    try:
        with probe.again(_QUESTION_S) as other:
            other.ask(ApiVersionsRequest(version=0))
    except NoAnswer as answer:
        return _no_kafka(probe, answer, over_tls=False)
    except StreamError as gone:
        return gone
    plain = "SASL_PLAINTEXT" if _asks_password(probe.settings) else "PLAINTEXT"
    return StreamRefused(
        f"{probe.broker} speaks without TLS, but security_protocol is {probe.settings.security_protocol}: "
        f"take the port where it speaks TLS, or set security_protocol = {plain}"
    )


def _certificate_refused(probe: Probe, problem: ssl.SSLCertVerificationError) -> StreamRefused:
    authorities = probe.settings.ssl_cafile
    unsigned = (
        f"is not signed by an authority in ssl_cafile ({authorities}): name the file of the authority that "
        "signed it"
        if authorities
        else "is not signed by an authority that this machine trusts: set ssl_cafile to the file of the "
        "authority that signed it"
    )
    fault = _CERTIFICATE_FAULTS.get(problem.verify_code, unsigned)
    return StreamRefused(f"the certificate of {probe.broker} {fault}")


def _client_certificate_refused(probe: Probe) -> StreamRefused:
    """The broker ended TLS with an alert after it saw, or did not see, our certificate."""
    if not probe.settings.ssl_certfile:
        return StreamRefused(
            f"{probe.broker} asks for a client certificate: set ssl_certfile and ssl_keyfile"
        )
    return StreamRefused(
        f"{probe.broker} does not accept the certificate in ssl_certfile ({probe.settings.ssl_certfile}): "
        "use one signed by an authority that the broker trusts"
    )


def _no_kafka(probe: Probe, answer: NoAnswer, *, over_tls: bool) -> StreamError:
    settings = probe.settings
    begins_tls = answer.received.startswith(_TLS_ALERT)
    if not uses_tls(settings) and (begins_tls or _answer(probe, over_tls=True) is not None):
        secure = "SASL_SSL" if _asks_password(settings) else "SSL (or SASL_SSL)"
        return StreamRefused(
            f"{probe.broker} speaks TLS, but security_protocol = {settings.security_protocol} does not: "
            f"set security_protocol = {secure}"
        )
    if answer.received.startswith(b"HTTP") or (_answer(probe, over_tls, _HTTP) or b"").startswith(b"HTTP/"):
        return StreamRefused(f"{probe.broker} is a web server, not a Kafka broker: correct host and port")
    if answer.silent:
        return StreamUnavailable(
            f"{probe.broker} accepts connections but does not answer: it hangs, is overloaded, or is no "
            "Kafka broker; look at its log, or correct host and port"
        )
    return StreamRefused(f"{probe.broker} does not speak Kafka's language: correct host and port")


def _answer(probe: Probe, over_tls: bool, words: bytes = b"") -> bytes | None:
    """What comes back for some words, b"" for nothing; None without a connection, or without TLS over it."""
    try:
        with probe.again(_QUESTION_S) as other:
            if over_tls:
                other.secure(trusting_context())
            return other.say(words) if words else b""
    except (OSError, StreamError):
        return None


# Passwords.


def _authenticate(probe: Probe) -> None:
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
    except NoAnswer as problem:
        what = "does not answer" if problem.silent else "hung up"
        raise StreamUnavailable(
            f"{probe.broker} {what} while the password was checked: look at its log"
        ) from problem


def _choose_mechanism(probe: Probe, mechanism: str) -> None:
    answer = probe.ask(SaslHandshakeRequest(version=1, mechanism=mechanism))
    if answer.error_code == _UNSUPPORTED_MECHANISM:
        raise StreamRefused(
            f"{probe.broker} does not offer the mechanism {mechanism}, but {', '.join(answer.mechanisms)}: "
            "correct sasl_mechanism"
        )
    if answer.error_code:
        without = "SSL" if uses_tls(probe.settings) else "PLAINTEXT"
        raise StreamRefused(f"{probe.broker} asks for no password: set security_protocol = {without}")


def _prove_password(probe: Probe, mechanism: str) -> None:
    settings = probe.settings
    refused = StreamRefused(
        f"{probe.broker} does not accept the user {settings.sasl_username!r} with this password: "
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


def _no_password_given(probe: Probe) -> StreamError:
    try:
        with probe.again(_QUESTION_S) as other:
            if uses_tls(other.settings):
                other.secure()
            offered = other.ask(SaslHandshakeRequest(version=1, mechanism="?"))
    except (NoAnswer, OSError, StreamError):
        return StreamUnavailable(f"{probe.broker} hung up: it is stopping, or does not let this client in")
    if offered.error_code != _UNSUPPORTED_MECHANISM:
        return StreamUnavailable(f"{probe.broker} hung up: it is stopping")
    wanted = "SASL_SSL" if uses_tls(probe.settings) else "SASL_PLAINTEXT"
    return StreamRefused(
        f"{probe.broker} asks for a user and a password: set security_protocol = {wanted}, sasl_mechanism "
        f"(it offers {', '.join(offered.mechanisms)}), sasl_username and sasl_password"
    )
