"""Files and topics side by side: the one behind goes first, and holds the watermark while it has more."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streams.errors import StreamUnavailable
from streams.feed.follow import topics
from streams.feed.follow.intake import AGAIN_SECONDS, Intake
from streams.open import ensure_topic, open_sink, open_source, retain
from streams.source import OutRecord, Source, parse_address
from tests.harness.topics import delete_topic

LATENESS = 100


def add(path: Path, *times: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"ts": ts}) + "\n" for ts in times)


def send(address: str, *times: int) -> None:
    with closing(open_sink(parse_address(address))) as sink:
        sink.send([OutRecord(json.dumps({"ts": ts}).encode(), str(ts).encode()) for ts in times])


def read(intake: Intake, most: int = 1, now: float = 0.0) -> list[tuple[int, int]]:
    """(time of a record, watermark after it), up to the end of all."""
    found = []
    while (one := intake.next(most, now)) is not None:
        lane, records = one
        times = [json.loads(record.value or b"")["ts"] for record in records]
        lane.saw(max(times))
        found += [(ts, intake.watermark(now)) for ts in times]
    return found


def test_the_one_behind_goes_first_and_holds_the_watermark(tmp_path: Path) -> None:
    add(tmp_path / "a.log", 1_000, 2_000, 3_000)
    add(tmp_path / "b.log", 1_500, 1_600, 5_000)
    intake = Intake([str(tmp_path / "*.log")], {}, LATENESS)
    found = read(intake)
    assert sorted(ts for ts, _ in found) == [1_000, 1_500, 1_600, 2_000, 3_000, 5_000]
    read_before: list[int] = []
    for ts, watermark in found:
        assert all(
            one > watermark
            for one in (1_000, 1_500, 1_600, 2_000, 3_000, 5_000)
            if one not in read_before + [ts]
        )
        read_before.append(ts)
    assert intake.at_rest()
    intake.close()


def test_the_clock_goes_on_where_all_was_read(tmp_path: Path) -> None:
    add(tmp_path / "a.log", 10_000)
    intake = Intake([str(tmp_path / "a.log")], {}, LATENESS)
    read(intake)
    assert intake.watermark(0.0) == 9_900
    assert intake.watermark(2.5) == 12_400
    add(tmp_path / "a.log", 11_000)
    assert read(intake, now=3.0) == [(11_000, 10_900)]
    intake.close()


def test_a_spool_is_read_on_from_its_offsets(tmp_path: Path) -> None:
    address = f"log:{tmp_path}/spool.log#clicks"
    sources = [address, str(tmp_path / "a.log")]
    intake = Intake(sources, {}, LATENESS)
    assert read(intake) == []  # there is none yet
    ensure_topic(parse_address(address), 2)
    send(address, 1, 2, 3, 4)
    assert sorted(ts for ts, _ in read(intake, now=5.0)) == [1, 2, 3, 4]
    places = json.loads(json.dumps(intake.places()))
    intake.close()
    send(address, 5, 6)
    add(tmp_path / "a.log", 7)
    again = Intake(sources, places, LATENESS)
    assert sorted(ts for ts, _ in read(again)) == [5, 6, 7]
    assert again.behind() == {address: 0, sources[1]: 0}
    assert again.notes() == []
    again.close()


def test_what_was_removed_unread_and_a_topic_made_anew_are_told(tmp_path: Path) -> None:
    name = f"log:{tmp_path}/spool.log#clicks"
    address = parse_address(name)
    ensure_topic(address, 1)
    send(name, 1, 2)
    intake = Intake([name], {}, LATENESS)
    assert len(read(intake)) == 2
    places = intake.places()
    intake.close()
    send(name, 3)
    retain(address, None, 0)
    send(name, 4)
    gap = Intake([name], places, LATENESS)
    assert [ts for ts, _ in read(gap)] == [4]
    assert "removed unread" in gap.notes()[0]
    gap.close()
    delete_topic(address)
    ensure_topic(address, 1)
    send(name, 5)
    anew = Intake([name], places, LATENESS)
    assert [ts for ts, _ in read(anew)] == [5]
    assert "another topic" in anew.notes()[0]
    anew.close()


def test_a_file_that_cannot_be_read_is_trouble_and_holds_the_watermark(tmp_path: Path) -> None:
    add(tmp_path / "a.log", 1_000)
    intake = Intake([str(tmp_path / "a.log")], {}, LATENESS)
    lane, _ = intake.next(1, 0.0) or (None, None)
    assert lane is not None
    lane.saw(1_000)

    def failing(*_: object) -> list[object]:
        raise OSError(5, "Input/output error")

    lane.files.read = failing  # type: ignore
    assert intake.next(1, 1.0) is None
    assert "Input/output" in intake.trouble()[0]
    assert intake.watermark(1_000.0) == 900
    assert not intake.at_rest()
    intake.close()


def test_resting_lanes_are_looked_at_again(tmp_path: Path) -> None:
    add(tmp_path / "a.log", 1)
    intake = Intake([str(tmp_path / "a.log")], {}, LATENESS)
    read(intake)
    add(tmp_path / "a.log", 2)
    assert read(intake, now=0.0) == []
    assert [ts for ts, _ in read(intake, now=AGAIN_SECONDS)] == [2]
    intake.close()


class _Lagging:
    """A source whose broker answers late: `polls` give nothing first, then `bounds` fail once."""

    def __init__(self, source: Source, polls: int, fails: int = 0) -> None:
        self._source, self._polls, self._fails = source, polls, fails

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def poll(self, most: int, timeout_s: float) -> Any:
        self._polls -= 1
        return None if self._polls >= 0 else self._source.poll(most, timeout_s)

    def bounds(self) -> Any:
        if self._polls < 0 < self._fails:
            self._fails -= 1
            raise StreamUnavailable("not now")
        return self._source.bounds()


def test_a_topic_whose_broker_has_not_answered_yet_holds_the_watermark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = f"log:{tmp_path}/a.log#slow", f"log:{tmp_path}/a.log#quick"
    for address in (slow, quick):
        ensure_topic(parse_address(address), 1)
    send(slow, 1_000)
    send(quick, 50_000)
    polls = {slow: 3, quick: 0}
    monkeypatch.setattr(
        topics, "open_source", lambda address: _Lagging(open_source(address), polls[str(address)])
    )
    intake = Intake([slow, quick], {}, LATENESS)
    assert read(intake) == [(50_000, 0)]
    assert not intake.at_rest()
    found = [pair for now in (1.0, 2.0, 3.0) for pair in read(intake, now=now)]
    assert found == [(1_000, 900)], "what is late by the clock of others is not late"
    assert intake.watermark(3.0) >= 49_900
    intake.close()


def test_what_was_polled_when_the_broker_went_away_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"log:{tmp_path}/a.log#raw"
    ensure_topic(parse_address(address), 1)
    send(address, 1_000, 2_000)
    monkeypatch.setattr(topics, "open_source", lambda address: _Lagging(open_source(address), 0, fails=1))
    intake = Intake([address], {}, LATENESS)
    assert read(intake, most=10) == []
    assert intake.trouble() == ["not now"]
    assert intake.places()[address]["at"] == {"0": (0, 0)}
    assert [ts for ts, _ in read(intake, most=10, now=2.0)] == [1_000, 2_000]
    intake.close()
