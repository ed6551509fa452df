"""What is confirmed is on the disk: whole lines, in files of bounded number, size and age."""

from __future__ import annotations

import errno
import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from daemon.serve.writes import spool as spools
from daemon.serve.writes.spool import (
    SpoolBounds,
    SpoolFolder,
    SpoolFull,
    SpoolRecord,
    SpoolTopic,
    click_record,
    impression_record,
)
from streams.feed.formats import read_sources
from streams.feed.options import ReaderOptions
from streams.open import open_source
from streams.source import parse_address

ROOMY = SpoolBounds(1 << 20, None)
NOW = 1_790_000_000.0


def clicks(count: int, name: str = "l1") -> list[SpoolRecord]:
    return [click_record(name, 1_000 + n, f"o{n}") for n in range(count)]


def lines(folder: Path) -> list[bytes]:
    return [line for file in sorted(folder.iterdir()) for line in file.read_bytes().splitlines(True)]


def test_records_are_lines_that_feed_reads_with_the_mapping(tmp_path: Path) -> None:
    with closing(SpoolFolder(tmp_path / "raw", ROOMY)) as spool:
        shown = impression_record("l1", 1_000, "q1", ["a", "b", "c"], source="search", key="de")
        odds = impression_record("l2", 1_001, "q\n2", ["ä", "b"], propensity=[1.0, 0.5])
        spool.append([shown, odds])
        spool.append([click_record("l1", 2_000, "c"), click_record("l2", 2_001, "b")])
        spool.append([shown, click_record("l1", 2_000, "c")])  # sent again
    placed = read_sources([str(tmp_path / "raw")], ReaderOptions(0, mapping="http"))
    found = {item.id: item for _, item in placed if hasattr(item, "shown")}
    assert [one.id for one in found["l1"].shown] == ["a", "b", "c"]
    assert found["l1"].clicked == (2,)
    assert (found["l1"].ts, found["l1"].source, found["l1"].key) == (1_000, "search", "de")
    assert (found["l2"].query.id, found["l2"].shown[0].id) == ("q\n2", "ä")
    assert (found["l2"].clicked, found["l2"].propensity) == ((1,), (1.0, 0.5))


def test_every_append_is_flushed_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []

    def flush(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(spools.os, "fdatasync", flush)
    with closing(SpoolFolder(tmp_path, ROOMY)) as spool:
        spool.append(clicks(2))
        spool.append(clicks(1))
    (file,) = tmp_path.iterdir()
    assert flushed[-1] == file.stat().st_size
    assert len(flushed) == 2


def test_what_could_not_be_written_whole_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 100:
            return real(descriptor, data[:50])
        raise OSError(errno.ENOSPC, "no space left on device")

    with closing(SpoolFolder(tmp_path, ROOMY)) as spool:
        spool.append(clicks(1))
        monkeypatch.setattr(spools.os, "write", half)
        with pytest.raises(OSError, match="no space"):
            spool.append(clicks(2))
        monkeypatch.setattr(spools.os, "write", real)
        spool.append(clicks(1))
    assert [json.loads(line)["object"] for line in lines(tmp_path)] == ["o0", "o0"]


def test_a_process_that_starts_again_begins_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "20260101T000000-00000000.jsonl").write_bytes(b'{"event": "cli')
    with closing(SpoolFolder(tmp_path, ROOMY)) as spool:
        spool.append(clicks(1))
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == b'{"event": "cli'
    assert second.read_bytes().endswith(b"}\n")


def test_files_are_closed_at_their_size_and_at_their_age(tmp_path: Path) -> None:
    times = [NOW]
    with closing(SpoolFolder(tmp_path, ROOMY, now=lambda: times[0], file_bytes=100)) as spool:
        spool.append(clicks(2))  # more than 100 bytes
        times[0] += 2
        spool.append(clicks(1))
        times[0] += spools.FILE_SECONDS
        spool.append(clicks(1))
    assert [len(file.read_bytes().splitlines()) for file in sorted(tmp_path.iterdir())] == [2, 1, 1]


def test_a_folder_that_is_full_refuses_until_somebody_makes_room(tmp_path: Path) -> None:
    with closing(SpoolFolder(tmp_path, SpoolBounds(400, None))) as spool:
        one = len(clicks(1)[0].line) + 1
        for _ in range(400 // one):
            spool.append(clicks(1))
        with pytest.raises(SpoolFull, match=r"serve\.writes\.size allows 400"):
            spool.append(clicks(1))
        assert len(lines(tmp_path)) == 400 // one
        sorted(tmp_path.iterdir())[0].unlink()
        spool.append(clicks(1))


def test_files_out_of_date_make_room(tmp_path: Path) -> None:
    times = [NOW]
    bounds, steady = SpoolBounds(1 << 20, 60.0), lambda: times[0] - 1_000
    with closing(SpoolFolder(tmp_path, bounds, now=lambda: times[0], steady=steady)) as spool:
        spool.append(clicks(1))
        (old,) = tmp_path.iterdir()
        os.utime(old, (NOW, NOW))
        times[0] += 61 + spools.FILE_SECONDS
        spool.append(clicks(1))
    assert old not in tmp_path.iterdir()
    assert len(lines(tmp_path)) == 1


def test_a_clock_that_jumps_ahead_removes_nothing(tmp_path: Path) -> None:
    month = 30 * 86_400.0
    wall, steady, bounds = [NOW], [0.0], SpoolBounds(1 << 20, month)
    with closing(SpoolFolder(tmp_path, bounds, now=lambda: wall[0], steady=lambda: steady[0])) as spool:
        spool.append(clicks(1))
        (first,) = tmp_path.iterdir()
        os.utime(first, (NOW, NOW))
        wall[0] += 2 * month
        for _ in range(3):
            spool.append(clicks(1))
            wall[0] += 31.0
            steady[0] += 31.0
        assert len(lines(tmp_path)) == 4
        wall[0] += 2 * month
        steady[0] += 2 * month
        spool.append(clicks(1))
    assert not first.exists()


def test_a_file_that_another_process_writes_is_never_removed(tmp_path: Path) -> None:
    bounds = SpoolBounds(1 << 20, keep_s=60.0)
    quiet = SpoolFolder(tmp_path, bounds)
    quiet.append(clicks(1))
    (file,) = tmp_path.iterdir()
    os.utime(file, (1.0, 1.0))
    other = SpoolFolder(tmp_path, bounds)  # flock knows open files, not processes
    with closing(other):
        other.append(clicks(1, "l2"))
    quiet.append(clicks(1, "l3"))
    quiet.close()
    assert len(lines(tmp_path)) == 3
    os.utime(file, (1.0, 1.0))
    with closing(SpoolFolder(tmp_path, bounds)) as another:
        another.append(clicks(1, "l4"))
    assert not file.exists()  # nobody writes it any more


def test_a_topic_holds_the_same_records_keyed_by_impression() -> None:
    address = parse_address("memory:spool-topic#clicks").raw
    assert address.topic == "clicks.raw"
    with closing(SpoolTopic(address, 2)) as spool:
        spool.append([impression_record("l1", 1, "q", ["a"]), click_record("l1", 2, "a")])
    with closing(open_source(address)) as source:
        source.assign({partition: first for partition, (first, _) in source.bounds().items()})
        batch = source.poll(10, 1.0)
        assert batch is not None
        said = [json.loads(value or b"") for value in batch.values]
        assert [one["event"] for one in said] == ["impression", "click"]
        assert batch.keys == [b"l1", b"l1"]
