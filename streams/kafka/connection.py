"""The client that a source reads with: made aside, thrown away after every failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streams.kafka.bounded import Attempt
from streams.kafka.clients.protocol import ConsumerClient


class Connection:
    """At most one client at a time, and at most one attempt to make one."""

    def __init__(self, make: Callable[[], ConsumerClient]) -> None:
        self._make = make
        self._client: ConsumerClient | None = None
        self._attempt: Attempt[ConsumerClient] | None = None

    def client(self, positions: Mapping[int, int], timeout_s: float) -> ConsumerClient | None:
        """The client; a new one is assigned these positions. None when it is not there within `timeout_s`.

        The attempt then goes on, and the next call waits for it further. Raises what making one raises.
        """
        if self._client is None:
            self._attempt = self._attempt or Attempt(self._make)
            try:
                client = self._attempt.result(timeout_s)
            except TimeoutError:
                return None
            except BaseException:
                self._attempt = None
                raise
            self._attempt, self._client = None, client
            client.assign(positions)
        return self._client

    def drop(self) -> None:
        """Throw the client away: after any failure it may hang, or have skipped something."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """Throw everything away."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon(_close)
        self.drop()


def _close(client: ConsumerClient) -> None:
    client.close()
