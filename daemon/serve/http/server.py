"""uvicorn in a thread of its own, with a clean stop."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from functools import partial
from typing import Any

import structlog
import uvicorn
from starlette.applications import Starlette

from daemon.serve.http.connection import LimitedConnection
from daemon.serve.http.limits import Limits
from daemon.telemetry.server import cannot_listen

_BACKLOG = 1024
_END_S = 5.0  # beyond drain_s: uvicorn looks at its flags every 0.1 s

log = structlog.get_logger("tripletd.http")


class HttpServer:
    """A running server; `host` and `port` are the ones it really got."""

    def __init__(self, server: uvicorn.Server, listening: socket.socket, drain_s: float) -> None:
        self.host, self.port = listening.getsockname()[:2]
        self._server, self._drain_s = server, drain_s
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="tripletd-http", daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        """Whether the server's thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Take no new connection and let open requests finish; returns at once."""
        self._server.should_exit = True

    def close(self) -> None:
        """Stop, wait for open requests up to `drain_s`, then end; bounded."""
        self.stop()
        self._thread.join(self._drain_s + _END_S)
        if self._thread.is_alive():
            log.error("the HTTP server did not end", waited_s=self._drain_s + _END_S)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listening])
        except Exception:
            log.exception("the HTTP server ended")
        finally:
            self._listening.close()


def serve(app: Starlette, host: str, port: int) -> HttpServer:
    """Listen and answer for an application of `create_app`, within its limits; port 0 takes any free port.

    Raises:
        UserError: the port is taken (69), or the host or port may not be used (78).
    """
    limits: Limits = app.state.limits
    listening = _listen(host, port)
    _bridge_logs()
    config = uvicorn.Config(
        app,
        http=partial(LimitedConnection, limits=limits, metrics=app.state.metrics),  # type: ignore[arg-type]
        loop="asyncio",  # uvloop saved 8 % of the time per request: not worth a compiled dependency more
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.idle_s) or 1,
        timeout_graceful_shutdown=int(limits.drain_s) or 1,
    )
    return HttpServer(uvicorn.Server(config), listening, limits.drain_s)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except UnicodeError:
        wrong = OSError(errno.EADDRNOTAVAIL, "not the name of a host")
        raise cannot_listen(wrong, host, port) from None
    except OSError as error:
        raise cannot_listen(error, host, port) from None
    try:
        # Without this a restart within a minute of the last request would find its own port taken.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise cannot_listen(error, host, port) from None
    listening.setblocking(False)
    return listening


class _Bridge(logging.Handler):
    """What uvicorn has to say, as lines of our own log."""

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = record.exc_info[1] if record.exc_info else None
        log.error(record.getMessage().strip(), exc_info=error)


def _bridge_logs() -> None:
    """Errors only: what clients do wrong is counted by metrics, and would fill a log at their will."""
    logger = logging.getLogger("uvicorn.error")
    logger.handlers, logger.propagate = [_Bridge()], False
    logger.setLevel(logging.ERROR)
