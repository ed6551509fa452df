"""One connection to one broker, with every wait bounded and every kind of failure distinguished.

Also: TLS as the settings want it, and which brokers of an address answer now. kafka-python picks one of them
by chance and waits for it, however long it hangs.
"""

from __future__ import annotations

import io
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import kafka.admin  # noqa: F401  with it, every module that defines answers
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest

from streams.errors import StreamRefused, StreamUnavailable
from streams.source import Address, KafkaSettings

_LARGEST_ANSWER = 8 * 1024 * 1024

ANSWER_LIMIT_S = 1.0
"""How long `answering` waits for the first broker."""

_GRACE_S = 0.2
"""How much longer than the first the others may take."""


def make_message_classes() -> None:
    """Make every class of Kafka's answers: about 250 small classes in 0.2 s, no more the second time.

    kafka-python makes one per version of an answer when it is first asked for, without a lock, and keeps the
    newest by a weak reference: of two threads that ask at once the class of one is thrown away, and where
    that is the one it kept, every later answer of that kind is a ReferenceError until the process ends. This
    module is imported once, before any connection.
    """
    for kind in list(ApiMessage.__subclasses__()):
        if not kind.is_request() and kind[None] is kind:
            _ = [kind[version] for version in range(kind.max_version + 1)]


make_message_classes()


class NoAnswer(Exception):
    """A request was not answered in Kafka's language: `silent`, closed, or with other bytes."""

    def __init__(self, received: bytes = b"", *, silent: bool = False) -> None:
        super().__init__()
        self.received, self.silent = received, silent


class Probe:
    """A connection to `broker` ("host:port"), open for as long as a `with` lasts.

    `ask` sends a request of kafka-python's protocol classes and reads its answer. `deadline` (monotonic
    seconds) ends every wait. A diagnosis, begun when something has failed, must end by `limit`.
    """

    def __init__(
        self, broker: str, settings: KafkaSettings, deadline: float, limit: float | None = None
    ) -> None:
        self.broker, self.settings, self.deadline = broker, settings, deadline
        self.limit = deadline if limit is None else limit
        host, _, port = broker.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._socket: socket.socket | None = None
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def again(self, seconds: float) -> Self:
        """Another connection to the same broker, for at most so many seconds; raises as `connect` does."""
        other = type(self)(self.broker, self.settings, min(self.limit, time.monotonic() + seconds))
        other.connect()
        return other

    def connect(self) -> None:
        """Resolve the name and connect; raises StreamUnavailable."""
        try:
            self._socket = socket.create_connection((self._host, self._port), self._left())
        except socket.gaierror as problem:
            words = f"no address is known for the host {self._host!r}: correct it"
            raise StreamUnavailable(f"{words}, or this machine's name service") from problem
        except ConnectionRefusedError as problem:
            words = f"nobody listens at {self.broker}: start the broker, or correct host and port"
            raise StreamUnavailable(words) from problem
        except TimeoutError as problem:
            words = f"{self.broker} cannot be reached in time: check the host, the network and its firewalls"
            raise StreamUnavailable(words) from problem
        except OSError as problem:
            words = f"{self.broker} cannot be reached ({problem.strerror or problem}): check host and network"
            raise StreamUnavailable(words) from problem

    def secure(self, context: ssl.SSLContext | None = None) -> None:
        """Begin TLS, with the certificates of the settings; raises ssl.SSLError, OSError or StreamRefused."""
        context = context or client_context(self.settings)
        self._socket = context.wrap_socket(self._waiting(), server_hostname=self._host)

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
            self._waiting().sendall(words)
            return self._waiting().recv(64)
        except OSError:
            return b""

    def _exchange(self, frame: bytes) -> bytes:
        received = b""
        try:
            self._waiting().sendall(frame)
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
            part = self._waiting().recv(count - len(parts))
            if not part:
                raise NoAnswer(bytes(parts))
            parts += part
        return bytes(parts)

    def _waiting(self) -> socket.socket:
        assert self._socket is not None, "connect first"
        self._socket.settimeout(self._left())
        return self._socket

    def _left(self) -> float:
        """Seconds until the deadline; a socket takes 0 for `do not wait`, hence never that."""
        return max(0.05, self.deadline - time.monotonic())


