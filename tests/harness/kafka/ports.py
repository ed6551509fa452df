"""Ports for brokers: they must be known before a node starts, and stay its own through its restarts."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those the kernel lends to outgoing connections."""
    lowest_lent = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    below = range(12000, lowest_lent) if lowest_lent > 14000 else range(40000, 60000)
    draw = random.Random(os.urandom(8))
    found: list[int] = []
    while len(found) < count:
        port = draw.choice(below)
        if port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
