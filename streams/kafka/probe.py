"""One connection to one broker, with every wait bounded and every failure told apart."""

from __future__ import annotations

import io
import socket
import ssl
import time
from typing import Any, Self

from streams.errors import StreamUnavailable
from streams.kafka import message_classes as _message_classes  # noqa: F401  before any thread asks
from streams.kafka.settings import KafkaSettings
from streams.kafka.tls import client_context

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
