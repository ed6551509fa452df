"""What can go wrong with a stream.

StreamError
├── AddressError        the address cannot be read: correct it
├── TopicMissing        no such log or topic: create it, or correct the address
├── PartitionMissing    the topic has fewer partitions
├── LogMismatch         another log, a re-created topic, or another partition count
│   └── PartitionsAdded the same topic, with more partitions: open it again and read them from their beginning
├── LogFileError        the file is not a log, or cannot be used as one
│   └── LogNotWritable  neither the log nor a file next to it can be written
├── RecordRefused       a record to be written breaks a limit; nothing of the call was written
├── StreamRefused       the broker does not let us in: password, certificate, host name, mechanism, permission
├── OffsetExpired       retention has removed records that were still to be read
├── OffsetAhead         the position lies past the end: the log lost records or is another one
└── StreamUnavailable   busy, full, failing or unreachable: the same call may succeed later (retriable)
"""

from __future__ import annotations

from typing import ClassVar


class StreamError(Exception):
    """Any failure of a stream; the message names the place and the remedy."""

    retriable: ClassVar[bool] = False


class AddressError(StreamError):
    """An address that cannot be read. Correct it: `log:path#topic`, `memory:name` or `kafka://host:port/topic`."""


class TopicMissing(StreamError):
    """No such log or topic. Create it, or correct the address."""


class PartitionMissing(StreamError):
    """A partition number the topic does not have."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"topic {topic!r} has partitions 0..{partitions - 1}, not {partition}")


class LogMismatch(StreamError):
    """Not the log that was meant: another file, a re-created topic, another number of partitions."""


class PartitionsAdded(LogMismatch):
    """The topic has more partitions than when it was opened: what lies in them is not read before it is
    opened again. `partitions`: how many it has now.
    """

    def __init__(self, place: object, opened: int, partitions: int) -> None:
        super().__init__(
            f"{place}: the topic has {partitions} partitions now, {opened} when it was opened; what lies in "
            "the others would not be read: open it again"
        )
        self.partitions = partitions


class LogFileError(StreamError):
    """The path cannot serve as a log: not one of ours, damaged, a newer format, or not accessible."""


class LogNotWritable(LogFileError):
    """The log or its folder is read-only, for this user or as a disk. Make both writable."""


class RecordRefused(StreamError):
    """A record breaks a limit of the log. Nothing of the call was written."""


class StreamRefused(StreamError):
    """The broker can be reached but does not let us in. Correct the settings or the permissions."""


class OffsetExpired(StreamError):
    """Retention removed records `wanted`..`earliest - 1` before they were read."""

    def __init__(self, partition: int, wanted: int, earliest: int) -> None:
        super().__init__(
            f"partition {partition}: offset {wanted} has expired, the log now starts at {earliest}: "
            f"{earliest - wanted} records are gone"
        )
        self.partition, self.wanted, self.earliest = partition, wanted, earliest

    @property
    def gap(self) -> int:
        """How many records are gone."""
        return self.earliest - self.wanted


class OffsetAhead(StreamError):
    """The position lies past the end of the log, which therefore lost records or is another log."""

    def __init__(self, partition: int, wanted: int, end: int) -> None:
        super().__init__(
            f"partition {partition}: offset {wanted} is ahead of the log, which ends at {end}: "
            f"{wanted - end} records are missing; the log was replaced or lost its tail"
        )
        self.partition, self.wanted, self.end = partition, wanted, end

    @property
    def gap(self) -> int:
        """How many records are missing."""
        return self.wanted - self.end


class StreamUnavailable(StreamError):
    """The storage is busy, full, failing or cannot be reached: the same call may succeed later.

    Nothing was read past and lost. A sink on a broker may have written some of the records (see `Sink.send`).
    """

    retriable = True


class NothingWritten(StreamUnavailable):
    """The same, where it is certain that none of the records was written."""
