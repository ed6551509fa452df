"""uvicorn in a thread of its own, with a clean stop."""

from __future__ import annotations

from starlette.applications import Starlette

from daemon.serve.http.limits import Limits


class HttpServer:
    """A running server; `host` and `port` are the ones it really got."""

    host: str
    port: int

    def stop_accepting(self) -> None:
        """Take no new connection and let open requests finish; returns at once."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop accepting, wait for open requests up to `drain_s`, then end; bounded."""
        raise NotImplementedError

    def alive(self) -> bool:
        """Whether the server's thread runs."""
        raise NotImplementedError


def serve(app: Starlette, host: str, port: int, limits: Limits) -> HttpServer:
    """Listen and answer; port 0 takes any free port.

    Raises:
        UserError: the port is taken (69), or the host or port may not be used (78).
    """
    raise NotImplementedError
