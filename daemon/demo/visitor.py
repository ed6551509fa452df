"""Somebody who asks the demo's server while it learns, so that there are answers to measure freshness by."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EVERY_SECONDS = 0.1
TIMEOUT_SECONDS = 5.0
END_SECONDS = 10.0
ASKED = ("latest", "stable")


@contextmanager
def visitor(host: str, port: int, ids: Sequence[str], seed: int) -> Iterator[None]:
    """Ask for the neighbours of random objects, ten times a second, until the end of the context."""
    stop = threading.Event()
    thread = threading.Thread(target=_ask, args=(host, port, ids, seed, stop), name="visitor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_SECONDS)


def _ask(host: str, port: int, ids: Sequence[str], seed: int, stop: threading.Event) -> None:
    drawn, turn = random.Random(seed), 0
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    while not stop.wait(EVERY_SECONDS):
        turn += 1
        body = json.dumps({"id": drawn.choice(ids), "k": 10, "alias": ASKED[turn % len(ASKED)]})
        try:
            connection.request("POST", "/v1/similar", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()  # it is not there yet, or busy: the next question opens it again
    connection.close()