def uses_tls(settings: KafkaSettings) -> bool:
    """Whether the security protocol has TLS."""
    return settings.security_protocol in ("SSL", "SASL_SSL")


def client_context(settings: KafkaSettings) -> ssl.SSLContext:
    """The TLS context of a client; raises StreamRefused naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_check_hostname
    try:
        if settings.ssl_cafile:
            context.load_verify_locations(settings.ssl_cafile)
        else:
            context.load_default_certs()
    except OSError as problem:
        raise _file_refused("ssl_cafile", settings.ssl_cafile, problem) from problem
    if settings.ssl_certfile:
        # A function that gives no password keeps OpenSSL from asking for one on the terminal.
        password = settings.ssl_key_password or ""
        try:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
        except OSError as problem:
            files = ", ".join(file for file in (settings.ssl_certfile, settings.ssl_keyfile) if file)
            raise _file_refused("ssl_certfile and ssl_keyfile", files, problem) from problem
    return context


def trusting_context() -> ssl.SSLContext:
    """A context that trusts everybody: only to learn who speaks TLS, nothing of ours is said over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _file_refused(setting: str, file: str | None, problem: OSError) -> StreamRefused:
    if not isinstance(problem, ssl.SSLError):
        return StreamRefused(
            f"{setting} ({file}) cannot be read ({problem.strerror}): correct the path or its owner"
        )
    return StreamRefused(
        f"{setting} ({file}) cannot be used ({problem.reason or 'it is not PEM'}): it must be PEM, the key "
        "must belong to the certificate, and an encrypted key needs its ssl_key_password"
    )


class AtOnce:
    """`look(broker)` for every broker, each in a thread of its own: one that hangs keeps no other waiting.

    Iterates over the brokers in the order in which their looks end, each with what it raised or None. Ends
    when all have, or at `until` (monotonic seconds), which may be moved meanwhile.
    """

    def __init__(self, brokers: Sequence[str], look: Callable[[str], None], until: float) -> None:
        self.until = until
        self._left = len(brokers)
        self._ended: queue.SimpleQueue[tuple[str, Exception | None]] = queue.SimpleQueue()
        for broker in brokers:
            threading.Thread(target=self._run, args=(look, broker), name="kafka-look", daemon=True).start()

    def __iter__(self) -> Iterator[tuple[str, Exception | None]]:
        while self._left:
            try:
                one = self._ended.get(timeout=max(0.001, self.until - time.monotonic()))
            except queue.Empty:  # the name service alone can take longer than we wait
                return
            self._left -= 1
            yield one

    def _run(self, look: Callable[[str], None], broker: str) -> None:
        try:
            look(broker)
            self._ended.put((broker, None))
        except Exception as problem:  # noqa: BLE001  the caller judges it
            self._ended.put((broker, problem))


def answering(address: Address) -> list[str]:
    """The brokers of `address` that answer within a second; all of them when none does, or there is one."""
    brokers = address.path.split(",")
    if len(brokers) == 1:
        return brokers
    settings = address.settings
    deadline = time.monotonic() + ANSWER_LIMIT_S

    def look(broker: str) -> None:
        with Probe(broker, settings, deadline) as probe:
            probe.connect()
            if uses_tls(settings):
                probe.secure()
            probe.ask(ApiVersionsRequest(version=0))

    looks, found = AtOnce(brokers, look, deadline), list[str]()
    for broker, problem in looks:
        if problem is None:
            found.append(broker)
            looks.until = min(looks.until, time.monotonic() + _GRACE_S)
    return found or brokers
