"""Whether the roles will get their ports, asked before any of them is started."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from daemon.telemetry.server import cannot_listen


def check_ports(host: str, ports: Sequence[int]) -> None:
    """Raise UserError for the first of the ports that cannot be listened on; 0 is any free one.

    A role refuses a taken port too; it would be started again and again, beside others that work.
    """
    for port in filter(None, ports):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen()
        except OSError as error:
            raise cannot_listen(error, host, port) from None
