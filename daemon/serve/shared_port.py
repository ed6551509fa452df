"""One of several processes of `serve` on one port: which listening sockets it takes connections from.

The sockets belong to the parent and stay open as long as it lives (`daemon.up.servers`). It says which of
them this process takes from now, and hears whether this process answers.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

from daemon.runtime.watchdog import BackgroundThread
from daemon.serve.http import HttpServer

MOST_BYTES = 4096
State = Literal["starting", "ready", "not_ready", "draining"]
"""How a process stands, in the messages to its parent: {"state": STATE}. Back comes {"accept": [NUMBER,
...]}."""


@dataclass(frozen=True, slots=True)
class InheritedSockets:
    """What a process inherits. number: its own. control: a connection to the parent that keeps messages
    apart. listening: all sockets of the port, by the number of the process whose they are."""

    number: int
    control: socket.socket
    listening: Mapping[int, socket.socket] = field(default_factory=dict)

    @classmethod
    def inherited(cls, descriptors: str) -> Self:
        """From "NUMBER,CONTROL,SOCKET,SOCKET,...". Raises ValueError and OSError for what is none."""
        number, *numbers = map(int, descriptors.split(","))
        control, *listening = (socket.socket(fileno=one) for one in numbers)
        for one in (control, *listening):
            one.set_inheritable(False)
        for one in listening:
            one.setblocking(False)
        return cls(number, control, dict(enumerate(listening)))


class SharedPort(BackgroundThread):
    """Does for a server what the parent says, from `start` on."""

    name = "shared port"

    def __init__(self, sockets: InheritedSockets, server: HttpServer) -> None:
        super().__init__()
        self._sockets, self._server = sockets, server
        self._told: State | None = None

    def tell(self, state: State) -> None:
        """How this process stands; the parent hears what is new."""
        if state != self._told:
            self._told = state
            with suppress(OSError):  # the parent has gone, and this process will
                self._sockets.control.send(json.dumps({"state": state}).encode())

    def stop(self) -> None:
        """Hang up on the parent."""
        with suppress(OSError):
            self._sockets.control.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        with suppress(OSError):
            while message := self._sockets.control.recv(MOST_BYTES):
                numbers = json.loads(message)["accept"]
                self._server.accept_from({one: self._sockets.listening[one] for one in numbers})
