"""Addresses of streams: `log:path`, `log:path#topic`, `memory:name#topic`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from streams.errors import AddressError

DEFAULT_TOPIC = "triplets"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
_EXAMPLES = "use `log:clicks.log`, `log:dir/clicks.log#topic` or `memory:name`"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a stream lives: its scheme (`log` or `memory`), file path or name, and topic."""

    scheme: str
    path: str
    topic: str = DEFAULT_TOPIC

    def __str__(self) -> str:
        return f"{self.scheme}:{self.path}#{self.topic}"

    @property
    def holdout(self) -> Address:
        """The topic of whole impressions kept from training."""
        return replace(self, topic=self.topic + ".holdout")

    @property
    def dead(self) -> Address:
        """The topic of dead letters."""
        return replace(self, topic=self.topic + ".dead")


def parse_address(text: str) -> Address:
    """Read an address; raises AddressError naming the text and what is wrong with it."""
    scheme, colon, rest = text.partition(":")
    if scheme == "kafka":
        raise AddressError(f"{text!r}: Kafka is not available in this release; {_EXAMPLES}")
    if not colon or scheme not in ("log", "memory"):
        raise AddressError(f"{text!r} is not a stream address: {_EXAMPLES}")
    path, mark, topic = rest.partition("#")
    if not path or "\0" in path:
        raise AddressError(f"{text!r} names no {'file' if scheme == 'log' else 'log'}: {_EXAMPLES}")
    if mark and not _TOPIC.fullmatch(topic):
        raise AddressError(f"{text!r}: a topic is 1 to 200 letters, digits, dots, dashes or underscores")
    return Address(scheme, path, topic if mark else DEFAULT_TOPIC)
