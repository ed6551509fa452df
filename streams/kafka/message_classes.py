"""Importing this makes every class of Kafka's answers, which kafka-python makes when one is first asked for.

It makes one class per version of an answer, without a lock, and keeps the newest by a weak reference: of two
threads that ask at once the class of one is thrown away, and where that is the one it kept, every later
answer of that kind is a ReferenceError until the process ends. An import happens once, before any connection.
"""

from __future__ import annotations

import kafka.admin  # noqa: F401  with it, every module that defines answers
from kafka.protocol.api_message import ApiMessage


def make_all() -> None:
    """Ask for each version of each answer: about 250 small classes in 0.2 s; no more the second time."""
    for kind in list(ApiMessage.__subclasses__()):
        if not kind.is_request() and kind[None] is kind:
            _ = [kind[version] for version in range(kind.max_version + 1)]


make_all()
