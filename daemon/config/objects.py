"""How object stores are reached, by address: what [checkpoints] says, for all that opens a store by its
address alone.

An address (`s3://bucket/prefix`) names what is kept where and says nothing of the server, the cache or the
time to wait. The configuration does, and whatever lies below its address, as the lines of shards, is reached
the same way.
"""

from __future__ import annotations

import threading

from daemon.config.schema import CheckpointsConfig
from daemon.config.values import SCHEMES

_known: dict[str, CheckpointsConfig] = {}
_lock = threading.Lock()


def is_object_address(place: str) -> bool:
    """Whether a place is in an object store."""
    scheme, mark, _ = place.partition("://")
    return bool(mark) and scheme in SCHEMES


def remember(section: CheckpointsConfig) -> None:
    """Reach what is at its address, and below it, as this section says."""
    with _lock:
        _known.pop(section.path, None)
        _known[section.path] = section


def settings_of(address: str) -> CheckpointsConfig:
    """The section whose address is the longest that `address` begins with; else the last one that was
    remembered, since a process has one as a rule; else the defaults.
    """
    with _lock:
        fitting = [path for path in _known if f"{address}/".startswith(f"{path.rstrip('/')}/")]
        if fitting:
            return _known[max(fitting, key=len)]
        return next(reversed(_known.values()), CheckpointsConfig())  # type: ignore[call-arg]
