"""Who else may listen where a broker is expected."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def web_server() -> Iterator[str]:
    """`host:port` of a web server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def listener(greeting: bytes | None) -> Iterator[str]:
    """`host:port` of somebody who greets every caller and hangs up, or who never says a word (None)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        if greeting is not None:
            threading.Thread(target=_greet, args=(server, greeting), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _greet(server: socket.socket, greeting: bytes) -> None:
    while True:
        try:
            caller, _ = server.accept()
        except OSError:
            return
        with caller, suppress(OSError):  # one who has hung up before is no harm
            caller.sendall(greeting)
            caller.shutdown(socket.SHUT_WR)
            caller.recv(1000)
