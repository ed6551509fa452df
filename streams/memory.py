"""A log for one process, gone when it ends: an embedded log on a temporary file, known by a name. For tests
and trials."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from streams.log.source import LogSink, LogSource


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="tripletd-", ignore_cleanup_errors=True)


def path_of(name: str) -> str:
    """Where the records of the log with this name are, as long as the process lasts."""
    return str(Path(_folder().name, f"{sha256(name.encode()).hexdigest()[:32]}.log"))


class MemorySource(LogSource):
    """Reads one topic of a log of this process (see `streams.source.Source`)."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(path_of(name), topic)


class MemorySink(LogSink):
    """Appends to one topic of a log of this process (see `streams.source.Sink`)."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__(path_of(name), topic, durable=False)
