"""One connection to one broker, with every wait bounded and every failure told apart.

Also: TLS as the settings want it, what a failed handshake means, and which brokers of an address answer
now. kafka-python picks one of them by chance and waits for it, however long it hangs.
"""

from __future__ import annotations

import io
import queue
import socket
import ssl
import threading
import time
from typing import Any, Self

from kafka.protocol.metadata import ApiVersionsRequest

from streams.address import Address, KafkaSettings
from streams.errors import StreamError, StreamRefused, StreamUnavailable
from streams.kafka import message_classes as _message_classes  # noqa: F401  before any thread asks

_EXPIRED, _NOT_YET, _HOST, _ADDRESS = 10, 9, 62, 64  # OpenSSL's X509_V_ERR_*


def uses_tls(settings: KafkaSettings) -> bool:
    """Whether the security protocol has TLS."""
    return settings.security_protocol in ("SSL", "SASL_SSL")


def client_context(settings: KafkaSettings) -> ssl.SSLContext:
    """The context of a client; raises StreamRefused naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_check_hostname
    try:
        if settings.ssl_cafile:
            context.load_verify_locations(settings.ssl_cafile)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as problem:
        raise _file_refused("ssl_cafile", settings.ssl_cafile, problem) from problem
    if settings.ssl_certfile:
        # A function that gives no password keeps OpenSSL from asking for one on the terminal.
        password = settings.ssl_key_password or ""
        try:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
        except (OSError, ssl.SSLError) as problem:
            raise _file_refused("ssl_certfile and ssl_keyfile", _pair(settings), problem) from problem
    return context


def any_certificate() -> ssl.SSLContext:
    """A context that trusts everybody: only to learn who speaks TLS, nothing of ours is said over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def certificate_refused(place: str, settings: KafkaSettings, problem: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the broker's certificate, and the remedy."""
    match problem.verify_code:
        case code if code == _EXPIRED:
            return f"the certificate of {place} has expired: renew it, or correct this machine's clock"
        case code if code == _NOT_YET:
            return f"the certificate of {place} is not valid yet: correct this machine's clock, or renew it"
        case code if code in (_HOST, _ADDRESS):
            return (
                f"the certificate of {place} is for another host: use a host name that it lists, "
                "or set ssl_check_hostname = false where the network is trusted"
            )
    if settings.ssl_cafile:
        return (
            f"the certificate of {place} is not signed by an authority in ssl_cafile "
            f"({settings.ssl_cafile}): name the file of the authority that signed it"
        )
    return (
        f"the certificate of {place} is not signed by an authority that this machine trusts: "
        "set ssl_cafile to the file of the authority that signed it"
    )


def client_certificate_refused(place: str, settings: KafkaSettings) -> str:
    """The broker ended TLS with an alert after it saw, or did not see, our certificate."""
    if settings.ssl_certfile:
        return (
            f"{place} does not accept the certificate in ssl_certfile ({settings.ssl_certfile}): "
            "use one signed by an authority that the broker trusts"
        )
    return f"{place} asks for a client certificate: set ssl_certfile and ssl_keyfile"


def _pair(settings: KafkaSettings) -> str:
    return ", ".join(file for file in (settings.ssl_certfile, settings.ssl_keyfile) if file)


def _file_refused(setting: str, file: str | None, problem: OSError) -> StreamRefused:
    if isinstance(problem, ssl.SSLError):
        what = problem.reason or "it is not PEM"
        return StreamRefused(
            f"{setting} ({file}) cannot be used ({what}): it must be PEM, the key must belong to the "
            "certificate, and an encrypted key needs its ssl_key_password"
        )
    return StreamRefused(
        f"{setting} ({file}) cannot be read ({problem.strerror}): correct the path or its owner"
    )


_LARGEST_ANSWER = 8 * 1024 * 1024


class NoAnswer(Exception):
    """A request was not answered in Kafka's language: `silent`, closed, or with other bytes."""

    def __init__(self, received: bytes = b"", *, silent: bool = False) -> None:
        super().__init__()
        self.received, self.silent = received, silent


class Probe:
    """A connection; `ask` sends a request of kafka-python's protocol classes and reads its answer.

    `deadline` (monotonic seconds) ends every wait.
    """

    def __init__(self, host: str, port: int, settings: KafkaSettings, deadline: float) -> None:
        self.place = f"{host}:{port}"
        self.settings = settings
        self.deadline = deadline
        self._host, self._port = host.strip("[]"), port
        self._socket: socket.socket | None = None
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def another(self, deadline: float) -> Self:
        """A second connection to the same broker, not yet made."""
        return type(self)(self._host, self._port, self.settings, deadline)

    def connect(self) -> None:
        """Resolve the name and connect; raises StreamUnavailable."""
        try:
            self._socket = socket.create_connection((self._host, self._port), self._left())
        except socket.gaierror as problem:
            raise StreamUnavailable(
                f"no address is known for the host {self._host!r}: correct it, or this machine's name service"
            ) from problem
        except ConnectionRefusedError as problem:
            raise StreamUnavailable(
                f"nobody listens at {self.place}: start the broker, or correct host and port"
            ) from problem
        except TimeoutError as problem:
            raise StreamUnavailable(
                f"{self.place} cannot be reached in time: check the host, the network and its firewalls"
            ) from problem
        except OSError as problem:
            raise StreamUnavailable(
                f"{self.place} cannot be reached ({problem.strerror or problem}): check host and network"
            ) from problem

    def secure(self, context: ssl.SSLContext | None = None) -> None:
        """Begin TLS, with the certificates of the settings; raises ssl.SSLError, OSError or StreamRefused."""
        context = context or client_context(self.settings)
        plain = self._connected()
        plain.settimeout(self._left())
        self._socket = context.wrap_socket(plain, server_hostname=self._host)

    def ask(self, request: Any) -> Any:
        """The answer to a request whose version is set; raises NoAnswer, or ssl.SSLError for an alert."""
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self.settings.client_id)
        kind = request.header.get_response_class()
        answer = io.BytesIO(self._exchange(request.encode(framed=True, header=True)))
        try:
            if kind.parse_header(answer).correlation_id != self._correlation:
                raise NoAnswer(answer.getvalue())
            return kind.decode(answer)
        except (ValueError, IndexError, TypeError, OverflowError) as problem:  # bytes of another language
            raise NoAnswer(answer.getvalue()) from problem

    def say(self, words: bytes) -> bytes:
        """The first bytes that come back for these; empty when none do."""
        try:
            self._connected().settimeout(self._left())
            self._connected().sendall(words)
            return self._connected().recv(64)
        except OSError:
            return b""

    def close(self) -> None:
        """Hang up; may be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, frame: bytes) -> bytes:
        received = b""
        try:
            self._connected().sendall(frame)
            received = self._read(4)
            size = int.from_bytes(received, "big", signed=True)
            if not 0 < size <= _LARGEST_ANSWER:
                raise NoAnswer(received)
            return self._read(size)
        except TimeoutError as problem:
            raise NoAnswer(received, silent=True) from problem
        except ssl.SSLError:
            raise
        except OSError as problem:
            raise NoAnswer(received) from problem

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._connected().settimeout(self._left())
            part = self._connected().recv(count - len(parts))
            if not part:
                raise NoAnswer(bytes(parts))
            parts += part
        return bytes(parts)

    def _connected(self) -> socket.socket:
        assert self._socket is not None, "connect first"
        return self._socket

    def _left(self) -> float:
        """Seconds until the deadline; a socket takes 0 for `do not wait`, hence never that."""
        return max(0.05, self.deadline - time.monotonic())


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
