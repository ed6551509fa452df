"""Clients that speak to the port itself, and the limits of the servers that they meet."""

from __future__ import annotations

import socket
import time

from daemon.serve.http import HttpLimits

QUESTION = b'{"x": [1, 2, 3, 4]}'
PATIENT = HttpLimits(answer_s=60.0, queue_wait_s=60.0)
"""The usual sizes, and time enough for a question that a test holds up while others come."""
SMALL = HttpLimits(
    body_bytes=10_000,
    head_bytes=4_000,
    connections=8,
    head_s=60.0,
    body_s=60.0,
    idle_s=60.0,
    write_s=60.0,
    k_max=5_000,
    batch_max=256,
    results_max=100_000,
)
"""Small sizes. No time is short unless a test is about it: a busy machine stops clients as well."""


def post(body: bytes, length: int | None = None, more: bytes = b"") -> bytes:
    size = len(body) if length is None else length
    return b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s" % (
        size,
        more,
        body,
    )


def healthy(connection: socket.socket) -> bool:
    """Whether a question on this connection is answered; its answer is read whole."""
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while part := connection.recv(1000):
        answer += part
        if answer.endswith(b"ok\n"):
            return answer.startswith(b"HTTP/1.1 200")
    return False


def is_ended(connection: socket.socket, piece: bytes) -> bool:
    """Send pieces, which would go on for ten seconds; whether the other side has enough before."""
    for _ in range(200):
        try:
            connection.sendall(piece)
        except OSError:
            return True
        time.sleep(0.05)
    return False
