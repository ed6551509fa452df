"""What source and sink of an embedded log share: the file and the topic they opened."""

from __future__ import annotations

from streams.errors import LogMismatch
from streams.log.database import BUSY_TIMEOUT_S, check_same_file, file_identity, open_log
from streams.log.topics import find_topic
from streams.source import TopicIdentity


class Opened:
    """One topic of an embedded log, open. `durable`: every transaction reaches the disk before it ends."""

    def __init__(self, path: str, topic: str, *, durable: bool, timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._file = file_identity(path)
        self._connection = open_log(path, durable=durable, timeout_s=timeout_s)
        try:
            self._topic = find_topic(self._connection, path, topic)
        except BaseException:
            self._connection.close()
            raise

    def identity(self) -> TopicIdentity:
        """Which log and topic this is."""
        return self._topic.identity

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def _check_file(self) -> None:
        """Raises LogMismatch when the file was removed or replaced since."""
        check_same_file(self._path, self._file)

    def _other_topic(self) -> LogMismatch:
        """The topic is no longer in the file."""
        return LogMismatch(
            f"{self._path}: topic {self._topic.identity.topic!r} was removed or re-created while it "
            "was open; open it again"
        )
