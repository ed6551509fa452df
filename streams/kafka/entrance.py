"""Getting into a broker step by step, so that each thing that can be wrong gets its own words."""

from __future__ import annotations

import ssl
import time

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streams.errors import StreamError, StreamRefused, StreamUnavailable
from streams.kafka.probe import NoAnswer, Probe
from streams.kafka.settings import KafkaSettings
from streams.kafka.tls import any_certificate, certificate_refused, client_certificate_refused, uses_tls

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
