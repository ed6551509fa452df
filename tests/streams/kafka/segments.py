"""A broker's own files: where batches lie in them, damaged or cut off on purpose."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from kafka.record.util import calc_crc32c

from tests.harness.kafka.cluster import Cluster

_HEADER = struct.Struct(
    ">qiibIhi"
)  # base offset, length, epoch, magic, checksum, attributes, last offset delta
_BEFORE_LENGTH = 12


@dataclass(frozen=True)
class Batch:
    """Where a batch lies in its file, the offsets it holds, and how it is compressed (0: not at all)."""

    position: int
    size: int
    first: int
    last: int
    codec: int


def segment(cluster: Cluster, topic: str) -> Path:
    """The file of partition 0, which has one as long as little is written."""
    (file,) = (cluster.folder / "data1" / f"{topic}-0").glob("*.log")
    return file


def batches(cluster: Cluster, topic: str) -> list[Batch]:
    """All batches of partition 0."""
    data, position, found = segment(cluster, topic).read_bytes(), 0, []
    while position < len(data):
        base, length, _, _, _, attributes, delta = _HEADER.unpack_from(data, position)
        if length <= 0:
            break  # the rest of the file is reserved and unused
        found.append(Batch(position, _BEFORE_LENGTH + length, base, base + delta, attributes & 7))
        position += found[-1].size
    return found


def damage(cluster: Cluster, topic: str, *offsets: int) -> None:
    """Flip every bit of one byte in each of the batches that hold these offsets."""
    with segment(cluster, topic).open("r+b") as log:
        for batch in batches(cluster, topic):
            if any(batch.first <= offset <= batch.last for offset in offsets):
                log.seek(batch.position + batch.size - 3)
                (byte,) = log.read(1)
                log.seek(-1, 1)
                log.write(bytes([byte ^ 0xFF]))


_CHECKSUM, _ATTRIBUTES, _RECORDS = 17, 21, 61
"""Where these begin in a batch."""


def recompress(cluster: Cluster, topic: str, offset: int, codec: int | None = None) -> None:
    """Make the compressed batch that holds an offset one that nobody can inflate, under a checksum that fits.

    codec: the number that it then has. None: it keeps its own, and the compressed bytes are noise.
    """
    (batch,) = (one for one in batches(cluster, topic) if one.first <= offset <= one.last)
    with segment(cluster, topic).open("r+b") as log:
        log.seek(batch.position)
        data = bytearray(log.read(batch.size))
        if codec is None:
            data[_RECORDS:] = bytes((7 * n + 1) % 256 for n in range(len(data) - _RECORDS))
        else:
            data[_ATTRIBUTES + 1] = data[_ATTRIBUTES + 1] & ~7 | codec
        struct.pack_into(">I", data, _CHECKSUM, calc_crc32c(bytes(data[_ATTRIBUTES:])))
        log.seek(batch.position)
        log.write(data)


def cut(cluster: Cluster, topic: str, keep: int) -> None:
    """Leave only the batches that begin below an offset; the broker must not run."""
    last = [batch for batch in batches(cluster, topic) if batch.first < keep][-1]
    with segment(cluster, topic).open("r+b") as log:
        log.truncate(last.position + last.size)
