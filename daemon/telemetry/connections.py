"""Which connections are open, from whom, and which one gives way when no place is left: bookkeeping alone.

A connection whose client is to say something takes a place and no work. When all places are taken, one of
these gives way to whoever comes, and never one that waits for its answer. Of several it is one of the client
that has most connections open, so that a client is never pushed out by another with more: that is its share,
and it needs no number. Behind a reverse proxy all clients are one, which may use every place. Of one client's
connections it is the one that has waited longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

AnyConnection = TypeVar("AnyConnection", bound=Hashable)
_NETWORK_BITS = 64  # of an IPv6 address: the rest is chosen by whoever holds the network


def client_of(host: str) -> str:
    """Whose connection it is, by the other end's address: of IPv4 all of it, of IPv6 the network of 64 bits.
    What is no address stands for itself.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> (128 - _NETWORK_BITS) << (128 - _NETWORK_BITS)))


class ConnectionTable(Generic[AnyConnection]):
    """Open connections by client. Not locked: whoever has several threads holds a lock of his own.

    A connection is idle (a request, or the rest of its header, is to come), stalled (a body is to come, or an
    answer to be taken) or at work. Those at work are never chosen.
    """

    def __init__(self) -> None:
        self._client: dict[AnyConnection, str] = {}
        self._open: Counter[str] = Counter()
        self._idle: dict[str, dict[AnyConnection, None]] = {}
        self._stalled: dict[str, dict[AnyConnection, None]] = {}
        self.idle = 0
        """How many are idle."""

    def __len__(self) -> int:
        return len(self._client)

    def add(self, connection: AnyConnection, client: str) -> None:
        """A connection was made; it is at work until something else is said."""
        self._client[connection] = client
        self._open[client] += 1

    def remove(self, connection: AnyConnection) -> None:
        """It has ended; saying so twice does nothing."""
        self.works(connection)
        client = self._client.pop(connection, None)
        if client is not None:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    def works(self, connection: AnyConnection) -> None:
        """A request of it waits for its answer."""
        client = self._client.get(connection, "")
        for waiting in (self._idle, self._stalled):
            of_client = waiting.get(client, {})
            if connection in of_client:
                self.idle -= waiting is self._idle
                del of_client[connection]
                if not of_client:
                    del waiting[client]

    def idles(self, connection: AnyConnection) -> None:
        """It waits for a request, from now on if it did not before."""
        self._waits(connection, self._idle)

    def stalls(self, connection: AnyConnection) -> None:
        """It waits for a body, or for an answer to be taken, from now on if it did not before."""
        self._waits(connection, self._stalled)

    def _waits(self, connection: AnyConnection, waiting: dict[str, dict[AnyConnection, None]]) -> None:
        client = self._client.get(connection)
        if client is not None and connection not in waiting.get(client, {}):
            self.works(connection)
            waiting.setdefault(client, {})[connection] = None
            self.idle += waiting is self._idle

    def take_waiting(self, has_news: Callable[[AnyConnection], bool]) -> AnyConnection | None:
        """Remove the one that gives way, idle or else stalled, and return it; None where all are at work.

        has_news: whether its client has said something that was not read yet: it is then passed over.
        """
        taken = self._take(self._idle, has_news)
        return self.take_stalled(has_news) if taken is None else taken

    def take_stalled(self, has_news: Callable[[AnyConnection], bool]) -> AnyConnection | None:
        """The same among those that are stalled."""
        return self._take(self._stalled, has_news)

    def _take(
        self, waiting: dict[str, dict[AnyConnection, None]], has_news: Callable[[AnyConnection], bool]
    ) -> AnyConnection | None:
        for client in sorted(waiting, key=self._open.__getitem__, reverse=True):
            for connection in waiting[client]:
                if not has_news(connection):
                    self.remove(connection)
                    return connection
        return None
