"""Receiving in large pieces.

kafka-python asks a socket for 4 KB at a time. Each of these calls gives the interpreter's lock away, and
where other threads compute it comes back late: an answer of 4 MB waits for it a thousand times.
"""

from __future__ import annotations

from kafka.errors import KafkaConnectionError
from kafka.net import manager
from kafka.net.transport import KafkaTCPTransport

RECEIVE_BYTES = 1 << 18


class WideTransport(KafkaTCPTransport):  # type: ignore[misc]
    """kafka-python's plain connection; with TLS, whose records have 16 KB at most, it stays as it is."""

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        """What the socket holds, and what ended the connection, if anything did."""
        parts: list[bytes] = []
        try:
            while not parts or len(parts[-1]) == RECEIVE_BYTES:
                parts.append(self._sock.recv(RECEIVE_BYTES))
        except (BlockingIOError, InterruptedError):
            return b"".join(parts), None
        except OSError as problem:
            return b"", KafkaConnectionError(problem)
        ended = None if parts[-1] else KafkaConnectionError("the broker has closed the connection")
        return b"".join(parts), ended


def install() -> None:
    """Connections made from now on in this process receive so; may be called again."""
    manager.KafkaTCPTransport = WideTransport
