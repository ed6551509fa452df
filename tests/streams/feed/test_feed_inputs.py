"""What is around the lines of a log: how it is packed, a byte order mark, another encoding than UTF-8."""

from __future__ import annotations

import bz2
import gzip
import lzma
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from daemon.validate.judgments import JudgmentsError, load_judgments
from streams.event import Event
from streams.feed import inputs
from streams.feed.formats import read_sources
from streams.feed.inputs import Input
from streams.feed.items import Dropped, FeedError
from streams.feed.options import LABELS, RELEVANCE, RelevanceOptions

from .feed_builders import OPTIONS

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
LINES = b"".join(b'{"q":"q","c":"c%d","s":"s"}\n' % number for number in range(20_000))
MARK = b"\xef\xbb\xbf"


def lines_of(path: Path) -> list[bytes | None]:
    with Input(str(path)) as source:
        return [line.data for line in source.lines()]


@pytest.mark.parametrize("codec", PACK)
def test_how_a_log_is_packed_is_told_from_its_content(tmp_path: Path, codec: str) -> None:
    path, half = tmp_path / "log", LINES.index(b"\n", len(LINES) // 2) + 1
    path.write_bytes(PACK[codec](LINES[:half]) + PACK[codec](b"") + PACK[codec](LINES[half:]))
    assert lines_of(path) == LINES.splitlines(keepends=True)
    assert len([item for _, item in read_sources([str(path)], OPTIONS) if isinstance(item, Event)]) == 20_000


def test_padding_of_xz_and_frames_to_skip_of_zstd_hold_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(lzma.compress(b"a\n") + bytes(2_048) + lzma.compress(b"b\n"))
    assert lines_of(path) == [b"a\n", b"b\n"]
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"
    path.write_bytes(skipped + PACK["zst"](b"a\n") + skipped)
    assert lines_of(path) == [b"a\n"]


@pytest.mark.parametrize("codec", PACK)
def test_a_packed_log_cut_short_is_an_error_after_what_came_before(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "log"
    whole = PACK[codec](LINES[:200_000]) + PACK[codec](LINES)
    path.write_bytes(whole[:-30])
    seen: list[bytes | None] = []
    with Input(str(path)) as source, pytest.raises(FeedError, match=r"log:\d+: cannot be read any further"):
        seen.extend(line.data for line in source.lines())
    assert seen[:5_000] == LINES.splitlines(keepends=True)[:5_000]


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst"])
def test_a_line_that_inflates_to_very_much_is_dropped_in_little_memory(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACK[codec](b"x" * (24 << 20)) * 6 + PACK[codec](b"\nshort\n"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert lines_of(path) == [None, b"short\n"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_what_looks_back_too_far_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "log"
    far = zstandard.ZstdCompressionParameters(window_log=27, strategy=1)
    packer = zstandard.ZstdCompressor(compression_params=far).compressobj()
    path.write_bytes(packer.compress(LINES) + packer.flush())
    with pytest.raises(FeedError) as refused:
        lines_of(path)
    assert "--long" in refused.value.remedy


@pytest.mark.parametrize(("start", "codec"), [(b"\x04\x22\x4d\x18xx", "lz4"), (b"PK\3\4xxxx", "zip")])
def test_a_codec_that_is_not_read_is_named(tmp_path: Path, start: bytes, codec: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(start)
    with pytest.raises(FeedError, match=f"packed as {codec}"):
        lines_of(path)


def test_blank_lines_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n" * 600_000 + b'{"q":"q","c":"c","s":"s","id":"t"}\n{')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    placed = list(read_sources([str(path)], OPTIONS))
    assert [place.rpartition(":")[2] for place, _ in placed] == ["600001", "600002"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000
    monkeypatch.setattr(inputs, "MAX_LINE_BYTES", 10)
    path.write_bytes(b" " * 25 + b"\n{}\n")
    with Input(str(path)) as source:
        assert source.first_line() == b"{}\n"
        assert [(line.number, line.data) for line in source.lines()] == [(2, b"{}\n")]


DRAW = replace(OPTIONS, relevance=RelevanceOptions(triplets=20))


@pytest.mark.parametrize(
    ("kind", "text", "ids"),
    [
        (LABELS, "a\tred\nb\tred\nc\tblue\nd\tblue\n", set("abcd")),
        (RELEVANCE, "q\ta\t1\nq\tb\t1\nr\tc\t1\nr\td\t1\n", set("abcd")),
        (None, '{"q":"a","c":"b","s":"c","id":"d"}\n', set("abc")),
    ],
)
def test_a_byte_order_mark_is_part_of_no_id(
    tmp_path: Path, kind: str | None, text: str, ids: set[str]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(MARK + text.encode())
    items = [item for _, item in read_sources([str(path)], DRAW, kind)]
    assert not [item for item in items if not isinstance(item, Event)]
    seen = {
        ref.id
        for item in items
        if isinstance(item, Event)
        for ref in (item.query, item.clicked, item.skipped)
    }
    assert seen == ids
    path.write_bytes(gzip.compress(MARK + text.encode()))
    assert [item for _, item in read_sources([str(path)], DRAW, kind)]


@pytest.mark.parametrize("kind", [LABELS, RELEVANCE, None])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_one_error_that_names_it(tmp_path: Path, kind: str | None, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes("a\tred\r\nb\tred\r\n".encode(encoding))
    with pytest.raises(FeedError, match=encoding[:6].upper()) as refused:
        list(read_sources([str(path)], DRAW, kind))
    assert refused.value.remedy == "save it as UTF-8"


@pytest.mark.parametrize(("kind", "text"), [("qrels", "q 0 a 1\n"), ("labels", "a\tred\nb\tred\n")])
def test_judgments_know_marks_and_other_encodings(tmp_path: Path, kind: str, text: str) -> None:
    path = tmp_path / "judged"
    path.write_bytes(MARK + text.encode())
    judged = load_judgments(f"{kind}:{path}")
    assert set(judged.relevant) | set(judged.labels) == ({"q"} if kind == "qrels" else {"a", "b"})
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(JudgmentsError, match="UTF-16 text; save it as UTF-8"):
        load_judgments(f"{kind}:{path}")


def test_msgpack_is_not_taken_for_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x81\x00\x00\x00\x80")
    assert all(isinstance(item, Dropped) for _, item in read_sources([str(path)], OPTIONS))
