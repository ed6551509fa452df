"""Each codec gives back what was compressed, however it is framed, and no more than a poll may hold."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_codec
from kafka.record import default_records, legacy_records
from kafka.record.default_records import DefaultRecordBatch

from streams.kafka.clients import patches

MIB = 1 << 20


def bare_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def framed_snappy(data: bytes, block: int = 32 << 10) -> bytes:
    """As Xerial frames it, which Java's clients and kafka-python do."""
    parts = [b"\x82SNAPPY\x00", struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), block):
        packed = bare_snappy(data[start : start + block])
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def streamed_zstd(data: bytes) -> bytes:
    """Without its length in front, as Java's clients write it."""
    out = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as writer:
        writer.write(data)
    return out.getvalue()


def linked_lz4(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=True, block_size=4, content_checksum=True))


PACKED = {
    "gzip": (gzip.compress, patches.inflate_gzip),
    "bare snappy": (bare_snappy, patches.inflate_snappy),
    "framed snappy": (framed_snappy, patches.inflate_snappy),
    "lz4": (kafka_codec.lz4_encode, patches.inflate_lz4),
    "linked lz4": (linked_lz4, patches.inflate_lz4),
    "zstd": (zstandard.ZstdCompressor().compress, patches.inflate_zstd),
    "streamed zstd": (streamed_zstd, patches.inflate_zstd),
}
"""Compressing, inflating."""
EACH = pytest.mark.parametrize("name", PACKED)
DATA = st.one_of(
    st.binary(max_size=5000),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=9), st.integers(1, 300_000)),
    st.sampled_from([bytes(MIB), bytes(MIB + 1), bytes(2 * MIB), bytes(range(256)) * 9000]),
)


@EACH
@settings(deadline=None, max_examples=40)
@given(data=DATA)
def test_what_was_compressed_comes_back(name, data):
    pack, unpack = PACKED[name]
    assert unpack(pack(data)) == data


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_several_streams_in_a_row_are_one(name):
    pack, unpack = PACKED[name]
    assert unpack(pack(b"one") + pack(b"") + pack(bytes(3 * MIB))) == b"one" + bytes(3 * MIB)


@EACH
def test_the_limit_itself_is_taken_and_one_byte_more_is_not(name, monkeypatch):
    monkeypatch.setattr(patches, "MAX_POLL_BYTES", 3 * MIB)
    pack, unpack = PACKED[name]
    assert len(unpack(pack(bytes(3 * MIB)))) == 3 * MIB
    with pytest.raises(patches.TooLarge, match="a compressed batch holds more than"):
        unpack(pack(bytes(3 * MIB + 1)))


@EACH
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damage_ends_in_an_exception_or_in_fewer_bytes(name, data):
    """No hang and no signal; what is short is told by the records in it."""
    pack, unpack = PACKED[name]
    whole = bytes(range(200)) * 300
    packed = bytearray(pack(whole))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    else:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(bytes(packed))
    except Exception:
        return
    assert len(found) <= 2 * len(whole)


@pytest.mark.parametrize(
    "lie",
    [
        b"\xff\xff\xff\xff\x0f" + bytes(10),
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 15) + b"\xff\xff\xff\xff\x0f" + bytes(10),
    ],
)
def test_a_length_that_is_not_there_takes_no_memory(lie):
    with pytest.raises(patches.TooLarge):
        patches.inflate_snappy(lie)


@pytest.mark.parametrize("length", [-1, 0, 1000, -(2**31), 2**31 - 1])
def test_a_frame_that_says_more_than_it_holds_is_cut_short(length):
    broken = framed_snappy(b"some") + struct.pack(">i", length) + b"xyz"
    with pytest.raises(patches.CutShort):
        patches.inflate_snappy(broken)


def test_the_limit_is_in_place_wherever_kafka_python_inflates():
    patches.install_limits()
    assert {name for name in dir(default_records) if name.endswith("_decode")} == set(patches.LIMITED)
    for module in (kafka_codec, default_records, legacy_records):
        for name, limited in patches.LIMITED.items():
            assert getattr(module, name, limited) is limited
    for number in range(1, 5):
        DefaultRecordBatch._assert_has_codec(DefaultRecordBatch, number)


BOMBS = """
import re, sys
from pathlib import Path
from tests.streams.kafka.test_inflate import PACKED, patches

def peak():  # of this program alone: what getrusage tells may be its parent's
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

bombs = [(name, Path(sys.argv[1], name).read_bytes()) for name in PACKED]
before = peak()
for name, bomb in bombs:
    try:
        PACKED[name][1](bomb)
    except patches.TooLarge:
        print((peak() - before) // 1024, name)
"""


def test_a_bomb_of_any_codec_takes_no_more_memory_than_twice_the_limit(tmp_path):
    zeros = bytes(3 * patches.MAX_POLL_BYTES)
    for name, (pack, _) in PACKED.items():
        (tmp_path / name).write_bytes(pack(zeros))
    del zeros
    told = subprocess.run(
        [sys.executable, "-c", BOMBS, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    assert [line.partition(" ")[2] for line in told] == list(PACKED), told
    peaks = [int(line.partition(" ")[0]) for line in told]
    assert 0.5 * patches.MAX_POLL_BYTES / MIB < max(peaks) <= 2.2 * patches.MAX_POLL_BYTES / MIB, told
